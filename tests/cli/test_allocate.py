"""`sim allocate`: the same as from Python, and a bank that `sim replay` takes."""

from __future__ import annotations

import json

import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.version import version


def test_json_is_what_python_says(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--contract", "atomic", "--machine", "m3-max-48", "--json"]
    assert main(["allocate", "gemma-4-26b-phone", "--bank", "32", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    found = sim.allocate("gemma-4-26b-phone", bank=32, contract="atomic", machine="m3-max-48")
    assert found.speed is not None
    python = json.loads(json.dumps(found.to_dict()))
    assert told == {"identity": told["identity"], **python, "version": version()}
    assert told["identity"]["bank"] == "32"
    speed = told["speed"]
    assert speed["gain"] == speed["tok_s"] / speed["asked_tok_s"] - 1
    assert speed["gain_lo"] < speed["gain"] < speed["gain_hi"]
    assert speed["gain_hi"] - speed["gain_lo"] < speed["tok_s_hi"] / speed["tok_s_lo"] - 1

    assert main(["replay", "gemma-4-26b-phone", "--bank", told["bank"], *options]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["counts"]["misses"] == told["misses"]
    assert replayed["counts"]["bytes_read"] == told["miss_bytes"]
    assert replayed["timing"]["tok_s"] == speed["tok_s"]
    identity = replayed["identity"]
    assert (identity["bank"], identity["bank_slots"], identity["bank_bytes"]) == (told["bank"], None, told["bytes"])


def test_the_table_and_the_bank(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["allocate", "python-256", "--bank", "64", "--machine", "vm-2core", "--dense", "1GiB"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert last.strip() == f"--bank {sim.allocate('python-256', bank=64).bank}"
    assert any(line.split()[:5] == ["all", "384", "384", "10,834", "10,688"] for line in lines)


def test_a_sweep_of_banks_by_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "python-256", "--bank", "32,0-5:64,0-2:64+3-5:32", "--policy", "lru,min", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["bank"] for row in rows[::2]] == ["32", "0-2:64+3-5:32", "0-5:64"]
    assert [row["bank_slots"] for row in rows[::2]] == [32, None, None]
    assert [row["bank_bytes"] for row in rows[::2]] == [None, 288 * 13056, 384 * 13056]
    assert [row["union_over_slots_p50"] for row in rows[::2]] == [8 / 32, None, 8 / 64]
    equal = sim.replay("python-256", bank=64).row(0, named=True)
    assert {name for name in equal if equal[name] != rows[4][name]} == {
        *("id", "bank", "bank_slots", "bank_bytes", "best_hit_rate", "best_bytes_per_token")
    }


def test_a_hit_rate_has_no_layers() -> None:
    with pytest.raises(BadInput, match="a hit rate covers all layers, so slots by layer mean nothing"):
        sim.predict(hit_rate=0.9, bank="0-47:8", model="qwen3-30b-a3b", machine="m3-max-48")


@pytest.mark.parametrize(
    ("bank", "says"),
    [
        ("0-4:64", "has no slots for layer 5, which python-256 routes; name exactly the layers of the trace"),
        ("0-6:64", "has slots for layer 6, which python-256 does not route; name exactly the layers of the trace"),
        ("0-5:300", "a layer of python-256 has 256 experts; give at most 256 slots"),
    ],
)
def test_layers_that_are_not_those_of_the_trace(bank: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "python-256", "--bank", bank]) == 2
    assert says in capsys.readouterr().err
