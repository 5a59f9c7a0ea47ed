"""The Python API says what the command line says, in tables, for words and objects alike."""

from __future__ import annotations

import doctest
import inspect as signatures
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from html import escape
from inspect import Parameter
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars
import pytest
from mypy import api as mypy_api

import flashmoe_sim.api as sim
from flashmoe_sim.cli import main as commands
from flashmoe_sim.io.errors import BadInput, Incomplete, Malformed, OutOfRange, Unsupported
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.prefetchers.last_call import Temporal
from flashmoe_sim.question import in_order
from flashmoe_sim.schema import LAYER_COLUMNS, RESULT_COLUMNS, Column
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.verbs.ceilings import Ceilings
from flashmoe_sim.verbs.compare import Compare
from flashmoe_sim.verbs.curve import Curve
from flashmoe_sim.verbs.diagnose import Diagnose
from flashmoe_sim.verbs.predict import Predict
from flashmoe_sim.verbs.recommend import Recommend
from flashmoe_sim.verbs.replay import Replay
from flashmoe_sim.verbs.sweep import Sweep
from flashmoe_sim.verbs.synth import Synth
from tests.policies.own import CELL, cell
from tests.support import document, refused

ONLY_IN_A_TERMINAL = {
    "full",
    "online",
    "out",
    "size",
    "to",
    "save",
    "force",
    "lenient",
    "as_json",
    "timeline",
    "all_layers",
    "dry_run",
    "why",
    "help_all",
}
ONLY_IN_A_TERMINAL |= {"dry_run", "in_chunks"}  # of a replay and a curve
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def prose() -> sim.Workload:
    return sim.load_trace("prose-256")


def test_results_are_short_in_a_notebook(prose: sim.Workload) -> None:
    found = sim.ceilings(prose, bank=32, machine="vm-2core", dense=2**30)
    assert found.table()["name"].to_list() == [row.name for row in found.rows]
    assert found.table()["tok_s"][0] == found.rows[0].tok_s
    diagnosis = sim.diagnose(prose, bank=32)
    misses = dict(diagnosis.table().iter_rows())
    assert sum(misses.values()) == 2 * misses["all"] == 2 * diagnosis.misses
    statistics = sim.inspect(prose)
    assert statistics.table()["union_max"].to_list() == [layer.union.max for layer in statistics.layers]
    for shown, says in ((found, found.verdict.text), (diagnosis, diagnosis.verdict.text), (statistics, "6 layers")):
        assert says in repr(shown)
        assert len(repr(shown)) < 600
        assert escape(says) in shown._repr_html_()
        assert "<table" in shown._repr_html_()
        assert "&quot;" not in shown._repr_html_()


def test_the_examples_of_the_docstrings() -> None:
    found = doctest.testmod(sim)
    assert found.attempted > 5
    assert found.failed == 0


@pytest.mark.parametrize(
    ("verb", "function"),
    [
        (Ceilings, sim.ceilings),
        (Compare, sim.compare),
        (Curve, sim.curve),
        (Diagnose, sim.diagnose),
        (Predict, sim.predict),
        (Recommend, sim.recommend),
        (Replay, sim.replay),
        (Sweep, sim.sweep),
        (Synth, sim.synth),
    ],
)
def test_a_verbs_fields_are_its_options_and_its_keywords(verb: Any, function: Any) -> None:
    context = click.Context(commands.sim)
    group = commands.sim if verb is not Synth else commands.sim.get_command(context, "trace")
    command = group.get_command(context, verb.__name__.lower())
    parameters = signatures.signature(function).parameters
    options = {one.name: one for one in command.params}
    in_a_terminal = {item.name for item in fields(verb) if item.metadata["on_command_line"]}
    shared = [item for item in in_order(verb) if item.name not in in_a_terminal]
    assert list(parameters) == [item.name for item in shared]
    assert in_a_terminal <= set(options) - set(parameters) <= ONLY_IN_A_TERMINAL
    for item in fields(verb):
        if item.name in in_a_terminal:
            assert options[item.name].help == item.metadata["help"]
            continue
        default = Parameter.empty if item.default is MISSING else item.default
        kind = Parameter.KEYWORD_ONLY if item.kw_only else Parameter.POSITIONAL_OR_KEYWORD
        assert (parameters[item.name].kind, parameters[item.name].default) == (kind, default)
        if item.metadata["in_python"]:
            continue
        assert options[item.name].required == (item.default is MISSING)
        if not item.metadata["positional"]:
            assert f"    {item.name}: {item.metadata['help'][:40]}" in (function.__doc__ or "")
            assert options[item.name].help == item.metadata["help"]


