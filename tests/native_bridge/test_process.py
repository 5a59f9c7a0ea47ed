"""Child processes: their output, and that none of them is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flashmoe_sim.io.errors import SimError, Unusable
from native_bridge.process import KEPT_BYTES, MAX_ANSWER_BYTES, Around, ask, run_child

HANG = "import time; print('begun', flush=True); time.sleep(60)"
# a child of a child that writes its process id to a file, and hangs
FAMILY = """
import subprocess, sys, time
young = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(str(young.pid))
print("begun", flush=True)
time.sleep(float(sys.argv[2]))
"""
OURS = """
import sys
from pathlib import Path
from native_bridge.process import run_child
run_child([sys.executable, "-c", sys.argv[1], sys.argv[2], "60"], output=Path(sys.argv[3]), timeout_s=60)
"""


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-c", *arguments]


def gone(pid: int) -> bool:
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def wait_for(path: Path) -> str:
    for _ in range(200):
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{path} stays empty")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("line", ["y\n", "y"])
def test_a_program_that_prints_without_end(tmp_path: Path, stream: str, line: str) -> None:
    program = f"import sys\nwhile True: sys.{stream}.write({line * 4096!r})"
    finished = run_child(
        python(program), output=tmp_path / "log", stdout=tmp_path / "out", timeout_s=60, most_bytes=3 * KEPT_BYTES
    )
    assert (finished.flooded, finished.timed_out, finished.code) == (True, False, -signal.SIGKILL)
    assert (tmp_path / "log").read_bytes() == (line * KEPT_BYTES).encode()[:KEPT_BYTES]
    assert (tmp_path / "out").stat().st_size == (KEPT_BYTES if stream == "stdout" else 0)


def test_as_much_as_may_be_printed_is_all_kept(tmp_path: Path) -> None:
    program = f"import sys; sys.stdout.write('y' * {3 * KEPT_BYTES})"
    finished = run_child(python(program), output=tmp_path / "log", timeout_s=60, most_bytes=3 * KEPT_BYTES)
    assert (finished.flooded, finished.code) == (False, 0)
    assert (tmp_path / "log").read_text() == "y" * 3 * KEPT_BYTES


def test_both_streams_go_to_the_file(tmp_path: Path) -> None:
    program = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    finished = run_child(python(program), output=tmp_path / "log", timeout_s=60)
    assert (tmp_path / "log").read_text() == "out\nerr\n"
    assert finished.code == 3
    assert not finished.timed_out
    assert 0 < finished.seconds < 60


def test_arguments_are_no_shell_commands(tmp_path: Path) -> None:
    run_child(python("import sys; print(sys.argv[1:])", "a b; $HOME *", ""), output=tmp_path / "log", timeout_s=60)
    assert (tmp_path / "log").read_text() == "['a b; $HOME *', '']\n"


def test_folder_environment_and_watch(tmp_path: Path) -> None:
    seen: list[float] = []
    program = "import os, time; print(os.getcwd(), os.environ.get('GIVEN')); time.sleep(0.3)"
    run_child(
        python(program),
        output=tmp_path / "log",
        timeout_s=60,
        around=Around({"GIVEN": "yes"}, tmp_path),
        watch=seen.append,
    )
    assert (tmp_path / "log").read_text() == f"{tmp_path} yes\n"
    assert seen == sorted(seen)
    assert len(seen) >= 2


def test_a_crash_is_its_signal(tmp_path: Path) -> None:
    finished = run_child(python("import os; os.kill(os.getpid(), 11)"), output=tmp_path / "log", timeout_s=60)
    assert finished.code == -signal.SIGSEGV


def test_time_is_up(tmp_path: Path) -> None:
    finished = run_child(python(FAMILY, str(tmp_path / "pid"), "60"), output=tmp_path / "log", timeout_s=3)
    assert finished.timed_out
    assert finished.code == -signal.SIGKILL
    assert gone(int((tmp_path / "pid").read_text()))


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    finished = run_child(python(FAMILY, str(tmp_path / "pid"), "0"), output=tmp_path / "log", timeout_s=60)
    assert finished.code == 0
    assert finished.seconds < 30
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_everything_ends_with_us(tmp_path: Path, number: int) -> None:
    us = subprocess.Popen(
        python(OURS, FAMILY, str(tmp_path / "pid"), str(tmp_path / "log")), stderr=subprocess.PIPE, env=os.environ
    )
    young = int(wait_for(tmp_path / "pid"))
    wait_for(tmp_path / "log")
    old = psutil.Process(young).ppid()
    us.send_signal(number)
    us.communicate(timeout=20)
    assert us.returncode != 0
    assert gone(young)
    assert gone(old)


def test_everything_ends_with_an_exception(tmp_path: Path) -> None:
    def fail(seconds: float) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        run_child(python(FAMILY, str(tmp_path / "pid"), "60"), output=tmp_path / "log", timeout_s=60, watch=fail)
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_full_disk_is_one_line() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no device that is always full")
    with pytest.raises(SimError, match=r"/dev/full: cannot be written \(No space left on device\); free the disk"):
        run_child(python(HANG), output=full, timeout_s=60)


@pytest.mark.parametrize(
    ("program", "why"), [("/nowhere/x", "No such file or directory"), ("/", "Permission denied"), ("a\0b", "null")]
)
def test_a_program_that_cannot_be_started(tmp_path: Path, program: str, why: str) -> None:
    with pytest.raises(Unusable, match=f"cannot be started .*{why}"):
        run_child([program], output=tmp_path / "log", timeout_s=60)


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program\n")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(Unusable, match=r"cannot be started .*Exec format error"):
        ask([str(tmp_path / "text")], timeout_s=60)


def test_ask_keeps_the_streams_apart() -> None:
    answer = ask(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(2)"), timeout_s=60)
    assert (answer.code, answer.stdout, answer.stderr, answer.timed_out) == (2, "out\n", "err\n", False)


def test_ask_is_bounded_in_bytes_and_time() -> None:
    program = "import sys\nwhile True: sys.stdout.write('x' * 4096); sys.stderr.write('y')"
    answer = ask(python(program), timeout_s=1)
    assert answer.timed_out
    assert answer.stdout == "x" * MAX_ANSWER_BYTES


def test_no_open_files_are_left(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    for _ in range(3):
        run_child(python("pass"), output=tmp_path / "log", timeout_s=60)
        with pytest.raises(Unusable):
            ask(["/nowhere/x"], timeout_s=60)
    assert psutil.Process().num_fds() == before
