"""Workers on other machines, or in separate processes, through the scheduler of dask.distributed."""

from __future__ import annotations

import hashlib
import logging
import pickle
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import flashmoe_sim
from flashmoe_sim.io.errors import Conflict, Malformed, Missing, SimError, Unusable
from flashmoe_sim.io.scratch import temporary_folder
from flashmoe_sim.outside import is_users
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.sweep.estimate import kept_bytes
from flashmoe_sim.sweep.task import SEMANTICS
from flashmoe_sim.sweep.workers import Lost, OpenWorkers, Workers

INSTALL = "pip install '.[cluster]'"
ADDRESS = re.compile(r"tcp://[^\s/:]+:\d{1,5}|tcp://\[[0-9a-f:.]+\]:\d{1,5}", re.IGNORECASE)
MOST_LOCAL = 256
CONNECT_S = 10
BATCH_MS = 50  # since the scheduler takes about 5 ms for each
KEPT_BYTES = 1 << 30  # of traces that workers keep between sweeps, with their pools
KEPT = "flashmoe-sim"
LOST_S = 60  # without a worker, after which a sweep gives up
LOOK_S = 2
LOGGERS = ("distributed", "tornado", "asyncio", "bokeh")
SILENT = logging.CRITICAL + 1
# Ctrl-C reaches every process of a terminal; only the one that keeps the rows should react to it.
PRELOAD = """
import signal
for name in ("SIGINT", "SIGBREAK"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
"""

About = dict[str, str]


def on_cluster(address: str) -> OpenWorkers:
    """The workers of the scheduler at `tcp://HOST:PORT`, or `local:N` for N processes on this machine, a thread each.

    A workload is sent to each worker once, and again only to one that lost it; later sweeps find it there. A pass whose
    worker dies runs again on another; user code is sent along. Opening it raises BadInput if nothing answers, if there
    is no worker, or if a worker runs another version of this program.
    Raises BadInput for any other address, and without the package dask.distributed.
    """
    kind, _, number = address.partition(":")
    local = kind == "local" and number.isdecimal() and 1 <= int(number) <= MOST_LOCAL
    if not local and not ADDRESS.fullmatch(address):
        raise Malformed(f"cluster {address!r}: expected tcp://HOST:PORT or local:N, with N from 1 to {MOST_LOCAL}")
    if find_spec("distributed") is None:
        raise Missing(f"cluster {address}: needs the package distributed: {INSTALL}")
    return partial(_local, int(number)) if local else partial(_connected, address)


@contextmanager
def _local(processes: int) -> Iterator[Workers]:
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        import distributed

        folder = str(stack.enter_context(temporary_folder()))
        start: Any = distributed.LocalCluster  # its types are incomplete, here and below
        started = start(
            n_workers=processes,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=None,  # as for threads
            silence_logs=SILENT,
            local_directory=folder,
            preload=[PRELOAD],
        )
        stack.callback(started.close, timeout=5)
        yield stack.enter_context(_connected(started.scheduler_address, name=f"local:{processes}"))