def test_a_type_checker_knows_every_keyword(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(
        "import flashmoe_sim.api as sim\n"
        'table = sim.compare("gpt-oss-120b", machine="rtx-4090", context=4096)\n'
        "table.height.bit_length()\n"
        'sim.compare("gpt-oss-120b", machine="rtx-4090", contxt=4096)\n'
        'sim.recommend("gpt-oss-120b", machine="rtx-4090", context="4k")\n'
    )
    output, _, failed = mypy_api.run(["--config-file", str(ROOT / "pyproject.toml"), str(script)])
    assert failed
    assert [line.split(":")[1] for line in output.splitlines() if "error" in line.split()[1]] == ["4", "5"]
    assert (
        'Unexpected keyword argument "contxt" for "Compare"' in output or '"contxt"; did you mean "context"' in output
    )


def test_a_purchase_needs_parts_to_exchange() -> None:
    with pytest.raises(Incomplete, match="in Python, buy=True"):
        sim.recommend("gpt-oss-120b", machine="rtx-4090", target=20)
    with pytest.raises(Unsupported, match="no part of it can be exchanged"):
        sim.recommend("gpt-oss-120b", machine="rtx-4090", buy=True)


@pytest.mark.parametrize(
    ("function", "given", "says"),
    [
        (
            sim.replay,
            {"bank": 64, "polcy": "lru"},
            r"replay\(\): .*'polcy'; did you mean 'policy'\? known: trace, bank, policy, ",
        ),
        (sim.replay, {"bank": 64, "lookahead": 4}, "'lookahead'; known: trace, bank, "),
        (
            sim.curve,
            {"bank": 64},
            r"curve\(\): .*'bank'; known: trace, policy, contract, io_split, sample, seed, model$",
        ),
        (sim.replay, {"policy": "lru"}, r"replay\(\): missing a required argument: 'bank'$"),
    ],
)
def test_a_wrong_keyword_is_named(function: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        function("python-256", **given)


def test_a_sweep_goes_on_with_its_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = sim.sweep("python-256", bank="16,64", out=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("flashmoe_sim.sweep.collect.run_passes", None)
        assert sim.sweep("python-256", bank="16,64", out=str(tmp_path)).equals(table)
    os.truncate(tmp_path / "ledger.ndjson", (tmp_path / "ledger.ndjson").stat().st_size - 1)
    with pytest.warns(UserWarning, match="its last line was torn"):
        assert sim.sweep("python-256", bank="16,64", out=tmp_path, threads=1).equals(table)


def schema_of(columns: tuple[Column, ...]) -> dict[str, Any]:
    types = {"str": polars.String, "int": polars.Int64, "float": polars.Float64}
    return {column.name: types[column.dtype] for column in columns}


def test_a_replay_is_that_of_the_command_line(capsys: pytest.CaptureFixture[str], prose: sim.Workload) -> None:
    words = ["--bank", "32", "--policy", "fifo", "--prefetch", "temporal", "--io-split", "2"]
    answer = document(capsys, "replay", "prose-256", *words)
    asked: dict[str, Any] = {"bank": 32, "policy": "fifo", "prefetch": "temporal", "io_split": 2}
    (row,) = sim.replay(prose, **asked).to_dicts()
    assert {name: row[name] for name in answer["identity"] | answer["counts"]} == answer["identity"] | answer["counts"]
    layers = sim.replay(prose, **asked, by="layer")
    assert dict(layers.schema) == schema_of(LAYER_COLUMNS)
    for found, layer in zip(layers.to_dicts(), answer["layers"], strict=True):
        assert {name: found[name] for name in layer} == layer
        assert found["id"] == row["id"]
    assert layers["misses"].sum() == row["misses"]


@pytest.mark.parametrize("policy", ["lru", "min", "static"])
def test_a_curve_is_that_of_the_command_line(
    capsys: pytest.CaptureFixture[str], prose: sim.Workload, policy: str
) -> None:
    rows = document(capsys, "curve", "prose-256", "--policy", policy)["curve"]
    table = sim.curve(prose, policy=policy)
    assert dict(table.schema) == schema_of(RESULT_COLUMNS)
    found = table.with_columns(polars.col("bank").cast(polars.Int64)).select(list(rows[0]))
    assert found.to_dicts() == rows
    swept = sim.sweep(prose, bank="64", policy=policy, contract="atomic")
    assert table.filter(polars.col("bank") == "64")["id"].item() == swept["id"].item()


@pytest.mark.parametrize(
    "given",
    [
        {"bank": 64},
        {"bank": np.int64(64)},
        {"bank": sim.Bank(slots=64)},
        {"bank": [64]},
        {"bank": ["64", sim.Bank(slots=64)]},
        {"bank": range(64, 65)},
        {"bank": "64..64", "bank_step": "16"},
        {"policy": Lru},
        {"policy": Lru()},
        {"policy": [Lru(), "lru", Lru]},
        {"policy": ("lru", "lru")},
        {"policy": " lru "},
        {"prefetch": Temporal(), "contract": "runtime"},
        {"prefetch": Temporal, "contract": "runtime"},
        {"prefetch": [Temporal(), "temporal", Temporal], "contract": "runtime"},
        {"prefetch": "temporal, temporal", "contract": "runtime"},
        {"top_k": 8},
        {"top_k": [8]},
        {"model": catalog()["prose-256"].model},
    ],
    ids=str,
)
def test_words_and_objects_mean_the_same(prose: sim.Workload, given: dict[str, Any]) -> None:
    words: dict[str, Any] = {"bank": "64", "policy": "lru", "contract": "protected"}
    if "prefetch" in given:
        words |= {"prefetch": "temporal", "contract": "runtime"}
    same_name = polars.exclude("trace")
    expected = sim.sweep(prose, **words).select(same_name)
    assert len(expected) == 1
    assert sim.sweep(prose, **(words | given)).select(same_name).equals(expected)


def test_a_trace_is_whatever_names_one(prose: sim.Workload, tmp_path: Path) -> None:
    path = catalog()["prose-256"].path
    assert sim.load_trace(prose) is prose
    model = catalog()["prose-256"].model
    assert model is not None
    for trace in ("prose-256", path, str(path), load_trace(path), prose):
        found = sim.replay(trace, bank=64, contract="protected", model=sim.load_model(model))
        assert found["hits"].item() == sim.replay(prose, bank=64, contract="protected")["hits"].item()
        assert found["bytes_read"].item() is not None
    assert sim.inspect(load_trace(path)).union == sim.inspect("prose-256").union
    assert sim.inspect(prose).n_experts_known
    assert sim.replay(path, bank=64)["bytes_read"].item() is None, "the model is the catalogue's, not the file's"
    assert repr(prose) == "<Workload prose-256: 1,039 tokens, 6 layers (tiny256)>"
    torn = tmp_path / "torn.jsonl"
    torn.write_text("[[0, 1], [0, 2]]\n[[0,")
    assert "torn" in sim.load_trace(torn).trace.notes[0]


def test_banks_are_swept_in_ascending_order_without_repeats(prose: sim.Workload) -> None:
    table = sim.sweep(prose, bank=[64, "8..64", 16], bank_step="x2", policy=["min", "lru"], contract="atomic")
    assert table["bank"].to_list() == ["8", "8", "16", "16", "32", "32", "64", "64"]
    assert table["policy"].to_list() == ["min", "lru"] * 4


def test_a_share_is_the_slots_that_it_stands_for(prose: sim.Workload) -> None:
    """A share of 256 experts, on models of unlike size in one table, and as an id of its own."""
    asked = {"policy": ["lru", "min", "static"], "contract": "atomic"}
    share, slots = (sim.sweep(prose, bank=bank, **asked) for bank in ("1/16,12.5%", "16,32"))
    assert share["bank"].to_list() == ["6.25%"] * 3 + ["12.5%"] * 3
    alike = [name for name in share.columns if name not in ("id", "bank")]
    assert share.select(alike).equals(slots.select(alike))
    assert not set(share["id"]) & set(slots["id"])
    several = sim.sweep(["prose-256", "gpt-oss-120b"], bank="25%", contract="atomic")
    assert several["bank_slots"].to_list() == [64, 32]


def test_a_policy_of_a_notebook_cell(prose: sim.Workload) -> None:
    """A class of `__main__` works, and once its cell is changed and run again, the new one is what runs."""
    hits = []
    for sign in (1, -1):
        mine = cell(CELL.replace("SIGN = 1", f"SIGN = {sign}"))["Mine"]
        table = sim.sweep(prose, bank=64, policy=["lru", mine, mine()], contract="sequential")
        assert table["policy"].to_list() == ["lru", "mine"]
        hits.append(table["hits"].to_list())
    (lru, oldest), (_, newest) = hits
    assert lru == oldest
    assert newest < oldest


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bank": 3.5}, "bank is 3.5; expected a text, a whole number, a Bank or a list"),
        ({"bank": []}, "bank ''"),
        ({"bank": [64, "8GiB"]}, "give all in slots, all in bytes or all as shares"),
        ({"policy": []}, "no policies given"),
        ({"policy": dict}, "expected a name, or a subclass of EvictingPolicy or PinningPolicy with a `name`"),
        ({"policy": 7}, "expected a name, or a subclass"),
        ({"prefetch": []}, "no predictors given; give at least one, such as none"),
        ({"prefetch": 7}, "predictor 7: expected a name, or a subclass of Prefetcher with a `name`"),
        ({"prefetch": dict}, "expected a name, or a subclass of Prefetcher with a `name`"),
        ({"prefetch": ["none", "eam"], "contract": "sequential"}, "eam is undefined under the contract sequential"),
        ({"top_k": 0}, "top-k '0': expected numbers"),
    ],
    ids=str,
)
def test_what_is_refused(prose: sim.Workload, given: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        sim.sweep(prose, **({"bank": 64} | given))


def test_a_class_that_is_no_whole_policy(prose: sim.Workload) -> None:
    mine = cell()["Mine"]
    parts = dict(mine.kernels)
    for lost, says in (("name", "with a `name`"), ("kernels", "mine: its `kernels` lack choose_victim, on_hit")):
        body = {name: value for name, value in vars(mine).items() if name != lost}
        with pytest.raises(Malformed, match=re.escape(says)):
            sim.replay(prose, bank=64, policy=type("Mine", (sim.EvictingPolicy,), body))
    del parts["choose_victim"]
    with pytest.raises(Malformed, match="mine: its `kernels` lack choose_victim"):
        sim.replay(prose, bank=64, policy=type("Mine", (mine,), {"kernels": parts}))


def test_a_sweep_warns_of_banks_that_do_not_fit_and_runs_the_others() -> None:
    with pytest.warns(UserWarning, match="left out of python-256: bank 4 with lru: .*slot-bank overflow"):
        table = sim.sweep("python-256", bank="4,16", contract="protected")
    assert table.select("bank", "bank_slots", "bank_bytes").rows() == [("16", 16, None)]
    with pytest.raises(OutOfRange, match="slot-bank overflow"):
        sim.sweep("python-256", bank=4, contract="protected")


TIMED = {"model": "gpt-oss-120b", "machine": "rtx-4090", "systems": "cpu"}
MADE = {"null": "uniform", "experts": 64, "top_k": 4, "tokens": 20}
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: sim.sweep([], bank=64), "no traces given; give at least one"),
    (lambda: sim.sweep("python-256", bank=64, threads=-1), "threads -1: expected at least 1"),
    (lambda: sim.sweep("python-256", bank=64, threads=0), "threads 0: expected at least 1"),
    (lambda: sim.sweep("python-256", bank=64, top_k=1.5), "top_k is 1.5; expected a text, a whole number or a list"),
    (lambda: sim.sweep("python-256", bank=64, top_k=[]), "top-k '': expected numbers of experts per token"),
    (lambda: sim.sweep("python-256", bank=64, contract=["atomic"]), "contract is ['atomic']; expected a text"),
    (lambda: sim.sweep("python-256", bank=64, io_split=1.5), "io_split is 1.5; expected a whole number"),
    (lambda: sim.sweep("python-256", bank=64, machine=3), "machine is 3; expected a text, a path, a Machine or"),
    (lambda: sim.replay(b"python-256", bank=64), "expected a text, a path, a RoutingTrace or"),
    (
        lambda: sim.replay(polars.DataFrame({"a": [1]}), bank=64),
        "expected a text, a path, a RoutingTrace or a Workload",
    ),
    (lambda: sim.replay("python-256", bank=64, by="x"), "by is 'x'; expected 'trace', 'layer', 'step' or 'request'"),
    (lambda: sim.inspect("python-256", banks=[1.5]), "banks is [1.5]; expected a list, each a whole number"),
    (
        lambda: sim.ceilings("python-256", machine="vm-2core", bank=64, lookahead=1.5),
        "lookahead is 1.5; expected a who",
    ),
    (lambda: sim.replay("python-256", bank=64, dense=True), "dense is True; expected a text or a whole number"),
    (lambda: sim.compare(**TIMED, context=4096.5), "context is 4096.5; expected a whole number"),
    (lambda: sim.compare(**TIMED, hit_rate=np.array([0.5, 0.6])), "hit_rate is array([0.5, 0.6]); expected a number"),
    (lambda: sim.synth(**MADE, layers=1.5), "layers is 1.5; expected a whole number"),
    (lambda: sim.load_model(3), "spec is 3; expected a text or a path"),
]


