"""Hit curves as they are published."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput, Malformed, OutOfRange, TooLarge, Unusable
from flashmoe_sim.trace.synth_curve import check_hit_points, read_hit_points
from tests.support import refused


def test_written_out() -> None:
    assert read_hit_points("64:0.818, 16:58.8%,32: 0.728") == {16: 0.588, 32: 0.728, 64: 0.818}
    assert read_hit_points("8:1") == {8: 1.0}


@pytest.mark.parametrize(
    "text",
    [
        "bank,tok_s,hit_pct,condition\n16,46.9,58.8,a run\n32,51.9,72.8,\n",
        "slots,hit_rate\n32,0.728\n16,0.588\n",
        '\ufeffhit_rate,"bank"\r\n0.588,16\r\n0.728,"32"\r\n',
        "Slots;Hit_Pct\n16;58.8\n32;72.8\n",
        "bank\thit rate (%)\n16\t58.8\n32\t72.8%\n",
        "bank,hit_rate\n16,58.8%\n32,0.728\n",
        "Measured:\n\n| Bank | **Hit %** |\n|---:|:--|\n| 16 | 58.8 |\n| `32` | **72.8%** |\n\nand more words.\n",
    ],
)
def test_a_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(text, newline="")
    assert read_hit_points(path) == read_hit_points(str(path)) == pytest.approx({16: 0.588, 32: 0.728})


@pytest.mark.parametrize(
    ("text", "found", "kind"),
    [
        ("", "no rows under its header", Malformed),
        ("bank,rate\n16,0.5\n", "begins with the columns 'bank, rate'; expected one of bank and slots, and", Malformed),
        ("bank,hit_pct,Hit %\n16,50,90\n", "the column hit_pct is there twice; leave one of them out", Malformed),
        ("bank,hit_pct\n1_6,50\n", ":2: found bank '1_6'", Malformed),
        ("bank,hit_pct,hit_rate\n16,50,0.5\n", "begins with the columns", Malformed),
        ("bank,hit_pct\n16,50\n32\n", "line 3: 1 cells; expected 2, as in the header", Malformed),
        ("bank,hit_pct\n16.5,50\n", ":2: found bank '16.5'", Malformed),
        ("bank,hit_pct\n16,nan\n", ":2: found bank '16' and hit_pct 'nan'", Malformed),
        ("bank,hit_rate\n16,58.8\n", "hit rate 58.8 at bank 16; expected 0 to 1", OutOfRange),
        ("bank,hit_pct\n16,50\n16,51\n", "bank 16 is there twice", Malformed),
        ("bank,hit_pct\n32,50\n16,51\n", "falls from 51.0% at bank 16 to 50.0% at 32; under LRU", Malformed),
        ("bank,hit_pct\n0,5\n", "a bank of 0 slots", OutOfRange),
        ("bank,hit_pct\n" + "16,5\n" * 10_001, "more than 10,000 rows", TooLarge),
        ("bank,hit_pct\n16,\xff\n", "not a CSV file", Malformed),
    ],
)
def test_bad_files(tmp_path: Path, text: str, found: str, kind: type[BadInput]) -> None:
    path = tmp_path / "curve.csv"
    path.write_bytes(text.encode("latin-1" if text.isascii() or "\xff" in text else "utf-8"))
    with refused(kind, found, begins=str(path)):
        read_hit_points(path)


@pytest.mark.parametrize(
    ("text", "found", "kind"),
    [
        ("16:0.5,32", "'32' is not slots:hit rate; expected 16:0.588,32:72.8%", Malformed),
        ("16:often", "'16:often' is not slots:hit rate", Malformed),
        ("16:1.01", "hit rate 1.01", OutOfRange),
        ("16:0.5,16:0.5", "bank 16 is there twice", Malformed),
        ("nowhere.csv", "nowhere.csv: No such file or directory; give a CSV file, or points such as", Unusable),
        ("no\0where.csv", "embedded null", Unusable),
        ("", "give a CSV file", Unusable),
    ],
)
def test_bad_points(text: str, found: str, kind: type[BadInput]) -> None:
    with refused(kind, found):
        read_hit_points(text)


def test_points_from_python() -> None:
    assert list(check_hit_points({32: 0.5, 16: 0.25}.items())) == [16, 32]
    with pytest.raises(Malformed, match="no points"):
        check_hit_points([])
