"""The user's own policies and predictors: how they are found, and the errors for mistakes in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import Malformed, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State
from flashmoe_sim.policies.class_lru import ClassLru
from flashmoe_sim.policies.lfu_decay import LfuDecay
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.table import WITHOUT_FILE, parse_prefetcher
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.sweep.plan import plan_setups
from tests.policies.naive import Expert, Twin
from tests.policies.own import GAP
from tests.residency import naive
from tests.residency.builders import random_calls
from tests.residency.compare import calls_of, workload_of
from tests.support import refusal

TRACE = "".join(f"[[0, {expert}], [0, {expert % 3}]]\n" for expert in (0, 1, 2, 3, 4, 0, 1, 2, 3, 4))
REQUIRED = GAP.replace("width: int = 1", "width: int").replace("(frozen=True)", "(frozen=True, kw_only=True)")
ENTRY = "from native_bridge.cli.main import entry; entry()"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a trace; modules that a test puts there are forgotten again."""
    (tmp_path / "trace.jsonl").write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture
def workload() -> Workload:
    return workload_of(random_calls(np.random.default_rng(0), n_experts=9, steps=40, width=3), {0: 9})


# --- how they are found -----------------------------------------------------------------------------------------------


def test_a_file_of_the_current_folder_is_found(tmp_path: Path) -> None:
    """As the installed program finds it, whose path lacks the folder; the file may import others there."""
    (tmp_path / "trace.jsonl").write_text(TRACE)
    (tmp_path / "mine.py").write_text("from others import Gap, Guess\n")
    (tmp_path / "others.py").write_text(GAP)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def out(*arguments: str) -> str:
        command = [sys.executable, "-P", "-c", ENTRY, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    asked = ("replay", "trace.jsonl", "--bank", "3", "--contract", "atomic", "--json", "--policy")
    own, lru = (json.loads(out(*asked, policy)) for policy in ("mine:Gap", "lru"))
    assert own["identity"]["policy"] == "gap"
    assert own["counts"]["hits"] == lru["counts"]["hits"]
    shown = out("policy", "show", "mine:Gap")
    assert "Evict the oldest." in shown
    assert "width=1" in shown
    assert "guess" in out("prefetch", "show", "mine:Guess")
    assert not list(tmp_path.glob("**/numba"))


def test_the_current_folder_is_for_what_is_typed(folder: Path) -> None:
    """A file there takes the place of no module that something else imports."""
    (folder / "orjson.py").write_text("raise RuntimeError('imported')")
    (folder / "colorsys.py").write_text("raise RuntimeError('imported')")
    (folder / "own_policy_of_tests.py").write_text("import colorsys\n" + GAP)
    sys.modules.pop("colorsys", None)
    path = list(sys.path)
    assert parse_policy("own_policy_of_tests:Gap:width=2").spec == "gap:width=2"
    assert parse_policy("lru").spec == "lru"
    assert parse_prefetcher("own_policy_of_tests:Guess:width=3").spec == "guess:width=3"
    assert sys.path == path
    assert Path(str(sys.modules["colorsys"].__file__)).parent != folder


@pytest.mark.parametrize(
    ("content", "asked", "says"),
    [
        (
            None,
            "absent:Gap",
            "No module named 'absent' in the current folder ({here}), in PYTHONPATH or among installed",
        ),
        (GAP, "mine:Gpa", "no Gpa in mine.py; a policy there: Gap; expected a name from `sim policy list` or"),
        (GAP, "mine:Gap:wide=1", "'wide=1' is not a parameter; mine:Gap has: stamp, warm, cost_us, minor, width"),
        ("import absent\n", "mine:Gap", "mine.py:1: ModuleNotFoundError: No module named 'absent'"),
        ("def f(:\n", "mine:Gap", "mine.py:1: SyntaxError: invalid syntax"),
        ("\nx = 1 / 0\n", "mine:Gap", "mine.py:2: ZeroDivisionError: division by zero"),
        (GAP + "\nGap = 3\n", "mine:Gap", "not a policy: expected a named class that extends Policy"),
        (GAP.replace("def allocate", "def allocated"), "mine:Gap", "not a policy yet: Gap lacks the method allocate"),
        (GAP.replace("width: int = 1", "width: int"), "mine:Gap", ": TypeError: non-default argument 'width' follows"),
        (REQUIRED, "mine:Gap", "policy gap: mine.py: TypeError: "),
        (None, "../mine:Gap", "expected a name from `sim policy list` or module:Class"),
    ],
)
def test_what_is_not_found(
    folder: Path, capsys: pytest.CaptureFixture[str], content: str | None, asked: str, says: str
) -> None:
    if content is not None:
        (folder / "mine.py").write_text(content)
    for arguments in (("replay", "trace.jsonl", "--bank", "3", "--policy", asked), ("policy", "show", asked)):
        if arguments[0] == "policy" and ("wide=" in asked or content == REQUIRED):
            continue
        assert says.format(here=folder) in refusal(capsys, *arguments)


# --- together with all ------------------------------------------------------------------------------------------------


def test_all_and_others(folder: Path) -> None:
    (folder / "own_policy_of_tests.py").write_text(GAP)
    own = parse_policy("own_policy_of_tests:Gap")
    everything = [setup.policy.spec for setup in plan_setups(64, policy="all", contract="atomic")]
    assert everything == list(POLICIES)
    for asked in ("all,own_policy_of_tests:Gap,lru", ["all", type(own), "lru"], ["all", own], ("all,lru", own)):
        setups = plan_setups(64, policy=asked, contract="atomic")
        assert [setup.policy.spec for setup in setups] == [*everything, "gap"]
    predictors = [setup.prefetch.spec for setup in plan_setups(64, prefetch=["all", "hot:width=9", "eam"])]
    assert predictors == [*WITHOUT_FILE, "hot:width=9"]


def test_of_all_only_what_can_be_and_of_the_others_everything(folder: Path) -> None:
    """Of `all`, what the contract does not define is left out; what is named apart is refused."""
    assert "hot-window" not in {setup.policy.spec for setup in plan_setups(64, policy="all,fifo")}
    for prefetch in ("none", "all", "all,eam"):
        with pytest.raises(Unsupported, match="policy hot-window is undefined under the contract protected"):
            plan_setups(64, policy="all,hot-window", prefetch=prefetch)
    with pytest.raises(Unsupported, match="predictor eam is undefined under the contract sequential"):
        plan_setups(64, policy="all", prefetch="all,eam", contract="sequential")
    with pytest.raises(Unsupported, match="predictor eam cannot work: policy static never installs a miss"):
        plan_setups(64, policy="static", prefetch="eam", contract="atomic")


def test_a_sweep_of_all_and_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.py").write_text(GAP)
    asked = [
        "sweep",
        "trace.jsonl",
        "--bank",
        "3",
        "--contract",
        "sequential",
        "--policy",
        "lru,min,min:forced,mine:Gap",
    ]
    assert main(asked) == 0
    table = capsys.readouterr().out
    rows = {line.split()[1]: line.split() for line in table.splitlines() if line.startswith("   3") or " 3  " in line}
    assert rows["gap"][2:] == rows["lru"][2:]


@pytest.mark.parametrize("kind", [ClassLru, LfuDecay])
def test_an_own_policy_hears_of_calls_what_its_function_takes(kind: type[EvictingPolicy], workload: Workload) -> None:
    """The step, and the layer and the tokens as well if it takes four arguments."""

    class Own(kind):  # type: ignore[misc, valid-type]
        name = "own"

        def allocate(self, shape: PoolShape) -> State:
            return super().allocate(shape)  # type: ignore[no-any-return]

    setups = [Setup(Bank(slots=3), policy, "atomic", scope="global") for policy in (kind(), Own())]
    tables = [replay(workload, setup).counts.table for setup in setups]
    assert np.array_equal(*tables)


# --- what choose_victim returns ---------------------------------------------------------------------------------------

CONTRACTS = ("runtime", "protected", "atomic", "sequential")
CONSTANT = re.sub(r"    victim = -1\n.*?return victim\n", "    return state[1][0]\n", GAP, flags=re.DOTALL)
CONSTANT = CONSTANT.replace("np.int64),)", "np.int64), np.array([self.width]))")


@pytest.fixture(scope="module")
def constant() -> Any:
    """A policy that gives up the slot `width` every time, compiled once for all tests."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CONSTANT, "constant.py", "exec", dont_inherit=True), space)
    return space["Gap"]


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("slot", [0, 3, 99, -2, -1])
def test_a_slot_that_cannot_be_evicted(
    constant: Any, workload: Workload, monkeypatch: pytest.MonkeyPatch, contract: str, slot: int
) -> None:
    """The first wrong one ends the replay, at the same call and with the same slot as in the twin."""
    twin = twins_fault(workload, contract, slot, monkeypatch)
    if twin is None:
        assert contract == "sequential"  # under which any resident may go
        assert sim.replay(workload, bank=4, policy=constant(width=slot), contract=contract)["hits"].item() > 0
        return
    number, returned = twin
    spec = constant(width=slot).spec
    with pytest.raises(Malformed) as refused:
        sim.replay(workload, bank=4, policy=constant(width=slot), contract=contract)
    assert str(refused.value).startswith(
        f"policy {spec}: constant.py:12: choose_victim returned {returned} at call {number} of written by hand "
        f"(layer 0, a bank of 4, contract {contract}); expected "
    )
    expected = {-1: "since some may be evicted", -2: "the number of a slot", 99: "the number of a slot"}
    assert expected.get(slot, "the call does not need") in str(refused.value)


def test_an_empty_slot_cannot_be_evicted(constant: Any) -> None:
    """Of experts of two sizes: the slot that the large one left is empty while two small ones are in others."""
    calls = [(0, [0], 1), (0, [1], 1), (1, [0], 1), (0, [2], 1), (0, [3], 1), (0, [4], 1)]
    mixed = workload_of(calls, {0: 5, 1: 5}, {0: 10, 1: 20})
    with pytest.raises(Malformed, match=r"choose_victim returned 0 .* a slot that holds an expert"):
        sim.replay(mixed, bank="20B", policy=constant(width=0), contract="sequential", scope="global")


def test_a_wrong_victim_of_a_prediction(constant: Any, workload: Workload) -> None:
    for contract in ("protected", "atomic"):
        with pytest.raises(Malformed, match="choose_victim returned -2 at call "):
            sim.replay(workload, bank=4, policy=constant(width=-2), contract=contract, prefetch="oracle-1")


class Constant(Twin):
    """Gives up the same slot every time."""

    def __init__(self, slot: int) -> None:
        super().__init__(0)
        self.slot = slot

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        return self.slot


def twins_fault(
    workload: Workload, contract: str, slot: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int] | None:
    """The call and the slot of the first wrong victim, as the twin of a contract finds it."""
    monkeypatch.setitem(naive.EVICTING, "constant", lambda _: Constant(slot))
    calls, n_experts = calls_of(workload.trace), workload.trace.n_experts
    try:
        naive.replay(calls, contract=contract, policy="constant", n_experts=n_experts, slots=4)
    except naive.WrongVictim as wrong:
        number, returned = wrong.args
        return number, returned
    return None


# --- mistakes in the code ---------------------------------------------------------------------------------------------

# under the contract whose loop compiles soonest
WITH_POLICY = ("replay", "trace.jsonl", "--bank", "3", "--contract", "sequential", "--policy")


USE, NONE, RESULT = "    state[0][slot] = now", "    victim = -1\n", "    return victim\n"
STATE, KERNEL = "        return (np.zeros(shape.slots, np.int64),)", '"on_install": on_use'
COMPILES = "numba cannot compile it: "


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (USE, "    state[0][slot] = later", f"mine.py:9: {COMPILES}NameError: name 'later'"),
        (USE, "    state[0].append(now)", f"mine.py:9: {COMPILES}Unknown attribute 'append'"),
        (USE, "    raise ValueError('no')", "mine.py:9: ValueError: no"),
        (USE, "    state[0][slot + 99] = now", "mine.py: a compiled function goes beyond an array of its"),
        (USE, "    state[0][slot] = now // (slot - slot)", "mine.py: ZeroDivisionError"),
        (
            NONE,
            f"    blocked[:] = 0\n{NONE}",
            f"mine.py:13: {COMPILES}it writes to an array that is read-only; it may wri",
        ),
        (RESULT, f"    slot_key[0] = 99999\n{RESULT}", "writes to an array that is read-only"),
        (RESULT, "    return victim + 0.5\n", "mine.py:12: choose_victim returns float64; expected a whole number"),
        (RESULT, f"    if victim > 0:\n    {RESULT}", "choose_victim returns OptionalType(int64); expected"),
        (STATE, "        return np.zeros(4)", "mine.py:29: allocate returned ndarray; expected a tuple"),
        (STATE, "        return ([], 3)", "allocate returned a tuple with int, list; expected a tuple"),
        (STATE, "        return (np.zeros(shape.slot),)", "mine.py:30: AttributeError: "),
        (f"{KERNEL}, ", "", "policy gap: its `kernels` lack on_install"),
        (KERNEL, f'{KERNEL}, "evicts": on_use', "its `kernels` have evicts; known: on_call, on_miss"),
        (KERNEL, '"on_install": 3', "policy gap: on_install is a int; expected a function"),
        (
            "kernels = {",
            "kernels = [3] and {**{}, 'on_call': on_use, ",
            "mine.py:8: on_call takes (state, slot, key, now, upcoming); expected (state, step, row, tokens)",
        ),
    ],
)
def test_mistakes_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, says: str) -> None:
    assert GAP.count(old) == 1
    (folder / "mine.py").write_text(GAP.replace(old, new))
    line = refusal(capsys, *WITH_POLICY, "mine:Gap")
    assert says in line
    assert "policy gap" in line
    assert len(line) < 400


def test_a_result_of_a_wrong_type_is_refused_though_its_loop_compiles(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admits = '"on_install": on_use, "admits": lambda state, key, now: None'
    (folder / "mine.py").write_text(GAP.replace('"on_install": on_use', admits))
    line = refusal(capsys, "replay", "trace.jsonl", "--bank", "3", "--contract", "atomic", "--policy", "mine:Gap")
    assert "policy gap: " in line
    assert "admits returns none; expected True or False" in line


@pytest.mark.parametrize(
    "words",
    [
        "replay trace.jsonl --bank 3",
        "replay trace.jsonl --bank 3 --in-chunks",
        "sweep trace.jsonl --bank 3",
        "diagnose trace.jsonl --bank 3",
        "prefetch judge trace.jsonl --bank 3",
        "ceilings python-256 --bank 64 --machine vm-2core",
    ],
)
def test_replays_run_beside_the_thread_that_hears_ctrl_c(
    folder: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """Else it would wait for the end of a compiled function, which one of the user's may never come to."""
    code = "import threading; raise ValueError(threading.current_thread() is threading.main_thread())"
    (folder / "mine.py").write_text(GAP.replace("return (np.zeros(shape.slots, np.int64),)", code))
    assert main([*words.split(), "--contract", "atomic", "--policy", "mine:Gap"]) == 2
    assert capsys.readouterr().err.endswith("ValueError: False\n")


CLOCKS = '''

from flashmoe_sim.policies.clock import Clock


@dataclass(frozen=True)
class Small(Clock):
    """The rule of CLOCK on arrays that are too small for it."""

    name = "small"

    def allocate(self, shape):
        return tuple(np.zeros((1,) * one.ndim, one.dtype) for one in Clock.allocate(self, shape))


def corrupt(state, slot, key, now, upcoming):
    state[0][0, slot] = 99999999


@dataclass(frozen=True)
class Corrupt(Clock):
    """CLOCK's other functions, and those that they call, follow what this one writes."""

    name = "corrupt"
    kernels = {**Clock.kernels, "on_hit": corrupt}
'''


@pytest.mark.parametrize("name", ["Small", "Corrupt"])
def test_our_functions_test_bounds_on_the_user_s_arrays(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """They wrote anywhere in memory, and the process ended without a line."""
    (folder / "mine.py").write_text(GAP + CLOCKS)
    line = refusal(capsys, *WITH_POLICY, f"mine:{name}")
    assert "mine.py: a compiled function goes beyond an array of its state" in line


OTHERS = '''

@dataclass(frozen=True)
class Pins(PinningPolicy):
    """Pins."""

    name = "pins"

    def pinned(self, candidates):
        return [counts >> missing for counts in candidates.counts]


@dataclass(frozen=True)
class Turns(ScheduledPolicy):
    """Turns."""

    name = "turns"

    def schedule(self, trace, key, candidates):
        yield 0, missing


class Lost(Hot):
    """Lost."""

    name = "lost"

    def predict(self, trace):
        return missing
'''


@pytest.mark.parametrize("option", ["--policy mine:Pins", "--policy mine:Turns", "--prefetch mine:Lost"])
def test_mistakes_in_python_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    (folder / "mine.py").write_text(GAP + OTHERS)
    source = (GAP + OTHERS).splitlines()
    kind, _, name = option.removeprefix("--").replace("prefetch", "predictor").partition(" mine:")
    begins = next(number for number, text in enumerate(source) if text.startswith(f"class {name}("))
    at = next(number for number, text in enumerate(source, 1) if number > begins and "missing" in text)
    line = refusal(capsys, "replay", "trace.jsonl", "--bank", "3", "--contract", "atomic", *option.split())
    assert line == f"sim: {kind} {name.lower()}: mine.py:{at}: NameError: name 'missing' is not defined\n"


@pytest.mark.parametrize(
    ("old", "option"),
    [
        ("return missing", "--prefetch mine:Lost"),
        ("return [counts >> missing for counts in candidates.counts]", "--policy mine:Pins"),
        ("yield 0, missing", "--policy mine:Turns"),
        ("class Lost(Hot):", "--policy mine:Gap"),
    ],
)
def test_code_that_ends_the_program_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, option: str
) -> None:
    (folder / "mine.py").write_text(
        (GAP + OTHERS).replace(old, f"raise SystemExit(0); {old}".replace("; class", "\nclass"))
    )
    line = refusal(capsys, "replay", "trace.jsonl", "--bank", "3", "--contract", "atomic", *option.split())
    assert re.search(r"mine\.py:\d+: SystemExit: 0$", line)
