"""`sim report`: what it writes, and one line for whatever cannot be used."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.report.figure_files import FigureFiles
from flashmoe_sim.report.results import read_results
from tests.support import document, refusal

GUIDE = Path(__file__).parents[1] / "guide"
NAMES = ("lru", "least-weight")
RATES = "bank,hit_pct,decode_tok_s\n64,80,30\n128,95,60\n"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.html").write_text("mine")


def test_a_trace_on_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """Every section is there, in order; figures become files, and the page names the command that makes it again."""
    Path("rates.csv").write_text(RATES)
    words = "report prose-256 --bank 64,128 --machine vm-2core --measured rates.csv --figures drawn --format svg"
    written = document(capsys, *words.split(), "--out", "a b.html")
    figures = [name for one in written["sections"] for name in one["figures"]]
    assert figures == [
        "systems",
        "predicted-measured",
        "hit-curves",
        "misses-by-layer",
        "popularity",
        "drift",
        "reuse-distances",
        "speeds",
        "waterfall",
    ]
    titles = [one["title"] for one in written["sections"]]
    assert titles[titles.index("How often a bank hits") - 1] == "Predicted against measured"
    assert "A slot bank on this machine" in titles
    assert written["figures"] == [f"drawn/{name}.svg" for name in figures]
    assert all(Path(name).read_text().startswith("<svg") for name in written["figures"])
    page = Path("a b.html").read_text()
    assert len(page.encode()) == written["bytes"]
    shown = re.sub("</?span>", "", page)
    assert "--measured rates.csv" in shown
    assert "--figures drawn" in shown
    assert "&#39;a b.html&#39;" in re.sub("</?span>", "", page)
    assert "What would add more" not in page
    (answer,) = set(re.findall(r"Run [^(]*\(cpu\): ([\d.]+ tok/s) \(90%: ([^)]*)\)", page))  # the page and its preview
    fastest = re.search(r"is predicted to be the fastest: ([\d.]+) tok/s", page)
    assert fastest is not None
    assert float(fastest[1]) >= float(answer[0].partition(" ")[0])  # the slot bank, which nobody's speeds show
    head, _, rest = shown.partition("How often a bank hits</h2>")
    assert "The question: which engine runs" in head
    assert "in a slot bank" not in head
    assert "These figures show lru in a slot bank (split-install), not the engine recommended above." in rest


@pytest.mark.parametrize("model", ["olmoe-1b-7b", "--model olmoe-1b-7b"])
def test_a_model_without_a_trace(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The trace is made, and the page says of what."""
    assert main([*f"report {model} --bank 16,32 --out r.html".split(), "--json"]) == 0
    assert "hit-curves" in [name for one in json.loads(capsys.readouterr().out)["sections"] for name in one["figures"]]
    page = re.sub("</?span>", "", Path("r.html").read_text()).lower()
    assert "no trace of olmoe-1b-7b:q4_k_m is at hand" in page


def test_figures_of_a_paper(capsys: pytest.CaptureFixture[str]) -> None:
    words = "report prose-256 --bank 64,128 --out a.html --figures drawn --format svg,csv,tex,md --size 85mmx4cm"
    assert main(f"{words} --font Serif --font-size 7 --no-titles --json".split()) == 0
    written = json.loads(capsys.readouterr().out)
    names = [name for one in written["sections"] for name in one["figures"]]
    assert written["figures"] == [f"drawn/{name}.{kind}" for name in names for kind in ("svg", "csv", "tex", "md")]
    drawn = Path("drawn/hit-curves.svg").read_text()
    assert "Serif" in drawn
    assert re.match(r'<svg [^>]*?width="24\d(\.\d+)?pt"', drawn)
    assert Path("drawn/hit-curves.csv").read_text().startswith("mark,")
    assert "128 & lru & " in Path("drawn/hit-curves.tex").read_text()
    assert "| 128 | lru |" in Path("drawn/hit-curves.md").read_text()
    assert "--size 85mmx4cm --font Serif" in re.sub("</?span>", "", Path("a.html").read_text())


def test_no_folder_is_left_if_a_figure_cannot_be_written() -> None:
    def write(folder: str) -> None:
        with FigureFiles(folder=Path(folder)).folder_made():
            assert Path(folder).is_dir()
            raise BadInput("no space")

    Path("here").mkdir()
    for folder, message in (
        ("new/deep", "no space"),
        ("here", "no space"),
        ("there.html/new", "Not a directory; give an"),
    ):
        with pytest.raises(BadInput, match=message):
            write(folder)
    assert sorted(path.name for path in Path().iterdir()) == ["here", "there.html"]


def test_one_trace_of_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """Only its rows are drawn, and its page speaks of one's own policy; other names are known ones, in one line."""
    Path("mine.py").write_text((GUIDE / "mine.py").read_text())
    words = "sweep requests-64 qwen3-30b-phone --bank 16,46 --contract atomic --policy lru,mine:LeastWeight --out both"
    assert main(words.split()) == 0
    words = "report both --only requests-64 --figures drawn --format csv --out one.html"
    assert "gains" not in document(capsys, *words.split())["figures"]
    rows = [row for row in read_results(Path("both"))[0] if row["trace"] == "requests-64"]
    with Path("drawn", "hit-curves.csv").open() as lines:
        drawn = {float(row["y"]) / 100 for row in csv.DictReader(lines) if row["mark"] == "point"}
    assert sorted(drawn) == pytest.approx(sorted(row["hit_rate"] for row in rows))
    lru, own = (next(row["hit_rate"] for row in rows if (row["policy"], row["bank"]) == (one, "46")) for one in NAMES)
    said = f"Your own least-weight hits {100 * own:.1f}% there, {100 * (lru - own):.1f} points below lru."
    assert said in re.sub("</?span>", "", Path("one.html").read_text())
    assert "did you mean 'requests-64'?" in refusal(capsys, "report", "both", "--only", "request-64", "--out", "a.html")
    assert "--only chooses rows of a folder" in refusal(capsys, "report", "prose-256", "--only", "x", "--out", "a.html")


def test_what_is_left_out_of_a_ledger_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is replayed; the file stays as it is."""
    assert main(["sweep", "python-256", "--bank", "64,128", "--contract", "atomic", "--out", "swept"]) == 0
    ledger = Path("swept/ledger.ndjson")
    ledger.write_bytes(ledger.read_bytes()[:-9])
    torn = ledger.read_bytes()
    capsys.readouterr()
    assert main(["report", "swept", "prose-256", "--out", "r.html"]) == 2
    assert "sim: swept/ledger.ndjson: its last line is torn, so its row is left out" in capsys.readouterr().err
    assert ledger.read_bytes() == torn
