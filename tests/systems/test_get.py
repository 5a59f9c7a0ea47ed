"""The answers say where an engine is and what its own pages offer; how it is built, its own page says."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import UnknownName
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.base import Launch
from flashmoe_sim.systems.facts import OS_NAMES, engine_names, facts_of, read_engine
from flashmoe_sim.systems.table import SYSTEMS
from tests.systems.record import read_record, record_name

ROOT = Path(__file__).parents[2]
PAGE = re.compile(r"https://(github\.com|[\w-]+\.github\.io)/\S+")
MANAGER = re.compile(r"(winget|brew|conda|port|apt|nix) ")
BUILDS = re.compile(
    r"\bcmake (-B|-S|--build|\.)|\bmake (-j|-C|build)|\bcargo (build|install)|\bgit (clone|checkout|apply)"
    r"|\bswift build|(?<![\w/])\./(build|install|apply)\S*\.sh|\bdocker (compose )?build (?!-t sim\b)"
    r"|\bcurl [^|\n]*\| *(ba)?sh\b|\birm "
    r"|\bpip3? install (?!'?(-e )?'?\\?\.|-q|--quiet|--constraint|cupy|torch\b)"
)


@pytest.mark.parametrize("name", engine_names())
def test_each_engine_says_where_it_is_and_where_its_page_on_building_is(name: str) -> None:
    get = facts_of(name).get
    assert get is not None
    assert PAGE.fullmatch(get.address)
    assert get.weights
    assert "@" in get.source
    assert get.building or get.prebuilt, "what describes no build must be had ready made"
    assert not get.building or PAGE.fullmatch(get.building)
    for one in get.prebuilt:
        assert PAGE.fullmatch(one.how) or MANAGER.match(one.how), one
        assert set(one.os) <= set(OS_NAMES), one


@pytest.mark.parametrize("name", engine_names())
@pytest.mark.parametrize("os", ["", *OS_NAMES])
def test_what_it_says_for_an_operating_system_is_for_that_one(name: str, os: str) -> None:
    facts = facts_of(name)
    row, said = facts.get_row(os), " ".join(facts.how_to_get(os))
    assert row is not None
    assert facts.state.words in said
    assert facts.get is not None
    for one in facts.get.prebuilt:
        offered = not os or not one.os or os in one.os
        assert (one.how in [each["how"] for each in row["prebuilt"]]) == offered
        assert (f"Prebuilt: {one.words}" in said) == offered
    assert ("Nothing prebuilt is known" in said) == (not row["prebuilt"])
    assert row["building"] is None or f"How to build it: {row['building']}" in said


def test_windows_gets_its_package_manager_and_is_told_that_it_has_no_cuda() -> None:
    llama = facts_of("llama-cpp")
    windows, mac = (" ".join(llama.how_to_get(os)) for os in ("windows", "macos"))
    assert "winget (Windows; Vulkan, without CUDA): winget install llama.cpp" in windows
    assert "brew" not in windows
    assert "brew install llama.cpp" in mac
    assert "winget" not in mac


def test_a_command_line_is_labelled_with_its_program_and_where_that_runs() -> None:
    machine = load_machine("rtx-4090 + 128GiB")
    named = {name: SYSTEMS[name]().labelled(machine) for name in ("crow", "moe-cache", "placed")}
    assert named == {
        "crow": "crow (Crow, on Windows only)",
        "moe-cache": "moe-cache (leloch/llama.cpp, on Linux or Windows only)",
        "placed": "placed (llama.cpp)",
    }
    assert SYSTEMS["crow"]().labelled(load_machine("rtx-4090 + 128GiB + windows")) == "crow (Crow)"


def test_each_forks_program_has_a_path_of_its_own() -> None:
    """PATH finds llama.cpp's under the same name, which knows no fork's flags."""
    for windows in (False, True):
        paths: dict[str, str] = {}
        for kind in SYSTEMS.values():
            program = read_record(record_name(kind())).head["program"].split()[0]
            facts = kind.facts_of_engine()
            assert facts is not None
            path = facts.path_of(program, windows=windows)
            assert (path == program) == (facts.name == "llama-cpp" or not program.startswith("llama-"))
            assert Launch((path,), powershell=windows).line == path, "no quotes, which PowerShell would print"
            assert paths.setdefault(path, facts.name) == facts.name
    assert facts_of("ik_llama-cpp").path_of("llama-server", windows=False) == "./ik_llama.cpp/build/bin/llama-server"
    assert facts_of("crow").path_of("llama-server", windows=True) == r".\Crow\bin\llama-server"


@pytest.mark.parametrize(
    ("os", "api", "first"),
    [
        ("windows", "cuda", "unpack the CUDA build and the cudart file beside it from"),
        ("windows", "rocm", "unpack the ROCm or HIP build from"),
        ("windows", "vulkan", "`winget install llama.cpp`"),
        ("windows", "", "`winget install llama.cpp`"),
        ("macos", "metal", "`brew install llama.cpp`"),
        ("linux", "cuda", "unpack the CUDA build and the cudart file beside it from"),
        ("linux", "", "unpack the CPU build from"),
        ("linux", "sycl", "`conda install -c conda-forge llama-cpp`"),
    ],
)
def test_llama_cpp_comes_from_what_has_a_build_for_this_machine(os: str, api: str, first: str) -> None:
    said = facts_of("llama-cpp").where_from("llama-server", os, api)
    assert said.startswith(f"If llama.cpp is not installed: {first}")
    if "unpack" in first:
        assert said.endswith(r"call it .\llama-server there." if os == "windows" else "call it ./llama-server there.")
    assert facts_of("llama-cpp").where_from("llama-server", "", api) == "", "no system is named"


def test_what_is_reported_of_an_engine_is_told_with_where_to_get_it() -> None:
    engine = facts_of("big-moe-on-edge")
    assert engine.reported is not None
    assert engine.how_to_get("")[-1] == f"Reported: {engine.reported.says[0]}."
    assert not any("Reported" in line for line in facts_of("llama-cpp").how_to_get(""))


def test_an_unknown_key_of_what_is_prebuilt_is_named() -> None:
    table = tomllib.loads((ROOT / "flashmoe_sim/systems/engines/llama-cpp.toml").read_text("utf-8"))
    table["get"] |= {"prebuilt": [{"name": "a", "how": "b", "line": "c"}]}
    with pytest.raises(UnknownName, match="prebuilt: unknown line; known: apis, builds, how, name, os, take"):
        read_engine("llama-cpp", table)


@pytest.mark.parametrize(
    "words",
    [
        ("cmake", "-B"),
        ("cmake", "--build"),
        ("make", "-j8"),
        ("make", "-C"),
        ("cargo", "build"),
        ("git", "clone"),
        ("git", "apply"),
        ("./build", ".sh"),
        ("./install", ".sh"),
        ("pip", "install", "kt-kernel"),
        ("docker", "build", "-t", "engine"),
        ("swift", "build"),
        ("irm", "PAGE"),
        ("curl", "-fsSL", "PAGE", "| bash"),
    ],
)
def test_lines_that_build_another_program_are_recognized(words: tuple[str, ...]) -> None:
    """In parts, so that this file has none."""
    line = (" " if words[-1] != ".sh" else "").join(words)
    assert BUILDS.search(f"{line} ")


@pytest.mark.parametrize("line", ["pip install '.[report]'", "brew install llama.cpp", "make it again", "cmake files"])
def test_other_lines_are_not(line: str) -> None:
    assert not BUILDS.search(line)


def test_no_file_has_a_line_that_builds_another_program() -> None:
    data = ("flashmoe_sim/**/*.toml", "flashmoe_sim/**/*.py", "native_bridge/**/*.py", "native_bridge/**/*.toml")
    words = ("docs/**/*.md", "notebooks/*.ipynb", "reports/**/*.md", "*.md", "tests/**/*.py")
    files = sorted({*chain.from_iterable(ROOT.glob(pattern) for pattern in (*data, *words))})
    assert len(files) > 300
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if BUILDS.search(line)
    ]
    assert found == []
