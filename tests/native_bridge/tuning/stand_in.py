"""Programs that stand in for llama.cpp's: scripts that call a module of this folder; and `sim tune` with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from native_bridge.cli.main import main
from tests.native_bridge.conftest import MODEL

MACHINE = "rtx-4090 + ryzen-7950x + 96GiB"
SIZE = MODEL.stat().st_size

SCRIPT = """#!{python}
import sys
sys.path.insert(0, {folder!r})
from {module} import main
main({behaviour!r}, sys.argv[1:], {counter!r})
"""


def write(path: Path, module: str, behaviour: dict[str, Any]) -> Path:
    """The program. behaviour: what `main` of the module reads; the runs are counted in the file `runs` beside it."""
    here, counter = str(Path(__file__).parent), str(path.with_name("runs"))
    script = SCRIPT.format(python=sys.executable, folder=here, module=module, behaviour=behaviour, counter=counter)
    path.write_text(script)
    path.chmod(0o755)
    return path


def tune(engine: Path, *more: object) -> int:
    """`sim tune` of the small model with a program, into the folder `out`."""
    return main([*map(str, ["tune", MODEL, "--engine", engine, "--machine", MACHINE, "--out", "out", *more])])


def started(folder: Path) -> list[Any]:
    """What the programs in a folder were started with, run by run."""
    return [json.loads(line) for line in (folder / "runs").read_text().splitlines()]


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def lines() -> list[dict[str, Any]]:
    """The record of the search."""
    return [json.loads(line) for line in Path("out/tune.jsonl").read_text().splitlines()]
