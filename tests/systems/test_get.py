"""What the answers say of getting an engine can be typed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from flashmoe_sim.machines.machine import APIS
from flashmoe_sim.systems.facts import engine_names, facts_of

SHELL = shutil.which("sh")
WITHOUT_BUILD = {"crow", "strata", "neurall"}  # installers; no build for users is described, or none was tried


@pytest.mark.parametrize("name", engine_names())
def test_each_engine_says_where_it_is_and_how_it_is_built(name: str) -> None:
    get = facts_of(name).get
    assert get.clone.startswith("https://github.com/")
    assert get.folder == get.clone.rpartition("/")[2], "git clone makes a folder of the last part of the address"
    assert get.weights
    assert "@" in get.source
    assert set(get.build) <= {"cpu", *APIS}
    assert (not get.build) == (name in WITHOUT_BUILD)
    assert get.build or get.downloads, "what has no build must have a download"


@pytest.mark.parametrize("name", engine_names())
def test_the_lines_are_ones_that_a_shell_reads(name: str) -> None:
    get = facts_of(name).get
    assert SHELL is not None
    for api in get.build:
        script = "\n".join(get.lines(api))
        done = subprocess.run([SHELL, "-n"], input=script, capture_output=True, text=True, check=False)
        assert not done.returncode, f"{api}: {done.stderr}"


def test_what_is_reported_of_an_engine_is_told_with_where_to_get_it() -> None:
    engine = facts_of("big-moe-on-edge")
    get = engine.how_to_get("cpu")
    assert get.more[-1] == f"Reported: {engine.reported.says[0]}."
    assert not any("Reported" in line for line in facts_of("llama-cpp").how_to_get("cpu").more)  # type: ignore[union-attr]