@pytest.mark.parametrize(("call", "found"), WRONG, ids=[found for _, found in WRONG])
def test_an_argument_of_another_kind_is_refused_in_one_line(call: Callable[[], Any], found: str) -> None:
    with refused(BadInput, found):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    whole: Any = np.int64
    given: dict[str, Any] = {"policy": "lru", "contract": "atomic"}
    cut = sim.sweep("python-256", bank=np.array([16, 64]), top_k=whole(4), threads=whole(1), **given)
    assert cut.equals(sim.sweep("python-256", bank=[16, 64], top_k=4, **given))
    assert sim.compare(**TIMED, hit_rate=np.float32(0.5), kv=whole(2 << 30)).equals(
        sim.compare(**TIMED, hit_rate=0.5, kv=2 << 30)
    )
    timed: dict[str, Any] = {"bank": 64, "machine": "vm-2core", **given}
    dense = [sim.replay("python-256", dense=number(1 << 20), **timed) for number in (int, whole)]
    assert dense[0].equals(dense[1])
    ahead = [sim.ceilings("python-256", lookahead=number(4), **timed).table() for number in (int, whole)]
    assert ahead[0].equals(ahead[1])
    made = [sim.synth(**MADE, layers=layers, seed=layers).trace for layers in (2, whole(2))]
    assert made[0].content_id == made[1].content_id
