"""Each promise of SECURITY.md."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from flashmoe_sim import _jit
from flashmoe_sim.geometry.manifest import read_manifest, repacked_files
from flashmoe_sim.io.errors import BadInput, Malformed, Missing, SimError
from flashmoe_sim.io.printable import without_home
from flashmoe_sim.io.sections import Command, Section, markdown
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.report.page import html
from flashmoe_sim.sweep.store import write_results
from native_bridge.cli.main import main
from native_bridge.engines.read import read_run
from tests.cli.test_terminal import CONTROL, HOSTILE
from tests.geometry.conftest import document, entry, write
from tests.native_bridge.conftest import MODEL, RECORDED
from tests.trace.jsonl_twin import in_layout

ROOT = Path(__file__).parents[1]
SOURCES = [path for folder in ("flashmoe_sim", "native_bridge") for path in sorted((ROOT / folder).rglob("*.py"))]
FAMILIES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
# (file, name): why that one is right
KNOWN = {
    ("flashmoe_sim/io/fetch.py", "import http"),  # only with --online: tests/geometry/test_online.py
    ("flashmoe_sim/io/fetch.py", "import urllib"),
    ("flashmoe_sim/outside.py", ".exec_module"),  # the user's own policy, by the name that was typed
    ("flashmoe_sim/sweep/cluster.py", "import pickle"),  # passes, on a worker that was started for it
    ("flashmoe_sim/sweep/cluster.py", "import cloudpickle"),
    ("flashmoe_sim/trace/source.py", "import zipfile"),  # members of bounded size, into memory
    ("native_bridge/capture/server.py", "import socket"),  # to end an answer that drips
    ("native_bridge/capture/server.py", "import http"),  # the server that was named
    ("flashmoe_sim/geometry/online.py", "import urllib"),  # to quote an address
    ("native_bridge/capture/server.py", "import urllib"),
    ("native_bridge/capture/transformers.py", ".eval"),  # torch's: a model that is not trained
    ("native_bridge/llama_server.py", "import socket"),  # the server that it started
    ("native_bridge/llama_server.py", "import urllib"),
}
RUNS_CODE = {"eval", ".eval", "exec", "compile", "__import__", ".exec_module", "allow_pickle", "trust_remote_code"}
UNSAFE = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "zipfile", "tarfile"}
SHELL = {"shell", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
NETWORK = {"socket", "urllib", "http", "requests", "httpx", "aiohttp", "ftplib", "smtplib"}


@cache
def names(path: Path) -> set[str]:
    return set(named(path))


def named(path: Path) -> Iterator[str]:
    """What a file imports, as `import os`; calls, as `open`, `.read` and `os.open`; and keywords that are not False."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (f"import {alias.name.partition('.')[0]}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield f"import {(node.module or '').partition('.')[0]}"
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id
            elif isinstance(node.func, ast.Attribute):
                yield f".{node.func.attr}"
                yield f"{ast.unparse(node.func.value)}.{node.func.attr}"
            yield from (word.arg or "" for word in node.keywords if not is_false(word.value))


def is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def imports(modules: set[str]) -> set[str]:
    return {f"import {name}" for name in modules}


def found(forbidden: set[str]) -> set[tuple[str, str]]:
    places = {(path.relative_to(ROOT).as_posix(), name) for path in SOURCES for name in forbidden & names(path)}
    return places - KNOWN


def test_the_search_finds_what_is_known() -> None:
    assert {(file, name) for file, name in KNOWN if name in names(ROOT / file)} == KNOWN


# 1, 7, 9


def test_nothing_evaluates_unpickles_or_unpacks() -> None:
    assert found(RUNS_CODE | imports(UNSAFE)) == set()


def test_a_module_is_imported_only_by_a_name_that_was_typed() -> None:
    assert {path.name for path in SOURCES if "find_class(" in path.read_text()} == {"outside.py", "parameters.py"}


def test_no_shell() -> None:
    assert found(SHELL) == set()


def test_no_network() -> None:
    assert found(imports(NETWORK)) == set()


# 2


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "..\\x", "C:\\x", "C:x", "\\\\host\\x", "a\0b", ""]
)
def test_a_manifest_names_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, document([entry(0, family, 100, repacked_file=name) for family in FAMILIES]))
    for read in (read_manifest, repacked_files):
        with pytest.raises(Malformed, match="expected a relative path inside the sidecar's folder"):
            read(path)


def test_a_manifest_names_files_below_it(tmp_path: Path) -> None:
    path = write(tmp_path, document([entry(0, family, 100, repacked_file=f"b/{family}") for family in FAMILIES]))
    assert repacked_files(path) == sorted(tmp_path / "b" / family for family in FAMILIES)


