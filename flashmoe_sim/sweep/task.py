"""A task: one row to be computed, and its id, the hash of everything that determines the row."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from flashmoe_sim.ceilings.bottleneck import bottleneck
from flashmoe_sim.content import OURS, NoContent, hash_of
from flashmoe_sim.geometry.model import OF_ENGINES, ModelGeometry
from flashmoe_sim.io.provenance import version
from flashmoe_sim.machines import arithmetic
from flashmoe_sim.machines.machine import Machine, Memory, Quantity
from flashmoe_sim.machines.normal_unknowns import Learnt
from flashmoe_sim.machines.reads import MeasuredRead
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.schema import RESULT_COLUMNS, TIMING
from flashmoe_sim.timeline.assemble import Conditions, hidden_of
from flashmoe_sim.timeline.from_replay import Timed
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.work import INTERVAL_STEPS, last_steps

# The version of the program's results. Raise it by one with every change of an existing result, whether by a fix, a new
# rule or a new default; leave it for speed, wording, and new policies, columns and inputs.
SEMANTICS = 6

# What no result depends on: texts for people, and what decides which engines run a model.
WORDS: dict[type, tuple[str, ...]] = {
    Setup: ("policy", "prefetch"),  # described separately, with their code
    Conditions: ("execution",),
    # the context is in Conditions, in bytes
    ModelGeometry: ("name", "source", "arch", "quant", "notes", "attention", "gguf", *OF_ENGINES),
    Machine: (
        "name",
        "title",
        "anchors",
        "api",
        "gpus",
        "cards",
        "os",
        "gpu_maker",
        "gpu_compute",
        "cpu_features",
        "cpu_cores",
        "sockets",
        "socket_mode",
        "unseen",
    ),
    Memory: ("socket_link_gb_s",),
    Quantity: ("source", "condition", "estimated", "guessed"),
    MeasuredRead: ("source",),
    Learnt: ("notes",),
}


OF_SECONDS = ("dense_bytes", "embedding_bytes", "dense_weights")  # of a model: no count depends on them


@dataclass(frozen=True, eq=False)
class Task:
    """One setup on a workload, and its seconds on a machine under some conditions; only counts without a machine."""

    workload: Workload
    setup: Setup
    machine: Machine | None = None
    conditions: Conditions | None = None

    @cached_property
    def strong_id(self) -> str | None:
        """The id of the row, known before it is computed; equal ids mean equal results.

        It covers contents, not files or names: the trace, the model, the profile that a policy read, and the code of a
        user's own policy or predictor, which may read all of a trace. Only seconds read dense bytes and embeddings.
        None if that code refers to something without known content, such as an open file.
        """
        return _id_of(self.workload, self.setup, self.machine, self.conditions)

    def identity(self) -> dict[str, Any]:
        """The columns of schema.IDENTITY."""
        workload, setup = self.workload, self.setup
        return {
            "id": self.strong_id,
            "trace": workload.trace.name,
            "model": workload.geometry.name if workload.geometry else None,
            "trace_id": workload.trace.content_id,
            "policy": setup.policy.spec,
            "contract": setup.contract,
            "prefetch": setup.prefetch.spec,
            "scope": setup.scope,
            "bank": str(setup.bank),
            "io_split": setup.io_split,
            "version": version(),
            "bank_slots": setup.bank.slots_of(max(workload.n_experts)) if setup.bank.in_slots else None,
            "bank_bytes": setup.bank.budget_bytes,
        }


_MODEL_IDS: WeakKeyDictionary[Workload, dict[bool, str]] = WeakKeyDictionary()


def _model_id(workload: Workload, *, timed: bool) -> str | None:
    """The hash of the model's numbers, computed once for all tasks of a workload."""
    if workload.geometry is None:
        return None
    known = _MODEL_IDS.setdefault(workload, {})
    if timed not in known:
        words = (*WORDS[ModelGeometry], *(() if timed else OF_SECONDS))
        known[timed] = hash_of(workload.geometry, without=WORDS | {ModelGeometry: words})
    return known[timed]


