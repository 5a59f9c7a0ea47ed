"""Sweeps on a real scheduler with real worker processes, which are killed and lost."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest
from distributed import Client
from numpy.typing import NDArray

from flashmoe_sim.api import load_trace
from flashmoe_sim.api import sweep as api_sweep
from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import BadInput, Conflict, Malformed
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Candidates, PoolShape, State
from flashmoe_sim.policies.fifo import Fifo
from flashmoe_sim.policies.static import Static
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.sweep import cluster, collect
from flashmoe_sim.sweep.cluster import on_cluster
from flashmoe_sim.sweep.collect import sweep
from flashmoe_sim.sweep.ledger import FILE, Ledger
from flashmoe_sim.sweep.passes import kept_bytes
from flashmoe_sim.sweep.plan import plan_setups
from flashmoe_sim.sweep.workers import Lost
from flashmoe_sim.timeline.assemble import Conditions
from tests.residency.builders import geometry_of, random_calls, trace_of
from tests.support import refusal

COMMAND = "from distributed.cli.dask_{0} import main; main()"
SIM = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
SIM += "from native_bridge.cli.main import entry; entry()"
ASKED = ("--bank", "16..64", "--policy", "lru,random", "--contract", "atomic")
MINE = """
from dataclasses import dataclass
from typing import ClassVar

import helper
from flashmoe_sim.policies.static import Static


@dataclass(frozen=True)
class Gap(Static):
    name: ClassVar[str] = "gap"

    def pinned(self, candidates):
        return helper.same(super().pinned(candidates))
"""
HELPER = "def same(pinned):\n    return [one.copy() for one in pinned]\n"
CONDITIONS = Conditions(dense_bytes=1 << 20)


@dataclass(frozen=True)
class Watched(Fifo):
    """A user's policy that says where it runs; each process compiles it."""

    name: ClassVar[str] = "watched"
    log: str = ""

    def allocate(self, shape: PoolShape) -> State:
        note_process(self.log)
        return super().allocate(shape)


@dataclass(frozen=True)
class Trapped(Static):
    """One that also ends the first process that finds `trap`, and is not compiled."""

    name: ClassVar[str] = "trapped"
    log: str = ""
    trap: str = ""

    def pinned(self, candidates: Candidates) -> list[NDArray[np.bool_]]:
        note_process(self.log)
        if Path(self.trap).exists():
            Path(self.trap).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().pinned(candidates)


def note_process(path: str) -> None:
    with Path(path).open("a") as log:
        log.write(f"{os.getpid()}\n")


