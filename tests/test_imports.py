"""Which folder may import which, as pyproject.toml says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from importlinter.cli import lint_imports

import flashmoe_sim
import native_bridge

PACKAGE = Path(flashmoe_sim.__file__).parent
BRIDGE = Path(native_bridge.__file__).parent
ROOT = PACKAGE.parent
MODULES = {"llama-cpp-python": "llama_cpp", "vl-convert-python": "vl_convert"}
SOURCES = sorted(PACKAGE.rglob("*.py"))
BRIDGE_SOURCES = sorted(BRIDGE.rglob("*.py"))
REPORT_SOURCES = sorted((ROOT / "reports").rglob("*.py"))


class Facts(NamedTuple):
    """What a file says: the modules that it imports anywhere, its long functions, and its classes."""

    imported: set[str]
    long: list[str]
    classes: list[str]


@cache
def facts(source: Path) -> Facts:
    found = Facts(set(), [], [])
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: line {node.lineno}: a relative import"
            assert node.module
            found.imported.add(node.module)
        elif isinstance(node, ast.FunctionDef):
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if len([one for one in given if one.arg not in ("self", "cls")]) > 8:
                found.long.append(f"{source}: {node.name}")
        elif isinstance(node, ast.ClassDef):
            found.classes.append(node.name)
    return found


def imported(source: Path) -> set[str]:
    return facts(source).imported


def test_folders_import_only_from_folders_above_them(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_every_folder_is_in_the_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]
    named = {name.strip(" ()").removeprefix("flashmoe_sim.") for line in contract["layers"] for name in line.split("|")}
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - {"__init__"} <= named


def test_never_imported() -> None:
    """The bridge to the real runtime is a program of its own, peers are for benchmarks, the others for development."""
    forbidden = {"native_bridge", "tests", "libcachesim", "duckdb", "gguf", "hypothesis", "pytest"}
    users = {str(path): forbidden & {name.split(".")[0] for name in imported(path)} for path in SOURCES}
    assert {path: names for path, names in users.items() if names} == {}


def test_importing_models_and_traces_stays_light() -> None:
    code = "import sys; heavy = {'numba', 'polars', 'pyarrow', 'orjson'}\n"
    code += "import flashmoe_sim.geometry; print({'numpy', *heavy} & set(sys.modules))\n"
    code += "import flashmoe_sim.trace; print(heavy & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "set()\nset()\n"


def test_all_that_is_imported_is_a_dependency() -> None:
    """Only a sweep on a cluster, an assistant's server and reports need an extra."""
    of_cluster, of_reports = PACKAGE / "sweep" / "cluster.py", PACKAGE / "report"
    of_assistants = PACKAGE / "cli" / "mcp.py"
    alone = (of_cluster, of_assistants)
    beside = [source for source in SOURCES if source not in alone and of_reports not in source.parents]
    used = {name.split(".")[0] for source in beside for name in imported(source)}
    assert used - dependencies(extras=False) == {"flashmoe_sim"}
    used = {name.split(".")[0] for name in imported(of_cluster)}
    assert used - dependencies(extras=False) == {"flashmoe_sim", "cloudpickle", "dask", "distributed"}
    used = {name.split(".")[0] for name in imported(of_assistants)}
    assert used - dependencies(extras=False) == {"flashmoe_sim", "mcp"}
    used = {name.split(".")[0] for source in of_reports.rglob("*.py") for name in imported(source)}
    assert used - dependencies(extras=False) == {"flashmoe_sim", "altair", "jinja2", "markupsafe", "vl_convert"}
    assert used - dependencies(extras=True) == {"flashmoe_sim"}


def test_all_that_the_bridge_imports_is_a_dependency_or_an_extra() -> None:
    ours = [source for source in BRIDGE_SOURCES if source.parent.name != "scripts"]  # beside the programs they ask
    used = {name.split(".")[0] for source in ours for name in imported(source)}
    assert used - dependencies(extras=True) == {"flashmoe_sim", "native_bridge"}


def dependencies(*, extras: bool) -> set[str]:
    """What may be imported: the standard library, the program's dependencies, and those of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = project["dependencies"]
    if extras:
        declared = declared + [line for lines in project["optional-dependencies"].values() for line in lines]
    named = {re.split("[<>=!~ ]", line)[0].lower() for line in declared}
    return {MODULES.get(name, name) for name in named} | set(sys.stdlib_module_names)


def test_no_function_has_more_than_eight_parameters() -> None:
    """What belongs together is one value."""
    assert [name for one in (*SOURCES, *BRIDGE_SOURCES, *REPORT_SOURCES) for name in facts(one).long] == []


def test_a_class_name_is_used_once() -> None:
    names = Counter(name for source in (*SOURCES, *BRIDGE_SOURCES) for name in facts(source).classes)
    assert [name for name, uses in names.items() if uses > 1] == []
