"""`sim ceilings`: a table that fits a terminal, then the verdict; JSON is the value of the Python function."""

from __future__ import annotations

import json

import pytest

from flashmoe_sim.ceilings.speed import ceilings
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.question import ConditionOptions
from flashmoe_sim.sweep.plan import plan_conditions, plan_setup
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.verbs.given import workload_of
from tests.support import document, printed_by, refusal

PHONE = ("gemma-4-26b-phone", "--bank", "32", "--contract", "atomic", "--machine", "phone-ufs4", "--dense", "2GiB")


def test_json_is_the_value_of_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--policy", "fifo", "--prefetch", "markov", "--execution", "overlap-prefetch", "--lookahead", "4"]
    answer = document(capsys, "ceilings", *PHONE, *options, "--hot", "--direct-io", "--kv", "100MiB")
    setup = plan_setup(32, policy="fifo", contract="atomic", prefetch="markov")
    conditions = plan_conditions(
        setup, ConditionOptions(execution="overlap-prefetch", dense="2GiB", kv="100MiB", direct_io=True, hot=True)
    )
    workload = workload_of("gemma-4-26b-phone")
    found = ceilings(workload, setup, load_machine("phone-ufs4"), conditions, lookahead=4)
    assert answer["ceilings"] == json.loads(json.dumps(found.to_dict()))
    assert answer["identity"]["prefetch"] == "markov"
    assert [row["name"] for row in answer["ceilings"]["rows"]][-1] == "bandwidth limit"
    assert all(row["meaning"].endswith(".") for row in answer["ceilings"]["rows"])


def test_the_verdict_follows_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    table, verdict = printed_by(capsys, "ceilings", *PHONE, quiet=False).split("\n\n")
    assert table.splitlines()[0].startswith("gemma-4-26b-phone on phone-ufs4: lru, bank 32")
    assert "\nbandwidth limit: compute\nstock: " in table
    assert " ".join(verdict.split()).startswith("Computing holds it back (free layers, experts and slot lookups: ")


def test_this_is_what_replay_says(capsys: pytest.CaptureFixture[str]) -> None:
    this = document(capsys, "ceilings", *PHONE)["ceilings"]["rows"][0]
    replayed = document(capsys, "replay", *PHONE)
    timing, counts = replayed["timing"], replayed["counts"]
    assert [this["tok_s"], this["tok_s_lo"], this["tok_s_hi"]] == [
        timing["tok_s"],
        timing["tok_s_lo"],
        timing["tok_s_hi"],
    ]
    assert [this["reads_per_token"], this["bytes_per_token"], this["hit_rate"]] == [
        counts["misses_per_token"],
        counts["bytes_per_token"],
        counts["hit_rate"],
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        "python-256 --bank 64 --machine vm-2core --dense 10MiB --policy static",
        "python-256 --bank 1 --contract atomic --machine rtx-5090 --dense 1MiB",
        "python-256 --bank 1 --contract sequential --machine vm-2core --dense 3GiB --lookahead 2147483647",
        "qwen3-30b-mlx --bank 32 --machine rtx-5090 --dense 1GiB --contract atomic --policy hot-window",
        "deepseek-v2-lite --bank 1GiB --machine m5-max-128 --dense 30GiB --contract atomic --scope global",
        "gpt-oss-120b --bank 16 --machine m2-16 --dense 2GiB --prefetch next-layer --execution overlap-prefetch",
    ],
)
def test_it_fits_80_columns(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    out = printed_by(capsys, "ceilings", *arguments.split(), quiet=False)
    assert max(map(len, out.splitlines())) <= 80
    assert not any(word in out for word in ("…", "None", "nan", "inf", "e+"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("python-256 --bank 64", "Missing option '--machine'"),
        ("python-256 --machine vm-2core", "Missing option '--bank'"),
        ("python-256 --bank 64 --machine m99", "unknown machine 'm99'"),
        ("python-256 --bank 64 --machine vm-2core --dense 5", "--dense '5': expected a size with its unit"),
        ("python-256 --bank 64 --machine vm-2core --dense 1GiB --execution fast", "unknown execution model 'fast'"),
        (
            "python-256 --bank 64 --machine vm-2core --dense 1GiB --execution hot-cold",
            "needs [gpu], [cpu] with",
        ),
        ("python-256 --bank 64 --machine vm-2core --dense 99GiB", "do not fit vm-2core"),
        ("python-256 --bank 4 --machine vm-2core --dense 1GiB", "slot-bank overflow"),
        ("python-256 --bank 64 --machine vm-2core --dense 1GiB --hot", "hot_share is not known"),
        ("python-256 --bank 64 --machine vm-2core --dense 1GiB --lookahead -1", "--lookahead"),
        ("python-256 --bank 64 --machine vm-2core --dense 1GiB --policy min", "undefined under the contract protected"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: str, says: str) -> None:
    assert says in refusal(capsys, "ceilings", *arguments.split())


def test_a_sidecar_does_not_tell_its_dense_weights(capsys: pytest.CaptureFixture[str]) -> None:
    entry = catalog()["python-256"]
    asked = ("ceilings", entry.path, "--model", entry.model, "--bank", "64", "--machine", "vm-2core")
    assert "give them (--dense 5GiB)" in refusal(capsys, *asked)