def some_workload(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    trace = trace_of(random_calls(rng, n_experts=8, layers=4, steps=30, width=2), 8)
    return prepare(trace.with_(name=f"t{seed}"), geometry_of(dict.fromkeys(trace.layers, 1 << 20), 8))


class Started:
    """A scheduler on loopback and its workers, each a process of one thread."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.address, self.folder, self.stack = f"tcp://127.0.0.1:{port}", folder, stack
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")

    def add_worker(self) -> None:
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder))
        self.workers.append(self._start("worker", self.address, *options))

    def wait_for(self, workers: int) -> None:
        """Until the scheduler answers, and knows so many."""
        with Client(self.address, timeout=30, set_as_default=False) as client:
            if workers:
                client.wait_for_workers(workers, timeout=30)

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-W", "ignore", "-c", COMMAND.format(what), *options]
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.folder}
        child = subprocess.Popen(command, **quiet)
        self.stack.callback(child.wait)
        self.stack.callback(child.kill)
        return child


@contextmanager
def started(folder: Path, *, workers: int) -> Iterator[Started]:
    with ExitStack() as stack:
        here = Started(folder, stack)
        for _ in range(workers):
            here.add_worker()
        if workers:
            here.wait_for(workers)
        yield here


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with started(tmp_path_factory.mktemp("cluster"), workers=2) as here:
        yield here


def test_rows_are_those_of_threads(shared: Started, tmp_path: Path) -> None:
    workloads = [some_workload(seed) for seed in (1, 2)]
    own = Watched(log=str(tmp_path / "log"))
    setups = [*plan_setups("2..8", bank_step="2", policy="lru,random,min", contract="atomic")]
    setups += [Setup(Bank(slots=slots), own, "sequential") for slots in (2, 4, 6)]
    machines = [load_machine(name) for name in ("m1-8", "rtx-4090")]
    for on in ([], machines):
        expected = sweep(workloads, setups, machines=on, conditions=lambda *_: CONDITIONS)
        (tmp_path / "log").unlink()
        seen = list[tuple[int, int]]()
        with Ledger(tmp_path / f"{len(on)}") as ledger:
            rows = sweep(
                workloads,
                setups,
                machines=on,
                conditions=lambda *_: CONDITIONS,
                workers=on_cluster(shared.address),
                ledger=ledger,
                progress=lambda done, total: seen.append((done, total)),  # noqa: B023  # called before the next
            )
            assert repr(ledger.rows(rows)) == repr(rows) == repr(expected)
        assert seen == [(done, len(seen) - 1) for done in range(len(seen))]
        assert {*map(int, (tmp_path / "log").read_text().split())} <= {child.pid for child in shared.workers}


def test_a_trace_goes_to_each_worker_once(shared: Started) -> None:
    """All passes on one worker get the same object; requested again, it would be another."""
    workload = load_trace("python-256")
    with on_cluster(shared.address)() as workers:
        held = {found for _, found in workers.map(identity, [(number, workload) for number in range(100)])}
    assert len(held) == 2
    assert {pid for pid, _ in held} == {child.pid for child in shared.workers}


def test_a_trace_stays_for_later_sweeps(shared: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not sent again; each sweep has its own workload of it. Beyond the limit the oldest is forgotten."""
    sent = list[Workload]()
    submit = Client.submit

    def submitted(client: Client, function: Any, *given: Any, **named: Any) -> Any:
        sent.extend(given)
        return submit(client, function, *given, **named)

    monkeypatch.setattr(Client, "submit", submitted)
    monkeypatch.setattr(cluster, "KEPT_BYTES", 2 * kept_bytes(some_workload(7)))
    setups, counts = plan_setups("4", policy="lru", contract="atomic"), []
    for seed in (7, 7, 8, 7, 9, 8, 7):
        sweep([some_workload(seed)], setups, workers=on_cluster(shared.address))
        counts.append(len(sent))
    assert counts == [1, 1, 2, 2, 3, 3, 4]
    with on_cluster(shared.address)() as workers:
        jobs = [(number, some_workload(7)) for number in range(4)]
        held = [{found for _, found in workers.map(identity, jobs)} for _ in range(2)]
    assert len(sent) == 4
    assert not held[0] & held[1]


def identity(number: int, workload: Workload) -> tuple[int, int]:
    time.sleep(0.02)
    return os.getpid(), id(workload)


def test_a_killed_worker_costs_only_its_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MOST", 1)
    log, trap = tmp_path / "log", tmp_path / "trap"
    workload, own = some_workload(3), Trapped(log=str(log), trap=str(trap))
    setups = [Setup(Bank(slots=slots), own, "atomic") for slots in (2, 3, 4, 5, 6, 7)]
    setups += plan_setups("2..8", bank_step="2", policy="lru,random", contract="atomic")
    expected = sweep([workload], setups)
    usual = len(log.read_text().split())
    log.unlink()
    with started(tmp_path, workers=2) as here, Ledger(tmp_path / "out") as ledger:
        trap.touch()
        assert repr(sweep([workload], setups, workers=on_cluster(here.address), ledger=ledger)) == repr(expected)
        assert sorted(child.poll() is None for child in here.workers) == [False, True]
        assert len(ledger) == len(expected)
    of_a_pass = len(setups[:6])
    assert usual < len(log.read_text().split()) <= usual + 2 * of_a_pass


def test_a_lost_scheduler_keeps_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collect, "MOST", 1)
    out = tmp_path / "out"
    many = ("--bank", "4..64", "--bank-step", "4", "--policy", "lru,random,lfu,fifo,arc,clock", "--contract", "atomic")
    asked = ["sweep", "python-256", *many, "--out", str(out)]
    with started(tmp_path, workers=1) as here:
        append = Ledger.append

        def killing(ledger: Ledger, rows: Any) -> None:
            append(ledger, rows)
            if len(ledger):
                here.scheduler.kill()

        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "append", killing)
            assert main([*asked, "--cluster", here.address]) == 1
        rows = (out / FILE).read_bytes().count(b"\n") - 1
        lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == (
        f"sim: cluster {here.address}: lost in the middle of the sweep: the scheduler is gone; "
        f"{rows} row{'s' * (rows > 1)} of {out} are kept; the same command goes on from there"
    )
    assert lines[1:-1] == [f"sim: wrote results.parquet, results.csv and results.png to {out}"]
    assert main([*asked, "--threads", "2"]) == 0
    assert f"going on with the {rows} row" in capsys.readouterr().err


