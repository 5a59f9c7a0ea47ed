"""Workers on other machines, or in separate processes, through the scheduler of dask.distributed."""

from __future__ import annotations

import hashlib
import logging
import pickle
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import flashmoe_sim
from flashmoe_sim.io.errors import Conflict, Malformed, Missing, SimError, Unusable
from flashmoe_sim.io.whole import temporary_folder
from flashmoe_sim.outside import is_users
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.sweep.passes import kept_bytes
from flashmoe_sim.sweep.workers import Lost, OpenWorkers, Workers

INSTALL = "pip install '.[cluster]'"
ADDRESS = re.compile(r"tcp://[^\s/:]+:\d{1,5}|tcp://\[[0-9a-f:.]+\]:\d{1,5}", re.IGNORECASE)
MOST_LOCAL = 256
CONNECT_S = 10
BATCH_MS = 50  # since the scheduler takes about 5 ms for each
KEPT_BYTES = 1 << 30  # of traces that workers keep between sweeps, with their pools
KEPT = "flashmoe-sim"
LOST_S = 60  # without a worker, after which a sweep gives up: dask would wait for the next one for ever
LOOK_S = 2
WAIT_S = 0.02
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
        yield Workers(partial(_mapped, client, name), BATCH_MS)


def _mapped(
    client: Any, name: str, run: Callable[[Any, Workload], Any], jobs: Sequence[tuple[Any, Workload]]
) -> Iterator[tuple[int, Any]]:
    """The results of jobs, which are sent as bytes that only a worker of the same version reads."""
    import cloudpickle
    import distributed
    from distributed.scheduler import KilledWorker

    as_completed: Any = distributed.as_completed
    workloads = {workload.content_id: workload for _, workload in jobs}
    brought = {content_id: _bring(client, workload) for content_id, workload in workloads.items()}
    sent = [cloudpickle.dumps((run, passes)) for passes, _ in jobs]
    held = [brought[workload.content_id] for _, workload in jobs]
    futures = client.map(_on_worker, [about()] * len(jobs), sent, held, [secrets.token_hex(8)] * len(jobs), pure=False)
    numbers = {future.key: number for number, future in enumerate(futures)}
    done = as_completed(futures, loop=client.loop, with_results=True)
    lost = f"cluster {name}: lost in the middle of the sweep:"
    seen = looked = time.monotonic()
    try:
        while not done.is_empty():
            while done.has_ready():
                future, result = next(done)
                if future.cancelled():
                    raise Lost(f"{lost} the scheduler is gone")
                yield numbers[future.key], result
            time.sleep(WAIT_S)
            if (now := time.monotonic()) - looked > LOOK_S:
                looked = now
                with suppress(Exception):  # the scheduler is gone, as the futures say
                    seen = now if client.nthreads() else seen
                if now - seen > LOST_S:
                    raise Lost(f"{lost} no worker for {LOST_S} s")
    except KilledWorker as error:
        advice = "give the workers more memory, or find out what kills them"
        times = error.allowed_failures + 1
        raise Lost(f"cluster {name}: {times} workers died, one after another, on the same passes; {advice}") from None


def _bring(client: Any, workload: Workload) -> Any:
    """A workload on the workers, who get it from one another: an earlier sweep's, or sent now and kept for later ones.

    As many are kept, the latest, as have room.
    """
    what = f" {about()['source']} {workload.content_id} {kept_bytes(workload)}"
    names = sorted(name for name in map(str, client.list_datasets()) if name.startswith(f"{KEPT} "))
    for name in (one for one in names if one.endswith(what)):
        with suppress(KeyError):  # another sweep took it away
            known = client.get_dataset(name)
            if known.status in {"pending", "finished"}:
                return known
    sent = client.submit(_arrived, workload, pure=False)
    room = KEPT_BYTES - kept_bytes(workload)
    if room >= 0:
        while sum(int(name.rpartition(" ")[2]) for name in names) > room:
            client.unpublish_dataset(names.pop(0))
        client.publish_dataset(sent, name=f"{KEPT} {time.time_ns():020}{what}")
    return sent


def _arrived(workload: Workload) -> Workload:
    return workload


IN_SWEEP: WeakKeyDictionary[Workload, tuple[str, Workload]] = WeakKeyDictionary()  # what arrived, in the latest sweep


def _on_worker(sender: About, sent: bytes, arrived: Workload, sweep: str) -> Any:
    if difference := _difference(sender):
        raise SimError(f"a worker has {difference}")
    run, passes = pickle.loads(sent)  # noqa: S301 - from the sweep that this worker serves
    if arrived not in IN_SWEEP or IN_SWEEP[arrived][0] != sweep:  # another sweep could read other files
        IN_SWEEP[arrived] = sweep, Workload(arrived.trace, arrived.geometry)
    return run(passes, IN_SWEEP[arrived][1])


@cache
def about() -> About:
    """What must be equal for equal rows; also the sources, since development does not change the version."""
    package = Path(flashmoe_sim.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(package.rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes())
    return {
        "flashmoe-sim": version("flashmoe-sim"),
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
def _by_value() -> Iterator[None]:
    """Send the user's functions and classes as code: workers need no copy of the file, and never use an older one."""
    import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()
    with ExitStack() as stack:
        for name, module in [*sys.modules.items()]:
            file = getattr(module, "__file__", None) or "<frozen"
            if name not in known and name == module.__name__ and is_users(file):
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep dask's own log off stderr: anything important in it becomes an error of the sweep."""
    import dask
    import distributed  # noqa: F401  # adds its own settings to ours, which are restored at the end

    settings = {
        "logging": dict.fromkeys(LOGGERS, "critical"),  # for the processes of local:N
        "distributed.admin.large-graph-warning-threshold": "1TB",  # it is a trace
    }
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in LOGGERS]
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        for logger in map(logging.getLogger, {*LOGGERS, *names}):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(SILENT)
        yield
