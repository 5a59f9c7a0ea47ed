"""Sections as one self-contained HTML file: no network, and no scripts but to draw its figures and to copy a line."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import Missing
from flashmoe_sim.io.printable import printable, without_home
from flashmoe_sim.io.provenance import program
from flashmoe_sim.io.sections import Figure, Section, Verdict

if TYPE_CHECKING:
    import jinja2

    from flashmoe_sim.report.card import AnswerCard

INSTALL = "pip install '.[report]'"
MOST_BYTES = 2_900_000  # of a page, which must fit in an e-mail
FEW_ROWS = 24  # of a figure's table that is printed in full
MOST_ROWS = 60  # of another table that is open
NAVIGATED = 4  # the least sections for a table of contents
WIDE = 680  # pixels of a figure on paper, and without scripts
PREVIEW_X, PREVIEW_WIDTH, PREVIEW_ROWS = 700, 408, 5  # of the strip in a preview: pixels, and so many of other people


@dataclass(frozen=True)
class Drawn:
    """A figure in a page: its texts, which the page sets itself, and the chart without them.

    spec: Vega-Lite as JSON. still: SVG for paper, as a data address, or empty.
    """

    title: str
    says: str
    alt: str
    spec: str
    still: str


def html(title: str, sections: Sequence[Section], *, card: AnswerCard | None = None, image: str = "") -> str:
    """The page: readable on a phone, in the dark, on paper and without scripts; without the path of the user's home.

    card: stands above the sections. image: the address of the picture in a preview of the page.
    Every figure is drawn twice, by the page itself and as a picture; if the page would be too large, the largest
    pictures are left out. Raises BadInput without the extra `report`.
    """
    drawn = {figure.name: _drawn(figure) for section in sections for figure in section.figures}
    page = _render(title, sections, drawn, card, image)
    for name in sorted(drawn, key=lambda name: -len(drawn[name].still)):
        if len(page.encode()) <= MOST_BYTES:
            break
        drawn[name] = replace(drawn[name], still="")
        page = _render(title, sections, drawn, card, image)
    return page


def preview(card: AnswerCard) -> bytes:
    """A picture of the card for previews of links, as a PNG of 1200 x 630 pixels.

    Raises BadInput without the extra `report`.
    """
    from flashmoe_sim.report.figures.save import converter

    def x(per_cent: float) -> float:
        return round(PREVIEW_X + PREVIEW_WIDTH * per_cent / 100, 1)

    rows = min(len(card.seen), PREVIEW_ROWS) + len(card.bands) - 1
    svg = template("preview.svg.j2").render(card=replace(card, seen=card.seen[:PREVIEW_ROWS]), x=x, rows=rows)
    png: bytes = converter().svg_to_png(svg)
    return png


def check_installed() -> None:
    """Raise BadInput, with the command that installs it, if the extra `report` is missing."""
    from flashmoe_sim.report.figures.save import converter
    from flashmoe_sim.report.figures.style import altair_module

    template(), converter(), altair_module()


def _render(
    title: str, sections: Sequence[Section], drawn: Mapping[str, Drawn], card: AnswerCard | None, image: str
) -> str:
    from markupsafe import Markup

    kinds = [[(type(part).__name__, part) for part in section.parts] for section in sections]
    scripts = [*(_scripts() if drawn else ()), *([_own("card.js")] if card else [])]
    return template().render(
        title=title,
        says=card.says if card else _says(sections[0]),
        card=card,
        image=image,
        sections=list(zip(sections, kinds, strict=True)),
        drawn=drawn,
        navigated=len(sections) >= NAVIGATED,
        few_rows=FEW_ROWS,
        most_rows=MOST_ROWS,
        themes=_themes() if drawn else "",
        scripts=[Markup(text) for text in scripts],  # noqa: S704  # the library and page.js, no text of a file
        hashes=[_hash(text) for text in scripts],
        wide=WIDE,
        program=program(),
    )


def _says(section: Section) -> str:
    """What a preview of the page shows below its title: the verdict, or else the first sentence."""
    texts = [part for part in section.parts if isinstance(part, str)]
    return next((part.text for part in section.parts if isinstance(part, Verdict)), texts[0] if texts else "")


def _drawn(figure: Figure) -> Drawn:
    """The figure for a screen and for paper."""
    from flashmoe_sim.report.figures import styled
    from flashmoe_sim.report.figures.save import converter
    from flashmoe_sim.report.figures.style import SVG_PADDING

    shown, paper = (styled(figure.chart, width=width).to_dict() for width in ("container", WIDE))
    shown.pop("config", None)
    paper["padding"] = SVG_PADDING
    title = shown.pop("title")
    paper.pop("title")
    head, says = (" ".join(text) if isinstance(text, list) else text for text in (title["text"], title["subtitle"]))
    svg = _numbered(without_home(converter().vegalite_to_svg(paper, allowed_base_urls=[])))
    still = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    return Drawn(head, says, str(shown.get("description", figure.caption)), _json(shown), still)


def _numbered(svg: str) -> str:
    """The picture with ids numbered from 1: vl-convert numbers them on from picture to picture."""
    for number, name in enumerate(dict.fromkeys(re.findall(r'\bid="([\w-]+)"', svg)), start=1):
        svg = svg.replace(f'id="{name}"', f'id="id-{number}"').replace(f"url(#{name})", f"url(#id-{number})")
    return svg


def _json(value: Any) -> str:
    """The value as JSON that no HTML parser misreads."""
    text = without_home(json.dumps(value, separators=(",", ":"), allow_nan=False))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


@cache
def _themes() -> str:
    from flashmoe_sim.report.figures import config

    return _json({"light": config("light"), "dark": config("dark")})


@cache
def _scripts() -> tuple[str, str]:
    """Vega with its dependencies, and the script that draws a page's figures."""
    from flashmoe_sim.report.figures.save import converter

    library: str = converter().javascript_bundle()
    return library.replace("</script", r"<\/script").replace("<!--", r"<\!--"), _own("page.js")


def _own(name: str) -> str:
    """A script of ours."""
    return resources.files("flashmoe_sim.report").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def card_html(card: AnswerCard, *, level: int, below_parts: str = "") -> str:
    """The card alone. level: of its heading. below_parts: a sentence below what a token waits for."""
    return template("card.html.j2").render(card=card, level=level, below_parts=below_parts)


@cache
def template(name: str = "page.html.j2", folder: Path | None = None) -> jinja2.Template:
    """A template of this package, or of a folder, which may include those.

    Raises BadInput without the extra `report`.
    """
    try:
        import jinja2
        from markupsafe import Markup, escape
    except ImportError:
        raise Missing(f"a page needs the package jinja2: {INSTALL}") from None

    def quiet(value: Any) -> Any:
        return printable(without_home(value)) if isinstance(value, str) and not isinstance(value, Markup) else value

    def worded(text: str) -> Markup:
        """The text, with code between backticks."""
        parts = [str(escape(part)) for part in printable(without_home(text)).split("`")]
        whole = len(parts) - (len(parts) % 2 == 0)  # an unpaired backtick stays
        marked = "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts[:whole]))
        return Markup(marked + "".join(f"`{part}" for part in parts[whole:]))  # noqa: S704  # all of it is escaped

    own = [] if folder is None else [jinja2.FileSystemLoader(folder)]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([*own, jinja2.PackageLoader("flashmoe_sim.report", ".")]),
        autoescape=True,
        finalize=quiet,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["worded"] = worded
    return environment.get_template(name)