def test_a_process_sweeps_on_a_cluster_more_than_once() -> None:
    """Only our own settings of dask are restored: its client has others."""
    code = "import dask; from flashmoe_sim.sweep.cluster import _quiet\nwith _quiet(): import distributed\n"
    code += "print(dask.config.get('distributed.client.heartbeat'))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout


def test_workers_that_never_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LOST_S", 2)
    monkeypatch.setattr(cluster, "LOOK_S", 0.5)
    own = Trapped(log=str(tmp_path / "log"), trap=str(tmp_path / "trap"))
    Path(own.trap).touch()
    with started(tmp_path, workers=1) as here, pytest.raises(Lost, match=r"no worker for 2 s$"):
        sweep([some_workload(4)], [Setup(Bank(slots=4), own, "atomic")], workers=on_cluster(here.address))


def test_local_processes_run_code_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "helper.py").write_text(HELPER)
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", SIM, "sweep", "python-256", "--bank", "16", "--policy", "lru,mine:Gap", "--json"]
    done = [
        subprocess.run([*command, *more], capture_output=True, text=True, check=True)
        for more in ([], ["--cluster", "local:2"])
    ]
    assert done[0].stdout == done[1].stdout
    assert done[0].stderr == done[1].stderr


def test_ctrl_c_ends_the_processes(tmp_path: Path) -> None:
    """It reaches all processes of a terminal."""
    out, trace = tmp_path / "out", "gpt-oss-120b"
    asked = ["--bank", "4..128", "--bank-step", "4", "--policy", "lfu,random", "--contract", "atomic"]
    command = [sys.executable, "-c", SIM, "sweep", trace, *asked, "--out", str(out), "--cluster", "local:2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            while child.poll() is None and not ((out / FILE).exists() and (out / FILE).read_bytes().count(b"\n") > 1):
                time.sleep(0.02)
            os.killpg(child.pid, signal.SIGINT)
            printed, stderr = child.communicate(timeout=60)
        finally:
            child.kill()
    assert (child.returncode, printed) == (130, "")
    assert re.fullmatch(r"sim: banks .*\nsim: wrote .*\nsim: interrupted; \d+ rows? of .* from there\n", stderr), stderr
    deadline = time.monotonic() + 20
    while left := alive_in_group(child.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def alive_in_group(group: int) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def refused(address: str) -> str:
    with pytest.raises(BadInput) as error:
        sweep([some_workload(5)], plan_setups("4"), workers=on_cluster(address))
    return str(error.value)


@pytest.mark.parametrize("name", ["flashmoe-sim", "Python", "source"])
def test_other_versions_are_refused(shared: Started, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    here = cluster.about()
    monkeypatch.setattr(cluster, "about", lambda: here | {name: "other"})
    message = refused(shared.address)
    assert message.startswith(f"cluster {shared.address}: the worker tcp://127.0.0.1:")
    assert message.endswith(f" has {name} {here[name]}, but the sweep other; install the same on both")


def test_a_worker_of_another_version_that_comes_late_is_refused() -> None:
    with pytest.raises(Exception, match=r"a worker has Python 3\.\d+, but the sweep 2\.7"):
        cluster._on_worker(cluster.about() | {"Python": "2.7"}, b"never read", some_workload(6), "")


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        message = refused(f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    assert re.fullmatch(
        r"cluster tcp://\S+: no scheduler answers \(.*\); start one with `dask scheduler`, or .*", message
    )
    with started(tmp_path, workers=0) as here:
        here.wait_for(0)
        monkeypatch.setattr(cluster, "CONNECT_S", 2)
        assert refused(here.address).endswith(
            f"its scheduler has no workers; start one with `dask worker {here.address} --nthreads 1`"
        )


@pytest.mark.parametrize(
    "address", ["", "local", "local:0", "local:x", "local:1000", "tcp://here", "here:8786", "tls://a:1"]
)
def test_odd_addresses(address: str) -> None:
    with pytest.raises(Malformed, match=r"expected tcp://HOST:PORT or local:N, with N from 1 to 256$"):
        on_cluster(address)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    assert main(["sweep", *ASKED, "--cluster", "local:2"]) == 2
    message = "sim: cluster local:2: needs the package distributed: pip install '.[cluster]'\n"
    assert capsys.readouterr().err == message


def test_a_cluster_and_threads(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Conflict, match="threads and a cluster"):
        api_sweep("python-256", bank=16, threads=2, cluster="local:2")
    assert "--threads N in place of --cluster" in refusal(capsys, "sweep", *ASKED, "--cluster", "local:2", "--dry-run")