def test_a_split_model_is_looked_for_beside_the_file_given(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "m-00001-of-00002.gguf"
    file.write_bytes(MODEL.read_bytes())
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(MODEL.read_bytes())
    with pytest.raises(Missing, match=r"in/m-0000"):
        read_model(file)


def read_model(path: Path) -> object:
    from flashmoe_sim.geometry.gguf import read_gguf

    return read_gguf(path)


def run_folder(place: Path, **changes: object) -> Path:
    """A recorded run with other things in its run.json."""
    source = RECORDED / "prose-bank16"
    place.mkdir()
    (place / "log.txt").write_bytes((source / "log.txt").read_bytes())
    (place / "run.json").write_text(json.dumps(json.loads((source / "run.json").read_text()) | changes))
    return place


def test_of_what_a_run_names_only_models_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"password": 1}')
    sidecar = write(tmp_path / "sidecar", document([entry(0, family, 100) for family in FAMILIES])).parent
    for number, (model, expected) in enumerate(
        [
            ({"path": str(secret)}, None),
            ({"path": str(tmp_path)}, None),
            ({"path": "/dev/zero", "sidecar": "/etc"}, None),
            ({"path": "a\0b"}, None),
            ({"path": str(MODEL)}, MODEL),
            ({"path": str(secret), "sidecar": str(sidecar)}, sidecar),
        ]
    ):
        assert read_run(run_folder(tmp_path / f"run{number}", model=model)).model == expected


