"""What files and names say never reaches the terminal as control characters, and standard streams may be closed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from importlib import resources
from pathlib import Path

import pytest

from flashmoe_sim.cli.common import interruptible, print_sections
from flashmoe_sim.io.printable import printable
from flashmoe_sim.io.sections import Command, Section
from flashmoe_sim.trace.store import write_store
from native_bridge.cli.main import main
from tests.geometry.conftest import document, entry, write
from tests.trace.strategies import trace_of

ENTRY = "from native_bridge.cli.main import entry; entry()"
HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[31m\x9b31m\u202e\x00\r"
CONTROL = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x202E)} - {"\n"}
ROUTES = (
    "# route_trace v1\n# n_layer=1 n_expert=8 n_expert_used=2\n# model=/models/{} arch=x\n"
    "# layer=0 expert_bytes=100 dense_bytes=10\n"
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n0,1,0,0,0,1,0.5,0,100\n0,1,0,0,1,2,0.5,0,100\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for each door through which a text of somebody else comes in."""
    monkeypatch.chdir(tmp_path)
    store = trace_of((0, [1, 2]), (0, [2, 3]), name=HOSTILE, notes=(HOSTILE,), format=HOSTILE)
    write_store(store, Path("names.parquet"))
    Path("model.csv").write_text(ROUTES.format(HOSTILE.replace("\r", "")), newline="")
    Path("column.csv").write_text(f"layer,expert,{HOSTILE.replace(chr(13), '')}\n0,1,2\n", newline="")
    Path("text.txt").write_text(HOSTILE)
    Path("value.csv").write_text(f"layer,expert\n0,1\n0,{HOSTILE.replace(chr(13), '')}\n0,1\n", newline="")
    Path("line.jsonl").write_text('{"layer":0,"n_expert_used":1,"n_tokens":1,"experts":[1]}\n' * 3)
    Path("good.jsonl").write_bytes(Path("line.jsonl").read_bytes())
    Path("\x1b[31mred.jsonl").write_bytes(Path("line.jsonl").read_bytes())
    entries = [entry(0, family, 100, experts=8) for family in ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")]
    for one in entries:
        one["quant_type"] = HOSTILE
    entries.append(entry(0, HOSTILE, 100, experts=8))
    Path("sidecar").mkdir()
    write(Path("sidecar"), document(entries) | {"source": {"model_files": [HOSTILE]}})
    machine = resources.files("flashmoe_sim.machines").joinpath("presets", "m2-16.toml").read_text("utf-8")
    escaped = json.dumps(HOSTILE).strip('"').replace("\x9b", "\\u009b").replace("\x7f", "\\u007f")
    Path("machine.toml").write_text(
        "\n".join(f'title = "{escaped}"' if line.startswith("title") else line for line in machine.splitlines())
    )
    Path("unknown.toml").write_text(f'"{escaped}" = 1\n{machine}')
    return tmp_path


COMMANDS = (
    "trace inspect names.parquet",
    "trace lint names.parquet",
    "replay names.parquet --bank 4",
    "sweep names.parquet --bank 4",
    "sweep names.parquet --bank 4 --json",
    "diagnose names.parquet --bank 4",
    "trace inspect names.parquet --json",
    "trace inspect model.csv",
    "trace inspect column.csv",
    "trace lint column.csv",
    "trace inspect text.txt",
    "trace inspect value.csv",
    "trace inspect value.csv --lenient",
    "trace inspect \x1b[31mred.jsonl",
    "trace inspect \x1b[31mmissing.jsonl",
    "trace convert good.jsonl \x1b[31mout.parquet",
    "trace convert good.jsonl \x1b[31mout.parquet --json --force",
    "replay line.jsonl --bank 4 --model sidecar",
    "model show sidecar",
    "model show sidecar --json",
    "model show \x1b[31m",
    "machine show machine.toml",
    "machine show machine.toml --json",
    "machine show unknown.toml",
    "replay good.jsonl --bank \x1b[31m",
    "replay good.jsonl --bank 4 --policy \x1b[31m",
    "\x1b[31m",
)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", COMMANDS)
def test_no_control_character_is_printed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(command.split(" "))
    printed = capsys.readouterr()
    assert printed.out or printed.err
    assert CONTROL.isdisjoint(printed.out + printed.err)
    if code == 0 and command.endswith("--json"):
        json.loads(printed.out)


def test_printable() -> None:
    assert printable("naïve → 東京 🙂\n\ttab") == "naïve → 東京 🙂\n\ttab"
    assert printable("\x1b[2J\x9b\u202e\udcff\x7f") == r"\x1b[2J\x9b\u202e\udcff\x7f"


LONG = "llama-server -m 'MY MODEL -ngl.gguf' -c 4096 --n-cpu-moe 32 -fa on -p \"it's --here\""


@pytest.mark.parametrize("label", ["    ", "Run    "])
@pytest.mark.parametrize("command", [LONG, "a 'quote that does not end -b -c -d -e -f -g -h -i -j -k -l -m"])
def test_a_long_command_can_be_pasted_from_a_narrow_terminal(
    command: str, label: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    sections = [Section("", (Command(command, label),))]
    print_sections(sections)
    assert capsys.readouterr().out == f"{label}{command}\n", "a script gets it whole"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_sections([Section("", (Command(command, label, whole=True),))])
    assert capsys.readouterr().out == f"{label}{command}\n", "PowerShell continues no line at a backslash"
    print_sections(sections)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(label)
    lines[0] = lines[0].removeprefix(label)
    if command == LONG:
        assert max(map(len, [f"{label}{lines[0]}", *lines[1:]])) <= 40
        script = "\n".join(["set -- \\", *lines, 'printf "%s\\n" "$@"'])
        pasted = subprocess.run(["sh", "-c", script], check=True, capture_output=True)
        assert pasted.stdout.decode().splitlines() == shlex.split(command)
    else:
        assert lines == [command]


def run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A shell command in which SIM is the program."""
    sim = f"{sys.executable} -c '{ENTRY}'"
    return subprocess.run(
        ["bash", "-c", command.replace("SIM", sim)],
        capture_output=True,
        check=False,
        cwd=folder,
        env={**os.environ, **environment},
    )


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write_store(trace_of((0, [1, 2]), (0, [2, 3])), tmp_path / "t.parquet")
    return tmp_path


def test_a_closed_stdout_is_no_error(trace: Path) -> None:
    done = run("SIM trace inspect t.parquet >&-", trace)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = run("SIM trace convert t.parquet u.jsonl >&- 2>&-", trace)
    assert done.returncode == 0
    assert (trace / "u.jsonl").read_bytes().count(b"\n") == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_stdout_is_one_line(trace: Path) -> None:
    for verb in ("inspect", "inspect --json"):
        done = run(f"SIM trace {verb} t.parquet > /dev/full", trace)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert b"sim: the output cannot be written ([Errno 28] No space left on device)" in done.stderr


def test_a_folder_that_is_gone(trace: Path) -> None:
    done = run("mkdir gone && cd gone && rmdir ../gone && SIM trace convert ../t.parquet u.parquet", trace)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"u.parquet: cannot be written" in done.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
def test_a_file_name_that_is_not_utf_8(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = trace / os.fsdecode(b"a\xff.jsonl")
    odd.write_bytes(b'{"layer":0,"n_expert_used":1,"n_tokens":1,"experts":[1]}\n')
    for command in (
        ["trace", "inspect"],
        ["sweep", "--bank", "2", "--out", str(trace / "o")],
        ["replay", "--bank", "2"],
    ):
        assert main([*command, "--json", str(odd)]) == 0
        assert "a\ufffd" in capsys.readouterr().out
    assert main(["trace", "convert", str(odd), str(trace / os.fsdecode(b"b\xff.parquet")), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["out"].endswith("b\ufffd.parquet")
    assert main(["trace", "inspect", str(trace / os.fsdecode(b"missing\xff.jsonl"))]) == 2
    assert "missing\\udcff.jsonl: no such file" in capsys.readouterr().err


def test_ctrl_c_while_it_is_imported() -> None:
    interrupted = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from native_bridge.entry import entry\n"
        "entry()\n"
    )
    done = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"sim: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGINT to send")
def test_ctrl_c_does_not_wait_for_work_that_goes_on() -> None:
    end, ended = threading.Event(), threading.Event()

    def work() -> None:
        try:
            end.wait(0.1)  # until it is waited for
            os.kill(os.getpid(), signal.SIGINT)
            end.wait(5)
        finally:
            ended.set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interruptible(work)
        assert not ended.is_set()
    finally:
        end.set()
        signal.signal(signal.SIGINT, before)


def test_too_little_memory_is_one_line(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("flashmoe_sim.trace.store.read", no_memory)
    assert main(["trace", "inspect", str(trace / "t.parquet")]) == 2
    assert capsys.readouterr().err == (
        "sim: not enough memory; give fewer or shorter traces at once, or raise the limit\n"
    )
