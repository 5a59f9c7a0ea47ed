"""`sim policy`: the list and what is said of each, and of each predictor."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.policies.base import ALL_CONTRACTS
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.sweep import plan
from tests.support import document, printed_by, refusal

FORESEEING = {"static", "min", "lookahead", "hot-profile", "bounded-swaps"}


def test_list_names_every_policy_and_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed_by(capsys, "policy", "list")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in POLICIES] == list(POLICIES)
    assert next(line for line in lines if line.startswith("min ")).split()[1:3] == ["atomic,", "sequential"]
    assert max(map(len, lines)) <= 80
    assert "…" not in out


def test_list_json(capsys: pytest.CaptureFixture[str]) -> None:
    listed = document(capsys, "policy", "list")["policies"]
    assert [entry["name"] for entry in listed] == list(POLICIES)
    for entry in listed:
        policy = POLICIES[entry["name"]]
        assert entry["parameters"] == {item.name: item.default for item in fields(policy)}
        assert set(entry["contracts"]) <= set(ALL_CONTRACTS)
        assert entry["hindsight"] == (entry["name"].split(":")[0] in FORESEEING)
        for key, value in entry["parameters"].items():
            assert parse_policy(f"{entry['name']}:{key}={value}") == policy()


OWN = """
from flashmoe_sim.policies.lfu import Lfu
from flashmoe_sim.policies.lru import Lru

class Mine(Lru):
    name = "mine"

class Told(Mine):
    ties = "older last use"

class Counting(Lfu):
    name = "counting"
"""


def test_ties_of_an_own_policy_are_said_only_if_it_says_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_ties.py").write_text(OWN)
    assert "ties:" not in printed_by(capsys, "policy", "show", "own_ties:Mine")
    for name, ties in (
        ("own_ties:Told", "older last use"),
        ("own_ties:Counting", "older last use, then lower expert number"),
        ("lru", "none possible"),
    ):
        assert f"ties: {ties} contracts:" in " ".join(printed_by(capsys, "policy", "show", name).split())


SHOWN = [("policy", name) for name in POLICIES] + [("prefetch", name) for name in PREFETCHERS]


@pytest.mark.parametrize(("group", "name"), SHOWN)
def test_show_says_all(capsys: pytest.CaptureFixture[str], group: str, name: str) -> None:
    described = document(capsys, group, "show", name)
    assert described["summary"].endswith(".")
    assert group == "prefetch" or (described["source"] and described["ties"])
    out = printed_by(capsys, group, "show", name)
    words, facts = " ".join(out.split()), [described[fact] or "" for fact in ("rule", "ties", "lead", "source")]
    for text in (*facts, ", ".join(described["contracts"])):
        assert " ".join(text.split()) in words
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("columns", ["20", "40", "60"])
def test_names_stay_whole_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    words = printed_by(capsys, "policy", "list").split()
    assert set(POLICIES) <= set(words)
    assert "…" not in " ".join(words)


def test_judged_policies_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["judge", "python-256", "prose-256", "--bank", "32", "--policy", "lfu-decay,second-miss"]
    for more in ([], ["--machine", "rtx-3090", "--execution", "hot-cold"]):
        out = printed_by(capsys, "policy", *asked, "--contract", "atomic", *more)
        assert max(map(len, out.splitlines())) <= 80
        assert "python-256; prose-256: against lru" in out
        assert "2 of 2" in out
        assert (" gain " in out) == bool(more)


def test_a_policy_judged_under_another_contract_has_a_star(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("policy", "judge", "prose-256", "--bank", "32", "--policy", "lfu-decay,min")
    printed = printed_by(capsys, *asked)
    assert " min* " in printed
    assert "lfu-decay*" not in printed
    assert "*: under atomic" in " ".join(printed.split())
    assert "*" not in printed_by(capsys, *asked, "--contract", "atomic")


def test_a_bank_without_a_choice_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The tokens of python-256 have 8 experts a layer."""
    asked = ("policy", "judge", "python-256", "--bank", "8,16", "--policy", "lfu-decay")
    printed = " ".join(printed_by(capsys, *asked).split())
    assert "no difference in a bank of 8: one that holds a single call leaves no choice" in printed


