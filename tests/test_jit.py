"""Compiled kernels: never stale, kept if that is possible, and no trouble if it is not."""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import pytest

import flashmoe_sim
from flashmoe_sim import _jit
from flashmoe_sim.cache import cache_root
from flashmoe_sim.residency import curve

PACKAGE = Path(flashmoe_sim.__file__).parent
HELPER = """
from flashmoe_sim._jit import jit

@jit
def answer(n):
    return n + {}
"""
KERNEL = """
from flashmoe_sim._jit import jit
from flashmoe_sim.toy_helper import answer

@jit
def twice(n):
    return 2 * answer(n)
"""
# What unpickling them raises: UnicodeDecodeError, KeyError, AttributeError, IndexError and more
RANDOM_BYTES = [random.Random(seed).randbytes(4000) for seed in range(2)] + [b"X\x01\0\0\0\xff.", b"cno\nsuch\n.", b"0"]
MAKERS = {"jit", "allocating", "inlined"}
RUN = "from flashmoe_sim.toy_kernel import twice; print(twice(1), len(twice.stats.cache_hits))"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package with a kernel in one file that calls a kernel in another."""
    copy = tmp_path / "flashmoe_sim"
    copy.mkdir()
    for name in ("__init__.py", "_jit.py", "cache.py"):
        shutil.copy(PACKAGE / name, copy)
    (copy / "toy_helper.py").write_text(HELPER.format(1))
    (copy / "toy_kernel.py").write_text(KERNEL)
    return copy


# It has numba imported, which takes most of a second; for every line it forks a process that imports a package.
FORKING = """
import os, sys, traceback
import numba.core.caching, numba.extending
for line in sys.stdin:
    folder, cache, code, printed = eval(line)
    if not (child := os.fork()):
        os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        os.environ["FLASHMOE_CACHE"] = cache
        os.chdir(folder)
        sys.path.insert(0, folder)
        try:
            exec(code, {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
        print(end="", flush=True)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""
Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """What code prints in a process that imports a copy of the package, with a cache."""
    printed = tmp_path_factory.mktemp("printed") / "lines"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", FORKING], **pipes) as forking:

        def run(package: Path, cache: Path, code: str = RUN) -> list[str]:
            forking.stdin.write(f"{(str(package.parent), str(cache), code, str(printed))!r}\n")
            forking.stdin.flush()
            assert forking.stdout.readline() == "0\n"
            return printed.read_text().split()

        yield run


def test_an_edit_in_another_file_is_seen(run: Run, package: Path, tmp_path: Path) -> None:
    """numba by itself answers 4 to the third run, for the file of `twice` has not changed."""
    cache = tmp_path / "cache"
    assert run(package, cache) == ["4", "0"]
    assert run(package, cache) == ["4", "1"]
    helper = package / "toy_helper.py"
    times = helper.stat()
    helper.write_text(HELPER.format(5))
    os.utime(helper, ns=(times.st_atime_ns, times.st_mtime_ns))  # the content decides, not the time
    assert run(package, cache) == ["12", "0"]
    helper.write_text(HELPER.format(1))
    assert run(package, cache) == ["4", "1"]


def test_an_edit_after_the_kernels_keeps_them_unless_the_file_makes_kernels(
    run: Run, package: Path, tmp_path: Path
) -> None:
    cache, code = tmp_path / "cache", RUN.replace("toy_kernel", "tune.toy_kernel")
    for folder in ("tune", "systems"):
        (package / folder).mkdir()
    (package / "tune" / "toy_kernel.py").write_text(KERNEL)
    assert run(package, cache, code) == ["4", "0"]
    (package / "systems" / "toy.py").write_text("settings = 1")
    assert run(package, cache, code) == ["4", "1"]
    (package / "systems" / "other_kernel.py").write_text(HELPER.format(7))
    assert run(package, cache, code) == ["4", "0"]


def imported(tree: ast.AST) -> set[str]:
    """The first folder or file in the package of everything that a file imports from it, anywhere in it."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("flashmoe_sim.")}


def test_no_kernel_can_take_a_function_or_a_number_from_what_comes_after_the_kernels() -> None:
    after = {name.removesuffix(".py") for name in _jit._AFTER_KERNELS}
    assert all((PACKAGE / name).exists() for name in _jit._AFTER_KERNELS)
    naming = set()
    for source in PACKAGE.rglob("*.py"):
        place, text = source.relative_to(PACKAGE), source.read_text()
        if place.parts[0] not in _jit._AFTER_KERNELS or "_jit" in text:
            assert not imported(ast.parse(text)) & after, place
            naming |= {place.as_posix()} if place.parts[0] in _jit._AFTER_KERNELS else set()
        else:  # what others compile for it: a policy's kernels, the order of events of an execution model
            assert not re.search(r"\b(kernels|serve)\b.*=|from numba|import numba", text), place
    assert naming == {"cli/progress.py"}


def test_no_kernel_returns_a_named_tuple() -> None:
    """numba makes one by Python code whose failure it does not check: Ctrl-C in it is a segmentation fault."""
    named, made = set(), {}
    for source in PACKAGE.rglob("*.py"):
        text = source.read_text()
        if "NamedTuple" not in text and "_jit" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases):
                named.add(node.name)
            if isinstance(node, ast.FunctionDef) and MAKERS & set(map(ast.unparse, node.decorator_list)):
                returns = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
                made[node.name, source] = {ast.unparse(one.func) for one in returns if isinstance(one, ast.Call)}
    assert "Position" in named
    assert len(made) > 100
    assert {name: calls & named for name, calls in made.items() if calls & named} == {}


def test_one_name_for_other_kernels_is_another_kernel(run: Run, package: Path, tmp_path: Path) -> None:
    """As when the policy in a notebook, made of kernels of the package, is made of others the next time."""
    (package / "toy_parts.py").write_text(
        "def engine(n):\n    return step(n)\n\ndef add(n):\n    return n + 10\n\ndef multiply(n):\n    return n * 10\n"
    )
    code = (
        "from flashmoe_sim import _jit, toy_parts;"
        "step = _jit.specialise(toy_parts.{}, 'step_mine');"
        "engine = _jit.specialise(toy_parts.engine, 'engine_mine', step=step);"
        "print(engine(7), len(engine.stats.cache_hits))"
    )
    cache = tmp_path / "cache"
    assert run(package, cache, code.format("add")) == ["17", "0"]
    assert run(package, cache, code.format("multiply")) == ["70", "0"]
    assert run(package, cache, code.format("add")) == ["17", "1"]


def test_only_the_newest_versions_are_kept(run: Run, package: Path, tmp_path: Path) -> None:
    versions = tmp_path / "cache" / "kernels"
    for number in range(7):
        old = versions / f"old-{number}"
        old.mkdir(parents=True)
        (old / "kernel.nbc").touch()
        os.utime(old, (number, number))
    assert run(package, tmp_path / "cache") == ["4", "0"]
    kept = {entry.name for entry in versions.iterdir()}
    assert {"old-6", "old-5", "old-4"} < kept
    assert len(kept) == _jit._KEPT_VERSIONS


def test_a_clock_that_was_set_back_keeps_the_version_in_use(run: Run, package: Path, tmp_path: Path) -> None:
    versions = tmp_path / "cache" / "kernels"
    for number in range(7):
        (versions / f"later-{number}").mkdir(parents=True)
        os.utime(versions / f"later-{number}", (2**33 + number, 2**33 + number))
    assert run(package, tmp_path / "cache") == ["4", "0"]
    assert run(package, tmp_path / "cache") == ["4", "1"]
    assert len(list(versions.iterdir())) == _jit._KEPT_VERSIONS


def test_a_cache_that_cannot_be_written_is_done_without(run: Run, package: Path, tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    for _ in range(2):
        assert run(package, tmp_path / "a-file") == ["4", "0"]


def test_a_full_disk_only_means_that_nothing_is_kept(run: Run, package: Path, tmp_path: Path) -> None:
    full = """
import errno, os
from numba.core import caching
def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
caching.IndexDataCacheFile._save_data = no_space
"""
    cache = tmp_path / "cache"
    assert run(package, cache, full + RUN) == ["4", "0"]
    assert run(package, cache) == ["4", "0"]
    assert run(package, cache) == ["4", "1"]


@pytest.mark.parametrize(
    ("ending", "damages"), [("nbi", [b"", b"\x80", b"not a pickle", *RANDOM_BYTES]), ("nbc", [b"", RANDOM_BYTES[0]])]
)
def test_a_damaged_cache_is_made_again(
    run: Run, package: Path, tmp_path: Path, ending: str, damages: list[bytes]
) -> None:
    """As it is after a power cut: files that are there, and empty."""
    cache = tmp_path / "cache"
    assert run(package, cache) == ["4", "0"]
    outer, inner = damages[::2], damages[1::2]  # the inner kernel is read only if the outer one is damaged
    for number, damage in enumerate(outer):
        for name, what in (("twice", damage), ("answer", inner[number % len(inner)])):
            (path,) = cache.rglob(f"*.{name}-*.{ending}")
            path.write_bytes(what)
        assert run(package, cache) == ["4", "0"], damage
    assert run(package, cache) == ["4", "1"]


def test_the_cache_is_the_user_s_alone(
    run: Run, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it runs: nobody else may write there."""
    kernels = tmp_path / "cache" / "kernels"
    kernels.mkdir(parents=True)
    kernels.chmod(0o777)
    assert run(package, tmp_path / "cache") == ["4", "0"]
    assert kernels.stat().st_mode & 0o777 == 0o700
    assert run(package, tmp_path / "cache") == ["4", "1"]
    monkeypatch.setattr(os, "getuid", lambda: kernels.stat().st_uid + 1)
    assert not _jit._is_private(kernels)
    of_somebody_else = "import os; uid = os.getuid(); os.getuid = lambda: uid + 1;"
    assert run(package, tmp_path / "cache", of_somebody_else + RUN) == ["4", "0"]


@pytest.fixture
def fresh() -> Iterator[None]:
    """The folder of kernels is looked up again, in this test and after it."""
    _jit.kernel_cache.cache_clear()
    yield
    _jit.kernel_cache.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("FLASHMOE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert _jit.kernel_cache() is None


@pytest.mark.usefixtures("fresh")
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLASHMOE_CACHE", str(tmp_path / "given"))
    assert cache_root() == tmp_path / "given"
    folder = _jit.kernel_cache()
    assert folder.parent == tmp_path / "given" / "kernels"
    monkeypatch.delenv("FLASHMOE_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "flashmoe-sim"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path.home() / ".cache" / "flashmoe-sim"


def engine(n: int) -> int:
    return step(n) + 1  # type: ignore[no-any-return]


def step(n: int) -> Any:
    raise NotImplementedError


def double(n: int) -> int:
    return 2 * n


def outside(function: Any) -> Any:
    """The function as a policy in a notebook would have it."""
    copy = types.FunctionType(function.__code__, {}, function.__name__)
    copy.__module__ = "__main__"
    return copy


def test_specialise_binds_kernels_by_name() -> None:
    doubled = _jit.specialise(engine, "engine_double", step=outside(double))
    squared = _jit.specialise(engine, "engine_square", step=outside(lambda n: n * n))
    assert (doubled(5), squared(5)) == (11, 26)
    assert doubled.py_func.__name__ == "engine_double"


def test_what_is_from_outside_is_not_kept_on_disk() -> None:
    """Its file is outside the package, so an edit there would not change the kernel's folder."""
    inside = types.FunctionType(engine.__code__, {}, "engine")
    inside.__module__ = "flashmoe_sim.residency.atomic"
    kernel = _jit.specialise(inside, "engine_outside", step=outside(double))
    assert kernel(5) == 11
    assert kernel.stats.cache_path is None
    assert _jit.jit(outside(double)).stats.cache_path is None


def test_a_policy_from_outside_runs(tmp_path: Path) -> None:
    """`--policy my_policies:Newest`, in a module beside the trace: it evicts what was used last."""
    (tmp_path / "my_policies.py").write_text(
        "from flashmoe_sim.policies.lru import Lru\n"
        "def choose_victim(state, slot_key, blocked, mark):\n"
        "    newest = -1\n"
        "    for slot in range(len(slot_key)):\n"
        "        if slot_key[slot] >= 0 and blocked[slot] != mark:\n"
        "            newest = slot\n"
        "    return newest\n"
        "class Newest(Lru):\n"
        '    """Evict from the last slot."""\n'
        '    name = "my_policies:Newest"\n'
        '    kernels = {**Lru.kernels, "choose_victim": choose_victim}\n'
    )
    (tmp_path / "trace.jsonl").write_text("[[0, 0]]\n[[0, 1]]\n[[0, 2]]\n[[0, 0]]\n[[0, 1]]\n")
    code = "import sys; sys.path.insert(0, ''); from native_bridge.cli.main import entry; entry()"
    command = [sys.executable, "-c", code, "replay", "trace.jsonl", "--bank", "2", "--contract", "atomic", "--policy"]
    hits = []
    for policy in ("my_policies:Newest", "lru"):
        done = subprocess.run([*command, policy], capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stderr == ""
        hits.append(next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("hits")))
    assert hits == ["1", "0"]  # 0 stays in the first slot
    cached = _jit.kernel_cache()
    if cached is not None:
        assert list(cached.rglob("*choose_victim_my_policies*")) == []
        assert list(cached.rglob("*replay_my_policies*")) == []


def test_threads_that_compile_at_once_keep_kernels_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is handed to numba in a variable that all threads share: none may change it under another."""
    kept = _jit._KernelCache

    def slowly(function: Any) -> Any:
        time.sleep(0.001)
        return kept(function)

    monkeypatch.setattr(_jit, "_KernelCache", slowly)
    with ThreadPoolExecutor(8) as threads:
        kernels = list(threads.map(_jit.jit, [curve._min_bypass.py_func] * 100))
    (folder,) = {Path(kernel._cache.cache_path) for kernel in kernels}
    assert folder.parent == _jit.kernel_cache()


@numba.njit  # type: ignore[untyped-decorator]
def countdown(number: int) -> int:
    return 0 if number <= 0 else countdown(number - 1)


def test_a_function_that_calls_itself_is_copied_once() -> None:
    def calls_it(number: int) -> int:
        return countdown(number)

    assert _jit.bounds_checked(calls_it)(3) == 0
    assert _jit.bounds_checked(countdown.py_func)(3) == 0


COMPILED = """
from numba.core import event

class Compiled(event.Listener):
    def on_start(self, event):
        print(event.data["dispatcher"].py_func.__module__)
    def on_end(self, event):
        pass

event.register("numba:compile", Compiled())
from flashmoe_sim import api
api.sweep("gpt-oss-120b", bank="8,16")
"""


def test_a_first_sweep_compiles_no_strings(run: Run, tmp_path: Path) -> None:
    """An array function in a kernel compiles the text of an error about shapes, which takes two seconds."""
    modules = run(PACKAGE, tmp_path, COMPILED)
    assert "flashmoe_sim.residency.curve" in modules
    assert not [name for name in modules if name.startswith("numba.cpython.unicode")]
