"""Speeds by hand, formats by their content, what is measured once, and files that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import BadInput, Malformed, Missing, OutOfRange, UnknownName, Unusable
from flashmoe_sim.measured import Measured, distinct, missing, read_measured, with_layers
from flashmoe_sim.measured.read import FORMATS
from flashmoe_sim.measured.value import quant_of
from flashmoe_sim.systems.placed import on_cpu
from flashmoe_sim.systems.table import parse_system
from tests.measured.test_other_engines import BMOE_CSV, PRINTED
from tests.support import refused

FILES = sorted(path for path in (Path(__file__).parent / "files").iterdir() if path.name != "README.md")
SAMPLES = sorted((Path(__file__).parents[2] / "data" / "measured").glob("*.[jl]*"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("placed:cpu_layers=24=28.1", Measured(where="", system="placed:cpu_layers=24", tok_s=28.1)),
        ("all-gpu=58.8", Measured(where="", system="all-gpu", tok_s=58.8)),
        ("all-gpu=58.8 tok/s", Measured(where="", system="all-gpu", tok_s=58.8)),
        ("llama.cpp --n-cpu-moe 28 = 25 t/s", Measured(where="", system="placed:cpu_layers=28", tok_s=25)),
        ("-ot exps=CPU = 12 tok/s depth=64", Measured(where="", system="placed:ot=exps=CPU", tok_s=12, depth=64)),
        ("cpu=5t/s depth=64", Measured(where="", system="cpu", tok_s=5.0, depth=64)),
        ("placed-ik:ot=exps=CPU=7 prompt", Measured(where="", system="placed-ik:ot=exps=CPU", tok_s=7.0, prompt=True)),
        (
            "cpu=5 depth=32768 quant=Q4_K_M model=x tokens=128 sd=0.02",
            Measured(where="", system="cpu", tok_s=5.0, depth=32768, quant="Q4_K_M", model="x", tokens=128, sd=0.02),
        ),
    ],
)
def test_by_hand(text: str, expected: Measured) -> None:
    (found,) = read_measured(text)
    assert found.where == f"--measured {text!r}"
    assert distinct([found, expected]) == [found]
    assert missing(found) == ""


@pytest.mark.parametrize(
    ("text", "line", "kind"),
    [
        ("placed:cpu_layers=24", "has no speed after placed:cpu_layers=24; write for example", Malformed),
        ("12.3 tokens/s", "does not end its system with = and tok/s; write for example placed:cpu_layers", Malformed),
        ("placed=fast", "does not end its system with = and tok/s; write for example placed:cpu_layers=24=", Malformed),
        ("nonsense=5", "unknown system 'nonsense'", UnknownName),
        ("placed:slots=4=5", "'slots=4' is not a parameter", UnknownName),
        ("all-gpu=0", "decode speed of 0.0 tok/s", OutOfRange),
        ("all-gpu=-5", "decode speed of -5.0 tok/s", OutOfRange),
        ("all-gpu=1e999", "decode speed of inf tok/s", OutOfRange),
        ("all-gpu=nan", "does not end its system with = and tok/s", Malformed),
        ("all-gpu=5e5", "at most 100,000", OutOfRange),
        ("all-gpu=5 deph=3", "unknown word of --measured 'deph'; did you mean 'depth'?", UnknownName),
        ("all-gpu=5 depth=3 depth=4", "has depth twice", Malformed),
        ("all-gpu=5 depth", "has 'depth'; write for example", Malformed),
        ("all-gpu=5 depth=", "has 'depth='; write for example", Malformed),
        ("all-gpu=5 prompt=1", "has 'prompt=1'; write for example", Malformed),
        ("all-gpu=5 depth=-1", "has depth '-1'; expected a number of tokens", Malformed),
        ("all-gpu=5 sd=2", "has sd '2'; expected a part of the speed", Malformed),
    ],
)
def test_by_hand_and_wrong(text: str, line: str, kind: type[BadInput]) -> None:
    with refused(kind, line):
        read_measured(text)


def test_every_format_has_a_file_that_no_format_before_it_claims() -> None:
    claims = []
    for path in FILES:
        text = path.read_text("utf-8")
        claims.append(next((entry.name for entry in FORMATS if entry.detect(text)), path.name))
        assert read_measured(path), path
    claims += [next(entry.name for entry in FORMATS if entry.detect(text)) for text, *_ in PRINTED.values()]
    claims.append(next(entry.name for entry in FORMATS if entry.detect(BMOE_CSV.read_text("utf-8"))))
    assert set(claims) >= {entry.name for entry in FORMATS} - {"llama-bench -o json or jsonl", "llama-bench -o sql"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "is empty; expected a file that an engine or a benchmark printed"),
        (b"hello\n", "is of no known format; known: llama-bench -o json or jsonl, "),
        (b"hello\n", "give a speed by hand: --measured SYSTEM=TOK/S"),
        (b"GGUF\0\0\0", "is a binary file"),
        (b"model,tok_s\nx,5\n", "is of no known format"),
    ],
)
def test_files_that_are_none(content: bytes, line: str, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(content)
    with refused(Malformed, line):
        read_measured(tmp_path / "f.txt")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="no such file"):
        read_measured(str(tmp_path / "none.json"))
    with pytest.raises(Unusable, match="is a directory"):
        read_measured(tmp_path)


def test_a_measurement_counts_once(tmp_path: Path) -> None:
    """A copy of a file, a table pasted twice, and the same speed by hand twice; but not two requests in a log."""
    table = (FILES[0].parent / "bench.md").read_text()
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(table + "\n" + table)
    twice = [*read_measured(tmp_path / "a.md"), *read_measured(tmp_path / "b.md")]
    once = read_measured(FILES[0].parent / "bench.md")
    assert len(twice) == 4 * len(once)
    assert [one.tok_s for one in distinct(twice)] == [one.tok_s for one in once]
    assert len(distinct([*read_measured("cpu=5"), *read_measured("cpu=5 "), *read_measured("cpu=6")])) == 2


DAMAGED = {path.name: path.read_bytes() for path in FILES} | {name: PRINTED[name][0].encode() for name in PRINTED}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_all_over(name: str, tmp_path: Path) -> None:
    """Cut off, with a bit flipped or a byte replaced at 40 or 100 places, a file is refused in one line, or read."""
    data, target = DAMAGED[name], tmp_path / name
    step = max(1, len(data) // (40 if name in PRINTED else 100))
    for at in range(0, len(data), step):
        for damaged in (
            data[:at],
            data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :],
            data[:at] + b"9" + data[at + 1 :],
        ):
            target.write_bytes(damaged)
            found, message = [], str(target)
            try:
                found = read_measured(target)
            except BadInput as error:
                message = str(error)
            assert str(target) in message
            assert "\n" not in message
            for one in found:
                assert 0 < one.tok_s <= 1e7
                assert one.system == "" or parse_system(one.system)


@pytest.mark.parametrize(
    ("file", "model_type", "quant"),
    [
        ("models/Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "qwen3moe 30B.A3B Q4_K - Medium", "UD-Q4_K_XL"),
        ("gpt-oss-120b-mxfp4-00001-of-00003.gguf", "", "MXFP4"),
        ("", "gpt-oss 120B MXFP4 MoE", "MXFP4"),
        ("", "qwen3moe 30B.A3B Q4_K - Medium", "Q4_K_M"),
        ("", "llama 7B Q3_K - Small", "Q3_K_S"),
        ("", "llama 7B Q2_K - Medium", "Q2_K"),
        ("", "glm4moe 106B.A12B IQ4_XS - 4.25 bpw", "IQ4_XS"),
        ("", "llama 7B Q8_0", "Q8_0"),
        ("C:\\models\\Qwen3-Q8_0\\model.gguf", "", ""),
        ("sha256-dd3af152229f92a3", "", ""),
    ],
)
def test_quantizations(file: str, model_type: str, quant: str) -> None:
    assert quant_of(file, model_type) == quant


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_are_published_speeds(path: Path) -> None:
    """The numbers of data/measured/README.md."""
    found = [with_layers(one, 36) for one in read_measured(path)]
    speeds = {
        "gpt-oss-120b-rtx-4070.json": [427.92, 23.36],
        "gpt-oss-120b-rtx-4070-slow-ram.log": [191.71, 10.95],
        "gpt-oss-20b-m5-max.log": [101.39],
    }[path.name]
    assert [round(one.tok_s, 2) for one in found] == speeds
    if "120b" in path.name:
        assert {one.quant for one in found} == {"MXFP4"}


def test_the_sample_s_overrides_place_layers_of_the_model() -> None:
    (_, decode) = read_measured(next(path for path in SAMPLES if path.suffix == ".json"))
    assert on_cpu(load_model("gpt-oss-120b"), decode.settings["overrides"]) == set(range(5, 36))