def test_a_fit_in_a_table_as_json_and_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "fitted.csv"
    asked = ["policy", "fit", "python-256", "prose-256", "--bank", "32", "--policy", "lfu-decay"]
    assert main([*asked, "--values", "half_life=16,64", "--values", "stamp=first"]) == 0
    title, heading, _, *lines = capsys.readouterr().out.splitlines()
    assert title == "lfu-decay: half_life=16,64; stamp=first"
    assert heading.split()[:4] == ["bank", "judged", "on", "fitted"]
    assert [line.split()[1] for line in lines[:2]] == ["python-256", "prose-256"]
    assert max(map(len, lines)) <= 80
    found = document(capsys, *asked, "--values", "half_life=16,64", "--out", out)
    assert (found["candidates"], len(found["rows"])) == (2, 2)
    assert out.read_text().startswith("trace,fitted_on,policy,bank,against,")
    assert refusal(capsys, *asked) == "sim: no values to try; give --values NAME=V,V, such as half_life=4,16,64\n"


def test_victims_in_a_table_and_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["policy", "victims", "prose-256", "--bank", "12.5%"]
    title, heading, _, *lines = printed_by(capsys, *asked, "--by", "layer").splitlines()
    assert (title, heading.split()[:3]) == ("prose-256", ["bank", "policy", "layer"])
    assert max(map(len, lines)) <= 80
    assert "policy static chooses no victims" in refusal(capsys, *asked, "--policy", "static", "--json")
    assert main([*asked, "--policy", "lru,static"]) == 0
    assert "left out: static: policy static chooses no victims" in capsys.readouterr().err
    monkeypatch.setattr(plan, "POLICIES", ("static", "lru"))
    found = document(capsys, *asked, "--policy", "all")
    assert [row["policy"] for row in found["rows"]] == ["lru"]
    assert "policy static chooses no victims" in found["warnings"][0]


def test_policies_are_judged_on_several_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In a table for each, of which all fit 80 columns; a figure names the machine in its rows."""
    asked = ["policy", "judge", "gpt-oss-120b", "--bank", "16", "--policy", "fifo,lfu", "--execution", "hot-cold"]
    on = ["--machine", "rtx-3090,rtx-4090"]
    text = printed_by(capsys, *asked, *on, "--out", tmp_path / "judged.svg")
    titles = [line for line in text.splitlines() if line.startswith("gpt-oss-120b: against lru on ")]
    assert [title.rpartition(" ")[2] for title in titles] == ["rtx-3090", "rtx-4090"]
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("corrected for 4 comparisons") == 2
    drawn = (tmp_path / "judged.svg").read_text()
    assert all(f"fifo, 16, {machine}" in drawn for machine in ("rtx-3090", "rtx-4090"))
    rows = document(capsys, *asked, *on)["rows"]
    assert [(row["policy"], row["machine"]) for row in rows] == [
        (policy, machine) for policy in ("fifo", "lfu") for machine in ("rtx-3090", "rtx-4090")
    ]


def test_judged_policies_as_json_and_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "judged.csv"
    asked = ["policy", "judge", "python-256", "--bank", "32", "--policy", "fifo", "--out", str(out), "--json"]
    document = json.loads(printed_by(capsys, *asked, "--skip-steps", "100"))
    assert (document["confidence"], document["skip_steps"], len(document["rows"])) == (0.95, 100, 1)
    assert out.read_text().startswith("trace,traces,policy,prefetch,bank,against,")
    assert "exists" in refusal(capsys, *asked)


def test_judged_policies_are_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In the file that is asked for; a verb without a figure takes no picture."""
    out = tmp_path / "judged.svg"
    asked = ["policy", "judge", "python-256", "--bank", "32", "--policy", "fifo", "--out", str(out)]
    printed_by(capsys, *asked)
    assert "Policies against lru on python-256, bank 32" in out.read_text()
    assert "exists" in refusal(capsys, *asked)
    fit = ("policy", "fit", "python-256", "--bank", "32", "--policy", "lfu-decay", "--values", "half_life=4,8")
    assert "ends in .csv, .parquet or .tex" in refusal(capsys, *fit, "--out", str(out))


def test_judged_tables_are_written_for_latex(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "judged.tex"
    asked = ("policy", "judge", "python-256", "--bank", "16", "--policy", "lfu-decay,fifo", "--out", str(out))
    shown = printed_by(capsys, *asked)
    lines = out.read_text().splitlines()
    assert lines[0] == "% needs \\usepackage{booktabs}"
    rows = [line.removesuffix(r" \\").split(" & ") for line in lines if line.endswith(r" \\")]
    assert rows[0][:3] == ["bank", "policy", r"hit \%"]
    assert [row[1] for row in rows[1:]] == ["lfu-decay", "fifo"]
    assert all(cell in shown for row in rows[1:] for cell in row)
    assert "exists" in refusal(capsys, *asked)