@contextmanager
def _connected(address: str, *, name: str = "") -> Iterator[Workers]:
    name = name or address
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        import distributed
        from distributed.scheduler import KilledWorker

        connect: Any = distributed.Client

        try:
            client = connect(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            start = "start one with `dask scheduler`, or correct the address"
            raise Unusable(f"cluster {name}: no scheduler answers ({_cause(error)}); {start}") from None
        stack.callback(client.close, timeout=1)
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError:
            start = f"start one with `dask worker {address} --nthreads 1`"
            raise Unusable(f"cluster {name}: its scheduler has no workers; {start}") from None
        _check(name, client.run(_difference, about(), on_error="return"))
        stack.enter_context(_by_value())
        executor = _OnCluster(client)
        try:
            with _watched(executor):
                yield Workers(executor, executor.bring, BATCH_MS)
        except CancelledError:
            what = f"no worker for {LOST_S} s" if executor.stopped else "the scheduler is gone"
            raise Lost(f"cluster {name}: lost in the middle of the sweep: {what}") from None
        except KilledWorker as error:
            times = error.allowed_failures + 1
            advice = "give the workers more memory, or find out what kills them"
            raise Lost(
                f"cluster {name}: {times} workers died, one after another, on the same passes; {advice}"
            ) from None


class _OnCluster(Executor):
    """Sends passes to a scheduler, as bytes that only a worker of the same version can read."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.sweep = ""
        self.executor = client.get_executor(pure=False)
        self.stopped = False

    def bring(self, workload: Workload) -> Any:
        """Hand a workload to the scheduler, unless it has it from an earlier sweep; workers get it from one another."""
        self.sweep = secrets.token_hex(8)
        what = f" {about()['source']} {workload.content_id} {kept_bytes(workload)}"
        names = sorted(name for name in map(str, self.client.list_datasets()) if name.startswith(f"{KEPT} "))
        for name in (one for one in names if one.endswith(what)):
            with suppress(KeyError):  # another sweep took it away
                known = self.client.get_dataset(name)
                if known.status in {"pending", "finished"}:
                    return known
        sent = self.client.submit(_Arrived, workload, pure=False)
        self._keep([*names, f"{KEPT} {time.time_ns():020}{what}"], sent)
        return sent

    def _keep(self, names: list[str], sent: Any) -> None:
        """Keep the last of these workloads for later sweeps, and as many of the others, the latest, as have room."""
        *older, new = names
        room = KEPT_BYTES - _bytes_of(new)
        if room < 0:
            return
        while sum(map(_bytes_of, older)) > room:
            self.client.unpublish_dataset(older.pop(0))
        self.client.publish_dataset(sent, name=new)

    def submit(self, run: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        import cloudpickle

        passes, workload = given
        sent = self.executor.submit(_on_worker, about(), cloudpickle.dumps((run, passes)), workload, self.sweep)
        # dask's future ends in dask's thread: Python would drop a Ctrl-C that comes while this one runs its __del__
        future: Future[Any] = Future()
        sent.add_done_callback(partial(_settle, future))
        return future

    def give_up(self) -> None:
        self.stopped = True
        self.executor.shutdown(wait=False)


def _bytes_of(name: str) -> int:
    return int(name.rpartition(" ")[2])


def _settle(future: Future[Any], done: Future[Any]) -> None:
    if done.cancelled():
        future.cancel()
        future.set_running_or_notify_cancel()
    elif error := done.exception():
        future.set_exception(error)
    else:
        future.set_result(done.result())


class _Arrived:
    """A trace and its model on a worker, and their workload in the latest sweep: another could read other files."""

    def __init__(self, workload: Workload) -> None:
        self._workload, self._sweep, self._lock = workload, "", threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Arrived, (self._workload,)

    def workload(self, sweep: str) -> Workload:
        with self._lock:
            if sweep != self._sweep:
                self._sweep, self._workload = sweep, Workload(self._workload.trace, self._workload.geometry)
            return self._workload


def _on_worker(sender: About, sent: bytes, arrived: _Arrived, sweep: str) -> Any:
    if difference := _difference(sender):
        raise SimError(f"a worker has {difference}")
    run, passes = pickle.loads(sent)  # noqa: S301 - from the sweep that this worker serves
    return run(passes, arrived.workload(sweep))


@cache
def about() -> About:
    """What must be equal for equal rows; also the sources, since development does not change the version."""
    package = Path(flashmoe_sim.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(package.rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes())
    return {
        "flashmoe-sim": version("flashmoe-sim"),
        "semantics": str(SEMANTICS),
        "Python": ".".join(map(str, sys.version_info[:2])),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "source": digest.hexdigest(),
    }


def _difference(sender: About) -> str:
    """The first difference, in words; empty if all is equal."""
    for name, here in about().items():
        if here != sender.get(name):
            return f"{name} {here}, but the sweep {sender.get(name)}"
    return ""


def _check(name: str, found: dict[str, Any]) -> None:
    """Refuse a cluster if its workers answered with a difference, nothing, or an error."""
    for worker, answer in found.items():
        has = answer
        if isinstance(answer, ImportError):
            has = f"no flashmoe-sim that can be used ({_cause(answer)})"
        elif isinstance(answer, Exception):
            has = f"an error: {_cause(answer)}"
        if has:
            raise Conflict(f"cluster {name}: the worker {worker} has {has}; install the same on both")


def _cause(error: Exception) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__


@contextmanager
def _watched(executor: _OnCluster) -> Iterator[None]:
    """Give up after LOST_S without workers: dask would wait for the next one for ever."""
    over = threading.Event()

    def watch() -> None:
        seen = time.monotonic()
        while not over.wait(LOOK_S):
            try:
                if executor.client.nthreads():
                    seen = time.monotonic()
            except Exception:  # the scheduler is gone, as the futures say
                return
            if time.monotonic() - seen > LOST_S:
                executor.give_up()
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def _by_value() -> Iterator[None]:
    """Send the user's functions and classes as code: workers need no copy of the file, and never use an older one."""
    import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()
    own = [
        module
        for name, module in [*sys.modules.items()]
        if name not in known and name == module.__name__ and is_users(getattr(module, "__file__", None) or "<frozen")
    ]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep dask's own log off stderr: anything important in it becomes an error of the sweep."""
    import dask
    import distributed  # noqa: F401  # adds its own settings to ours, which are restored at the end

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in LOGGERS]
    loggers = [logging.getLogger(name) for name in (*LOGGERS, *names)]
    before = [logger.level for logger in loggers]
    settings = {
        "logging": dict.fromkeys(LOGGERS, "critical"),  # for the processes of local:N
        "distributed.admin.large-graph-warning-threshold": "1TB",  # it is a trace
    }
    with dask.config.set(settings):
        for logger in loggers:
            logger.setLevel(SILENT)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
