"""What a release holds: the wheel every file that the program opens, the sdist what its tests need."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from flashmoe_sim.trace.bundled import catalog

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("flashmoe_sim", "native_bridge")
MOST_BYTES = 12_500_000  # 8 MB of them the model that ships, 2 MB the traces


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = str(tmp_path_factory.mktemp("dist"))
    return Path(next(WheelBuilder(str(ROOT)).build(directory=folder, versions=["standard"])))


def test_the_wheel_has_all_that_the_program_opens(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        held = set(archive.namelist())
    packaged = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packaged - held == set()
    opened = [Path("traces/catalog.toml"), Path("reports/tuning/real.csv")]
    for entry in catalog().values():
        opened.append(entry.path.relative_to(ROOT))
        if entry.model is not None and Path(entry.model).is_absolute():
            opened.append(Path(entry.model).relative_to(ROOT))
    for folder in ("notebooks", "data/runs-256", "data/runs-timed"):
        opened += [
            path.relative_to(ROOT)
            for path in (ROOT / folder).rglob("*")
            if path.suffix in {".ipynb", ".gz", ".json", ".txt"}
        ]
    assert {f"flashmoe_sim/_bundled/{path.as_posix()}" for path in opened} - held == set()
    assert {name.partition("/")[0] for name in held if ".dist-info" not in name} == set(PACKAGES)


def test_the_container_copies_all_that_the_wheel_holds() -> None:
    lines = [line.split() for line in (ROOT / "Containerfile").read_text().splitlines()]
    copied = {name for words in lines if words[:1] == ["COPY"] for name in words[1:-1]}
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert copied >= {*PACKAGES, *included["force-include"], "pyproject.toml", PROJECT["readme"]}
    assert all((ROOT / name).exists() for name in copied)


def test_one_version() -> None:
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {PROJECT['version']} (" in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES


def test_notebooks_open_only_runs_that_ship() -> None:
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "force-include"
    ]
    for source in (ROOT / "notebooks").glob("*.py"):
        for line in source.read_text().splitlines():
            if "bundled_folder()" in line:
                named = [path for path in shipped if all(f'"{part}"' in line for part in path.split("/"))]
                assert named, f"{source.name}: {line}"


def test_a_package_of_an_extra_is_imported_where_it_is_used() -> None:
    """`sim` starts without any of them."""
    extras = {"psutil", "altair", "vl_convert", "distributed", "dask", "cloudpickle", "gguf", "llama_cpp", "torch"}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                named = {alias.name for alias in node.names} if isinstance(node, ast.Import) else {str(node.module)}
                found = {name.partition(".")[0] for name in named} & extras
                assert not found, path


def test_the_sdist_has_what_its_tests_need() -> None:
    held = {Path(file.path).relative_to(ROOT).parts[0] for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert held >= {*PACKAGES, "tests", "data", "traces", "notebooks", "reports", "docs", "dev", "constraints.txt"}
    assert held >= {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "LICENSE"}


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited.keys() >= {"cff-version", "message", "title", "authors"}
    assert all(author["name"] for author in cited["authors"])
    assert cited["title"] == PROJECT["name"]
    assert cited["version"] == PROJECT["version"]
    assert cited["license"] == PROJECT["license"]
    assert cited["keywords"] == PROJECT["keywords"]
