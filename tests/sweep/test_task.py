"""The id of a row: change one field of one input, then either the id changes or nothing in the row does."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.drafts import Drafts
from flashmoe_sim.geometry.compute_buffers import GraphWidths
from flashmoe_sim.geometry.graph import Graph
from flashmoe_sim.geometry.model import Attention, LayerCache, LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Card, Machine, Network, Quantity
from flashmoe_sim.machines.normal_unknowns import Learnt
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.policies.hot_profile import TIMED, HotProfile
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.static import Static
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.hot import Hot
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.prefetchers.recorded import Recorded
from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.schema import COUNTS, TIMING
from flashmoe_sim.sweep import task
from flashmoe_sim.sweep.collect import sweep
from flashmoe_sim.sweep.task import Task, row_of, seconds
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy
from flashmoe_sim.timeline.models.sync_install import SyncInstall
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace
from flashmoe_sim.trace.store import write_store
from tests.machines.builders import FULL
from tests.policies.own import CELL, cell
from tests.residency.builders import random_calls, trace_of
from tests.support import document

RESULTS = [column.name for column in (*COUNTS, *TIMING) if column.name not in ("machine", "execution")]


@dataclass(frozen=True, eq=False)
class Inputs:
    """Everything that a row is of."""

    trace: RoutingTrace
    geometry: ModelGeometry | None
    setup: Setup
    machine: Machine
    conditions: Conditions

    @property
    def workload(self) -> Workload:
        return Workload(self.trace, self.geometry)

    @property
    def task(self) -> Task:
        return Task(self.workload, self.setup, self.machine, self.conditions)

    @property
    def id(self) -> str | None:
        return self.task.strong_id

    def row(self) -> dict[str, Any]:
        workload = self.workload
        replayed = replay(workload, self.setup, record=True)
        timed = time_replay(workload, replayed, self.machine, self.conditions)
        row = row_of(self.task, replayed.counts.total() | seconds(self.task, timed))
        assert row["id"] == self.id
        return {name: row[name] for name in RESULTS}


def full_trace() -> RoutingTrace:
    """A trace with every field recorded: two texts, each of a prompt and decoded tokens."""
    calls = random_calls(np.random.default_rng(3), n_experts=8, layers=2, steps=24, width=3)
    trace = trace_of(calls, 8)
    step = np.arange(trace.calls, dtype=np.int32) // 2
    return trace.with_(
        top_k=3,
        weight=np.linspace(0, 1, trace.refs, dtype=np.float32),
        slot=np.zeros(trace.refs, np.int16),
        resident=np.zeros(trace.refs, np.uint8),
        phase=np.where(step % 12 < 3, PHASE_PROMPT, PHASE_DECODE).astype(np.uint8),
        sequence=(step // 12).astype(np.int32),
        step=step,
        n_text=trace.n_tokens.copy(),
        expert_bytes={0: 3 << 20, 1: 5 << 20},
        dense_bytes={0: 1 << 20, 1: 2 << 20},
        format="a format",
        notes=("a note",),
    )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    cpu = '[cpu]\nweights_gb_s = { value = 40, source = "bench", condition = "Q4_0" }\n'
    (tmp_path / "full.toml").write_text(FULL.replace("[cpu]\n", cpu))
    learnt = Learnt(
        ("engines", "cpu.weights_gb_s"), np.array([0.5, 0.0]), np.array([[0.6, 0.2], [0.2, 1.0]]), ("a speed",)
    )
    cards = (Card("a", 8.0, 400.0, 20.0, 10.0),)
    number = Quantity(1.0, 0.5, 2.0, "bench", "TCP")
    joined = {"machines": 2, "network": Network(number, number), "unseen": ("a GPU",)}
    return replace(load_machine(tmp_path / "full.toml"), learnt=learnt, cards=cards, **joined)


@pytest.fixture
def inputs(machine: Machine) -> Inputs:
    layers = {number: LayerGeometry(8, {"gate_up": 2 << 20, "down": (number + 1) << 20}) for number in range(2)}
    attention = Attention((LayerCache(64, 64, 128, 16),))
    graph = Graph(**{item.name: 1 for item in fields(Graph)})
    model = ModelGeometry("toy", layers, 3, "tests", "arch", "q4", 7 << 20, ("a note",), attention, graph=graph)
    model = replace(model, widths=GraphWidths(256, 64, 32))
    drafts = Drafts(2, 0.5, "mtp", token_bytes=1 << 20, layers=1, kept_bytes=1 << 20, call_us=3.0)
    conditions = Conditions(dense_bytes=None, kv_bytes=1 << 20, drafts=drafts)
    return Inputs(full_trace(), model, Setup(Bank(slots=4), Lru(), "atomic"), machine, conditions)


def variants(value: Any, path: str = "", *, optional: bool = False) -> Iterator[tuple[str, Any]]:
    """Every leaf of a value, changed alone: the path of the leaf, and the value with it."""
    if optional and value is not None:
        yield path, None
    if isinstance(value, ExecutionModel):
        yield path, SyncInstall()
    if is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        for item in fields(value):
            may_lack = type(None) in typing.get_args(hints[item.name])
            for inner, changed in variants(getattr(value, item.name), item.name, optional=may_lack):
                yield f"{path}.{inner}".removeprefix("."), replace(value, **{item.name: changed})
    elif isinstance(value, Mapping):
        for key, item in value.items():
            for _, changed in variants(item):
                yield path, {**value, key: changed}
    elif isinstance(value, tuple):
        assert value, f"{path}: empty in the test's input, so nothing of it can be changed"
        for place, item in enumerate(value):
            for inner, changed in variants(item, path):
                yield inner, (*value[:place], changed, *value[place + 1 :])
    elif isinstance(value, np.ndarray):
        changed = value.copy()
        changed[len(value) // 2] += 1
        yield path, changed
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, int | float):
        yield path, value + 1
    elif isinstance(value, str):
        yield path, f"{value}, changed"
    else:
        assert value is None, f"{path}: the test does not know how to change {value!r}"
        assert optional


def assert_law(inputs: Inputs, part: str) -> set[str]:
    """The law for every field of one part of the inputs; the fields that the id does not cover."""
    before, row, free, seen = inputs.id, inputs.row(), set(), set()
    for path, changed in variants(getattr(inputs, part)):
        seen.add(path)
        after = replace(inputs, **{part: changed})
        if after.id == before:
            assert after.row() == row, f"{part}.{path} changes the row and not its id"
            free.add(path)
    assert {path.partition(".")[0] for path in seen} == {item.name for item in fields(getattr(inputs, part))}
    return free


def test_every_field_of_the_trace(inputs: Inputs) -> None:
    derived = {"step"}  # steps that are not recorded follow from the layers, and are the same here
    words = {"name", "format", "notes", "n_experts_known"}
    assert assert_law(inputs, "trace") == words | derived | {"weight", "slot", "resident"}
    inputs = replace(inputs, setup=replace(inputs.setup, prefetch=cell()["Guess"]()))
    assert assert_law(inputs, "trace") == words | derived


def test_every_field_of_the_model(inputs: Inputs) -> None:
    words = {"name", "source", "arch", "quant", "notes", "gguf", "repository", "width", "format"}
    words |= {"drafting_layers", "unread_bytes"}
    words |= {f"graph.{item.name}" for item in fields(Graph)}
    words |= {f"widths.{item.name}" for item in fields(GraphWidths)} - {"widths.hidden"}  # which networks send
    context = {
        "attention",
        *(
            f"attention.layers.{name}"
            for name in ("keys", "values", "window", "state", "heads", "kv_heads", "ratio", "indexer", "chooses")
        ),
    }
    assert assert_law(inputs, "geometry") == words | context  # what it takes is in the conditions, in bytes
    inputs = replace(inputs, trace=inputs.trace.with_(dense_bytes=None))
    assert assert_law(inputs, "geometry") == words | context


def test_what_decides_which_engines_run_a_model_changes_no_workload(inputs: Inputs) -> None:
    assert inputs.geometry is not None
    known = replace(inputs.geometry, graph=Graph(groups=8), width=256, format="gguf")
    assert Workload(inputs.trace, known).content_id == Workload(inputs.trace, inputs.geometry).content_id
    other = replace(inputs.geometry, top_k=2)
    assert Workload(inputs.trace, other).content_id != Workload(inputs.trace, inputs.geometry).content_id


def test_every_field_of_the_machine(inputs: Inputs) -> None:
    free = assert_law(inputs, "machine")
    free = {"cards" if path.startswith("cards") else path for path in free}
    words = {"source", "condition", "estimated", "guessed"}
    assert {path for path in free if path.rpartition(".")[2] not in words} == {
        "name",
        "title",
        "api",
        "gpus",  # together in the GPU's memory and rates
        "cards",  # and how a system distributes layers, in the machine that it plans with
        "os",  # these five decide what can be installed, and how it is started
        "gpu_maker",
        "gpu_compute",
        "cpu_features",
        "cpu_cores",
        "sockets",  # and how they are used, in the rates of the machine that a system plans with
        "socket_mode",
        "anchors.runs",  # only whether there are any counts: an engine's error is in the machine's numbers then
        "anchors.model",
        "anchors.date",
        "anchors.command",
        "learnt.notes",
        "unseen",  # what an answer is without, which its notes say
    }
    assert not {path for path in free if path.endswith((".value", ".lo", ".hi", "_kib", "lanes", "_s"))}


def test_every_field_of_the_conditions(inputs: Inputs) -> None:
    inputs = replace(inputs, conditions=replace(inputs.conditions, dense_bytes=7 << 20))
    assert assert_law(inputs, "conditions") == set()


def test_every_parameter_of_an_execution_model(inputs: Inputs) -> None:
    models = [HotCold(), HotCold(min_parallel=3), PrefillCopy(), PrefillCopy(copy_from_tokens=3)]
    ids = [replace(inputs, conditions=replace(inputs.conditions, execution=model)).id for model in models]
    assert len(set(ids)) == len(models)


def test_every_field_of_the_setup(inputs: Inputs) -> None:
    others = {
        "bank": [Bank(slots=5), Bank(budget_bytes=4), Bank(budget_bytes=5)],
        "policy": [Lru(stamp="last"), POLICIES["least-stale"]()],
        "contract": ["protected", "sequential"],
        "prefetch": [Hot(), Hot(width=2)],
        "scope": ["global"],
        "io_split": [5],
    }
    assert set(others) == {item.name for item in fields(Setup)}
    setups = [replace(inputs.setup, **{name: one}) for name, values in others.items() for one in values]
    ids = [replace(inputs, setup=setup).id for setup in [inputs.setup, *setups]]
    assert len(set(ids)) == len(ids)


OTHER_WORDS = (
    "last",
    "restart",
    "first-seen",
    "fifo",
    "first-3",
    "balanced",
    "time",
    "key",
    "evicted",
    "static",
    "high",
)
OTHER_WORDS += ("reference", "random")


@pytest.mark.parametrize("kind", [*POLICIES.values(), *PREFETCHERS.values()], ids=lambda kind: kind.name)
def test_every_parameter_of_policies_and_predictors(inputs: Inputs, kind: Any, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one", "other")]
    for expert, path in enumerate(files):
        path.write_text(json.dumps({"ahead": {"1": [expert]}}))

    def id_of(chosen: Any) -> str | None:
        part = "prefetch" if kind in PREFETCHERS.values() else "policy"
        contract = "atomic" if "atomic" in kind.contracts else kind.contracts[0]
        return replace(inputs, setup=replace(inputs.setup, contract=contract, **{part: chosen})).id

    plain = kind(file=str(files[0])) if kind is Recorded else kind()
    for item in fields(kind):
        assert item.default is not MISSING
        value = item.default
        others = OTHER_WORDS if isinstance(value, str) else (value + 1, value / 2, value + 0.5)
        if item.name == "profile":  # what its files hold is tested below
            others = () if kind is HotProfile else ("first-3", "first-4")
        if item.name == "file":
            others = (str(files[1]),)
        if item.name == "warm":
            others = ("first-3", "first-4", "trace")
        if item.name == "minor":
            others = ("drop@4", "half@4", "drop@5", "drop@0.05")
        changed = []
        for other in others:
            try:
                chosen = replace(plain, **{item.name: other})
            except (BadInput, TypeError):
                continue
            changed += [chosen] if chosen != plain else []
        assert changed or kind is HotProfile, f"{kind.name}: no other {item.name} known"
        ids = {id_of(plain), *map(id_of, changed)}
        assert len(ids) == 1 + len(changed), f"{kind.name}: {item.name}"


def test_a_profile_is_its_content(inputs: Inputs, tmp_path: Path) -> None:
    """Of a trace: what is requested how often, and when first."""
    one, renamed, other = (tmp_path / f"{name}.parquet" for name in ("one", "renamed", "other"))
    calls = random_calls(np.random.default_rng(4), n_experts=8, layers=2, steps=20, width=3)
    write_store(trace_of(calls, 8), one)
    write_store(trace_of(calls, 8).with_(name="else", notes=("else",)), renamed)
    write_store(trace_of(calls[::-1], 8).with_(step=np.arange(len(calls), dtype=np.int32)), other)

    def of(path: Path) -> Inputs:
        return replace(inputs, setup=replace(inputs.setup, policy=Static(profile=str(path))))

    assert of(one).id == of(renamed).id
    assert of(one).row() == of(renamed).row()
    assert of(one).id != of(other).id  # the counts are the same, not what comes first
    started = [replace(inputs, setup=replace(inputs.setup, policy=Lru(warm=str(path)))).id for path in (one, renamed)]
    assert started[0] == started[1] != inputs.id


def write_profile(path: Path, *, first: int = 0) -> Path:
    layers = [
        {
            "layer": number,
            "experts": [[first + expert, 9 - expert] for expert in range(4)],
            "total_moe_time_per_call_us": 10.0 * (number + 1),
            "parallel_join_wait_time_per_call_us": 3.0 + number,
        }
        for number in range(2)
    ]
    path.write_text(json.dumps({"schema": "llama.cpp.moe_layer_opt_perf.v1", "layers": layers}))
    return path


def test_every_field_of_a_hot_profile(inputs: Inputs, tmp_path: Path) -> None:
    policy = HotProfile(profile=str(write_profile(tmp_path / "profile.json")), weighting="time")
    inputs = replace(inputs, setup=replace(inputs.setup, policy=policy))
    before = inputs.id
    for number, layer in policy._layers.items():
        for path, changed in variants(replace(layer, hot_hits=layer.hits)):
            other = replace(policy)
            vars(other)["_layers"] = {**policy._layers, number: changed}
            assert replace(inputs, setup=replace(inputs.setup, policy=other)).id is not None
            if changed != layer:
                given = Setup(Bank(slots=4), other, "atomic")
                assert replace(inputs, setup=given).id != before, path


@pytest.mark.parametrize("weighting", TIMED)
def test_a_timed_weighting_makes_rows(inputs: Inputs, tmp_path: Path, weighting: str) -> None:
    """And their id is of what the file held when it was read, before the run."""
    one = write_profile(tmp_path / "one.json")
    same = write_profile(tmp_path / "same.json")
    other = write_profile(tmp_path / "other.json", first=2)
    policies = [HotProfile(profile=str(path), weighting=weighting) for path in (one, same, other)]
    setups = [Setup(Bank(slots=4), policy, "atomic") for policy in policies]
    one.unlink()
    rows = sweep([inputs.workload], setups, machines=[inputs.machine])
    assert rows[0] == rows[1] | {"policy": rows[0]["policy"]}
    assert rows[0]["id"] != rows[2]["id"]
    assert rows[0]["hits"] != rows[2]["hits"]


def test_a_timed_weighting_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import flashmoe_sim.api as sim

    write_store(full_trace(), tmp_path / "trace.parquet")
    profile = write_profile(tmp_path / "profile.json")
    chosen = f"hot-profile:profile={profile}:weighting=time"
    asked = [str(tmp_path / "trace.parquet"), "--bank", "4", "--policy", chosen, "--contract", "atomic"]
    asked += ["--machine", "rtx-3060", "--dense", "1MiB"]
    replayed = document(capsys, "replay", *asked)
    (row,) = document(capsys, "sweep", *asked)["rows"]
    given = {"bank": 4, "policy": chosen, "contract": "atomic", "machine": "rtx-3060", "dense": "1MiB"}
    (single,) = sim.replay(tmp_path / "trace.parquet", **given).to_dicts()
    assert replayed["identity"]["id"] == row["id"] == single["id"]
    assert replayed["counts"]["hits"] == row["hits"] == single["hits"]
    assert replayed["timing"]["tok_s"] == row["tok_s"] == single["tok_s"]


def test_the_semantics_are_in_the_id(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    before = inputs.id
    monkeypatch.setattr(task, "SEMANTICS", task.SEMANTICS + 1)
    assert inputs.id != before


# --- the user's code --------------------------------------------------------------------------------------------------


def replaying(inputs: Inputs, policy: EvictingPolicy) -> Inputs:
    """The same with another policy, under the contract whose loop compiles soonest."""
    return replace(inputs, setup=replace(inputs.setup, policy=policy, contract="sequential"))


def test_code_of_the_users_is_in_the_id(inputs: Inputs) -> None:
    """Two policies of one name are two, whatever they differ in; the same code run again is the same."""

    def id_of(code: str) -> str | None:
        space = cell(code)
        assert replace(inputs, setup=replace(inputs.setup, policy=space["Mine"](), prefetch=NoPrefetch())).id
        chosen = replace(inputs.setup, policy=space["Mine"](), prefetch=space["Guess"]())
        return replace(inputs, setup=chosen).id

    changes = {
        "SIGN = 1": "SIGN = -1",
        "START = 0": "START = 1",
        "SIGN * a <": "SIGN * a <=",
        "state[0][slot] = now": "state[0][slot] = key",
        "if chosen < 0": "if chosen == -1",
        "shape.slots,": "shape.slots + 1,",
        "class Mine(EvictingPolicy)": "class Base(EvictingPolicy):\n    bypass = True\nclass Mine(Base)",
        "return super().predict(trace)": "return super().predict(trace.with_(top_k=1))",
    }
    assert all(CELL.count(old) == 1 for old in changes)
    commented = CELL.replace("    chosen = -1\n", "    chosen = -1  # none yet\n\n")
    ids = [id_of(CELL), *(id_of(CELL.replace(old, new)) for old, new in changes.items())]
    assert id_of(CELL) == id_of(commented) == ids[0] is not None
    assert len(set(ids)) == len(ids)


def test_a_changed_global_is_another_policy(inputs: Inputs) -> None:
    """What numba compiled for one value of it does not serve the other, so the row is the one that its id promises.

    Also in a function that the policy's own calls.
    """
    space = cell()
    mine = replaying(inputs, space["Mine"]())
    lru, before = mine.row(), mine.id
    space["SIGN"] = -1
    assert mine.id != before
    assert mine.row() != lru


def test_code_without_known_content_has_no_id(inputs: Inputs) -> None:
    """An open file, for example: what it holds is not known, so the row has none rather than another's."""
    space = cell(CELL.replace("START,", "len(LOG.name) * 0,"))
    with Path("/dev/null").open() as space["LOG"]:
        mine = replaying(inputs, space["Mine"]())
        assert mine.id is None
        assert mine.row()["hits"] is not None


def test_helpers_from_other_modules_of_the_users_are_in_the_id(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    def id_of(body: str) -> str | None:
        helper = types.ModuleType("helper_of_tests")
        exec(f"def start():\n    {body}\n", vars(helper))
        monkeypatch.setitem(__import__("sys").modules, "helper_of_tests", helper)
        space = cell("import helper_of_tests\n" + CELL.replace("START,", "helper_of_tests.start(),"))
        return replace(inputs, setup=replace(inputs.setup, policy=space["Mine"]())).id

    assert id_of("return 0") == id_of("return 0") is not None
    assert id_of("return 0") != id_of("return 1")
