"""Sections as Markdown and HTML: order, escapes, tables."""

from __future__ import annotations

from flashmoe_sim.io.provenance import program
from flashmoe_sim.io.sections import Command, Item, Section, Table, latex, markdown
from flashmoe_sim.report.page import html
from tests.report.parsed import Page

PAGE = [
    Section("What to run", ("Take this.", Item("It is *small*.", 4), Command("sim --bank 64 'a b'"))),
    Section("Sizes", (Table((("slots", "right"), ("", "left")), (("64", "knee"), ("128", "a|b"))),)),
]
HOSTILE = [Section("<script>alert(1)</script> & *x*", ("`<b>`", Command("```"), Table((("a", "left"),), (("<i>",),))))]


def test_markdown_has_titles_commands_and_tables() -> None:
    assert markdown(PAGE) == (
        "# What to run\n\nTake this.\n\nIt is \\*small\\*.\n\n```sh\nsim --bank 64 'a b'\n```\n\n"
        "## Sizes\n\n| slots |  |\n| ---: | --- |\n| 64 | knee |\n| 128 | a\\|b |\n"
        f"\nWritten by {program()}.\n"
    )


def test_a_table_as_latex() -> None:
    table = Table((("bank", "right"), ("hit %", "left")), (("16", "a_b & 5%"), ("32", "\\x{y}~^#$")), caption="of  all")
    assert latex(table) == (
        "% needs \\usepackage{booktabs}\n% of all\n\\begin{tabular}{rl}\n\\toprule\nbank & hit \\% \\\\\n\\midrule\n"
        "16 & a\\_b \\& 5\\% \\\\\n32 & \\textbackslash{}x\\{y\\}\\textasciitilde{}\\textasciicircum{}\\#\\$ \\\\\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


def test_markdown_of_hostile_names_has_no_markup() -> None:
    text = markdown(HOSTILE)
    assert "\\<script\\>alert(1)\\</script\\> & \\*x\\*" in text
    assert "````sh\n```\n````" in text


def test_html_is_well_formed_and_needs_nothing_else() -> None:
    page = html("A page", PAGE)
    assert not {"script", "img"} & set(Page(page).seen)
    assert '<td class="right">64</td><td class="left">knee</td>' in page
    assert "<h1>What to run</h1>" in page
    assert "<p>It is *small*.</p>" in page
    assert '<h2 id="part-2">Sizes</h2>' in page


def test_html_of_hostile_names_has_no_markup() -> None:
    assert not {"script", "b", "i"} & set(Page(html("<script>", HOSTILE)).seen)