def _id_of(workload: Workload, setup: Setup, machine: Machine | None, conditions: Conditions | None) -> str | None:
    policy, execution = setup.policy, conditions.execution if machine is not None and conditions is not None else None
    read = policy.contents()
    if policy.reads_profile is not None:
        read = read | {policy.names_profile: workload.profile(policy).content}
    trace = workload.trace
    kinds = [type(chosen) for chosen in (policy, setup.prefetch, execution) if chosen is not None]
    own = {kind.__module__.partition(".")[0] for kind in kinds} - set(OURS)
    document = {
        "semantics": SEMANTICS,
        "trace": trace.routing_id if machine is None else trace.content_id,
        "recorded": [trace.content_id, *trace.recorded.values()] if own or policy.sees else None,
        "model": _model_id(workload, timed=machine is not None),
        "setup": setup,
        "policy": _chosen(policy, read),
        "prefetch": _chosen(setup.prefetch, setup.prefetch.contents()),
        "machine": machine,
        "arithmetic": None if machine is None else _arithmetic(workload, machine, conditions),
        "conditions": None if machine is None else conditions,
        "execution": None if execution is None else _chosen(execution, {}),
    }
    if machine is not None and machine.anchors is not None:
        document["fitted"] = True  # then the interval has no engine's error in it
    without = dict(WORDS)  # without drafts, a share or a network, an id is as it was before there were any
    if machine is not None and machine.network is not None:
        document["hidden"] = 0 if workload.geometry is None else hidden_of(workload.geometry)
    else:
        without[Machine] = (*WORDS[Machine], "machines", "network")
    if conditions is not None and conditions.drafts is None:
        without[Conditions] = (*WORDS[Conditions], "drafts")
    if setup.bank.share is None:
        without[Bank] = ("share",)
    try:
        return hash_of(document, without=without, own=own, digest_size=8)
    except NoContent:
        return None


def _arithmetic(workload: Workload, machine: Machine, conditions: Conditions | None) -> list[float]:
    """What the name of a quantization, the cores and the engine decide."""
    quant = "" if workload.geometry is None else workload.geometry.quant
    program = Conditions.program if conditions is None else conditions.program
    return [arithmetic.weight_bytes(quant), arithmetic.most_gb_s(machine, quant, program)]


def _chosen(chosen: Policy | Prefetcher | ExecutionModel, read: dict[str, Any]) -> dict[str, Any]:
    """Parameters, with a file's content in place of its path, and the user's code."""
    parameters = {item.name: getattr(chosen, item.name) for item in fields(chosen)}
    for name, plain in (
        ("warm", ""),
        ("cost_us", 0),
        ("minor", ""),
        ("layers", 0),
        ("drafted", False),
    ):  # then an id is as it was before there were these
        if parameters.get(name) == plain:
            del parameters[name]
    ours = type(chosen).__module__.partition(".")[0] in OURS
    return {"name": chosen.name, "parameters": parameters | read, "code": None if ours else type(chosen)}


def seconds(task: Task, timed: Timed | None) -> dict[str, Any]:
    """The columns of schema.TIMING for a task with a machine.

    timed: None if the model does not fit the machine.
    """
    assert task.machine is not None
    assert task.conditions is not None
    execution = task.conditions.execution
    known: dict[str, Any] = {"bottleneck": "does-not-fit"}
    if timed is not None:
        some = last_steps(timed.work, INTERVAL_STEPS)
        known = timed.as_json() | {"bottleneck": bottleneck(some, timed.costs, execution).kind}
    known |= {"machine": task.machine.name, "execution": execution.name}
    return {column.name: known[column.name] for column in TIMING if column.name in known}


def row_of(task: Task, known: dict[str, Any], *, best: dict[str, Any] | None = None) -> dict[str, Any]:
    """All columns of schema.RESULT_COLUMNS, in their order; None if unknown.

    known: the combined results of `Counts.total` and `seconds`. best: the former, of the optimum in the same bank.
    """
    row = task.identity() | known
    if best is not None:
        row |= {"best_hit_rate": best["hit_rate"], "best_bytes_per_token": best["bytes_per_token"]}
    return {column.name: row.get(column.name) for column in RESULT_COLUMNS}