def test_a_run_names_another_by_its_folder_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder(tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    run = run_folder(tmp_path / "runs" / "one", mode="oracle-all-hit", replay_of="../elsewhere")
    main(["bridge", "check", str(run), "--json"])
    assert "which is neither beside it nor given" in capsys.readouterr().out


# 4


def test_an_error_is_one_line_without_control_characters() -> None:
    for error in (SimError(f"a\nb\t{HOSTILE}"), BadInput(HOSTILE, where=HOSTILE, advice=f"{HOSTILE}\n{HOSTILE}")):
        assert CONTROL.isdisjoint(str(error))
        assert "\n" not in str(error)
    assert str(SimError("a\n  b")) == "a b"


def test_no_door_lets_control_characters_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Doors that test_terminal.py does not have: runs, profiles, tables, curves, machine files."""
    monkeypatch.chdir(tmp_path)
    log = (RECORDED / "prose-bank16" / "log.txt").read_text()
    shown = HOSTILE.replace("\r", "").replace("\0", "")
    hostile = {"machine": HOSTILE, "prompt": HOSTILE, "extra": [HOSTILE], "environment": {HOSTILE: HOSTILE}}
    run_folder(Path("good"), **hostile)
    run_folder(Path("failed"), **hostile, failed=HOSTILE, rc=1)
    run_folder(Path("odd-mode"), mode=HOSTILE)
    run_folder(Path("odd-engine"), engine=HOSTILE)
    run_folder(Path("damaged"))
    Path("damaged/log.txt").write_text(log.replace("calls=3374", f"calls={shown}") + f"GGML_ASSERT({shown}) failed\n")
    Path("t.jsonl").write_bytes(in_layout(24, used=2))
    Path("p.json").write_text(json.dumps({"schema": HOSTILE, "layers": []}))
    Path("r.csv").write_text(f"bank,hit_pct,{shown}\n{shown},1,2\n", newline="")
    Path("c.csv").write_text(f"bank,hit_pct\n{shown},1\n", newline="")
    Path("m.toml").write_text(f"name = {json.dumps(HOSTILE)[:-1]}\n")
    commands = [
        *(["bridge", "check", run] for run in ("good", "failed", "odd-mode", "odd-engine", "damaged")),
        ["machine", "fit", "good", "failed", "--out", "fitted.toml"],
        ["replay", "t.jsonl", "--bank", "4", "--policy", "hot-profile:profile=p.json", "--contract", "atomic"],
        ["predict", "--model", "gpt-oss-20b", "--machine", "m2-16", "--table", "r.csv"],
        ["trace", "synth", "--curve", "c.csv", "--layers", "1", "--experts", "8", "--topk", "2", "--out", "o.parquet"],
        ["machine", "show", "m.toml"],
        ["compare", "t.jsonl", "--model", "gpt-oss-20b", "--machine", "m2-16", "--system", f"placed:ot={HOSTILE}"],
    ]
    for command in commands:
        main(command)
        printed = capsys.readouterr()
        assert printed.out or printed.err
        assert CONTROL.isdisjoint(printed.out + printed.err), command


def test_a_machine_prints_as_toml_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machine", "show", "m2-16", "--toml"]) == 0
    path = tmp_path / "m.toml"
    title = '"\\u001b]0;x\\u0007\\u009b31m\\u202e"'
    path.write_text(re.sub("^title = .*$", lambda _: f"title = {title}", capsys.readouterr().out, flags=re.MULTILINE))
    assert main(["machine", "show", str(path), "--toml"]) == 0
    printed = capsys.readouterr().out
    assert title in printed
    assert CONTROL.isdisjoint(printed)


# 5, 6


def test_the_page_of_a_check_has_no_markup_of_a_run_and_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    markup = "<script>alert(1)</script>"
    runs = [run_folder(tmp_path / name, machine=markup, runtime={"version": markup}) for name in ("<b>bold", "other")]
    page = tmp_path / "page.html"
    main(["bridge", "check", *map(str, runs), "--out", str(page)])
    capsys.readouterr()
    text = page.read_text()
    assert "&lt;script&gt;" in text
    assert "<script>alert" not in text
    assert "<b>" not in text
    assert str(tmp_path) not in text
    assert "~/" in text


def test_pages_have_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    page = [
        Section(
            "/home/me/t",
            ("of /home/me/x, /home/meadow/y, /mnt/home/me/z", Command("sim '/home/me/a b' /home/me/c /home/me")),
        )
    ]
    for text in (html("/home/me/t", page), markdown(page)):
        assert "/home/me/" not in text.replace("/mnt/home/me/z", "")
        assert "/mnt/home/me/z" in text
        assert "/home/meadow/y" in text
    assert "sim ~/'a b' ~/c" in markdown(page)
    monkeypatch.setenv("HOME", "/")
    assert without_home("/etc/x") == "/etc/x"
    monkeypatch.setenv("HOME", "C:\\Users\\me")
    windows = 'sim C:\\Users\\me\\t "C:\\\\Users\\\\me\\\\t" C:\\Users\\meadow\\t C:/Users/x'
    assert without_home(windows) == 'sim ~\\t "~\\\\t" C:\\Users\\meadow\\t C:/Users/x'


def test_tables_and_documents_have_paths_only_as_they_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("t.jsonl").write_bytes(in_layout(24, used=2))
    Path("m.gguf").write_bytes(MODEL.read_bytes())
    run_folder(Path("run"))
    run_folder(Path("other"))
    for command in (
        "sweep t.jsonl --bank 40,64 --out results",
        "replay t.jsonl --bank 40 --json",
        "trace inspect t.jsonl --json",
        "trace convert t.jsonl u.parquet --json",
        "model show m.gguf --json",
        "bridge check run --json --out page.html",
        "machine fit run other --out fitted.toml",
        "diagnose t.jsonl --bank 40 --json",
    ):
        main(command.split())
        printed = capsys.readouterr()
        assert str(tmp_path) not in printed.out + printed.err, command
    written = [path for path in Path().rglob("*") if path.is_file()]
    assert {"results.csv", "results.parquet", "u.parquet", "page.html"} <= {path.name for path in written}
    for path in written:
        assert str(tmp_path).encode() not in path.read_bytes(), path


# 8


def test_what_is_being_written_is_open_to_nobody_else(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with atomic_writer(tmp_path / "a", force=True) as stream:
            (part,) = tmp_path.iterdir()
            assert re.fullmatch(r"\.a\.[0-9a-f]{16}\.part", part.name)
            stream.write(b"1")
        (tmp_path / "a").chmod(0o600)
        with atomic_writer(tmp_path / "a", force=True) as stream:
            (part,) = (path for path in tmp_path.iterdir() if path.name != "a")
            assert stat.S_IMODE(part.stat().st_mode) == 0o600

        def draw(_: object, picture: Path) -> None:
            assert stat.S_IMODE(picture.parent.parent.stat().st_mode) == 0o700
            picture.write_bytes(b"")

        write_results([{"trace": "t"}], tmp_path / "out", draw=draw)
    finally:
        os.umask(old)


def test_kernels_of_somebody_else_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kernels"
    kept.mkdir(mode=0o777)
    kept.chmod(0o777)
    monkeypatch.setenv("FLASHMOE_CACHE", str(tmp_path))
    assert _jit.kernel_cache.__wrapped__() is not None
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    monkeypatch.setattr(os, "getuid", lambda: kept.stat().st_uid + 1)
    assert _jit.kernel_cache.__wrapped__() is None
