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


def test_a_sidecar_does_not_tell_its_dense_weights(capsys: pytest.CaptureFixture[str]) -> None:
    entry = catalog()["python-256"]
    asked = ("ceilings", entry.path, "--model", entry.model, "--bank", "64", "--machine", "vm-2core")
    assert "give them (--dense 5GiB)" in refusal(capsys, *asked)
