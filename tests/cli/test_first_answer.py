"""The first answer that a new user gets, on every recorded computer: a line to paste, and where its program is from."""

from __future__ import annotations

import re
import shlex

import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sections import Command
from flashmoe_sim.machines.basis import uncounted
from flashmoe_sim.machines.here import collect
from flashmoe_sim.machines.here.read import Here, this_machine
from flashmoe_sim.report.advice import sections
from flashmoe_sim.verbs.recommend import Recommend
from tests.machines.here.records import MACHINES, seen_of
from tests.tune.every_answer import by_chance

HERE = {one["name"]: this_machine(seen_of(one["seen"])) for one in MACHINES}
TOO_SMALL = "a container with 512 MiB and two cores, of a computer with a card"
ASKED = "unsloth/Qwen3.6-35B-A3B-GGUF:UD-Q4_K_XL"
POWERSHELL = re.compile(r"(?:\$env:\w+ = '[^']*'; )*(?:[\w.:/\\+=-]+|'[^']*')(?: (?:[\w.:/\\+=-]+|'[^']*'))*")
RELEASES = "https://github.com/ggml-org/llama.cpp/releases into one folder"


def where_from(found: Here) -> str:
    """What a person with this computer needs, if it has not llama.cpp."""
    machine = found.machine
    if machine.os == "macos":
        return "`brew install llama.cpp`."
    if machine.os == "windows" and machine.api != "cuda":
        return "`winget install llama.cpp`."
    files = {
        "cuda": "the CUDA build and the cudart file beside it",
        "rocm": "the ROCm or HIP build",
        "vulkan": "the Vulkan build",
        "": "the CPU build",
    }
    call = r".\llama-server" if machine.os == "windows" else "./llama-server"
    return f"unpack {files[machine.api]} from {RELEASES}, and call it {call} there."


def asked() -> Recommend:
    return Recommend(trace=by_chance(ASKED).trace, model=ASKED, systems="cpu,all-gpu,placed")


@pytest.mark.parametrize("name", [name for name in HERE if name != TOO_SMALL])
def test_a_line_to_paste_and_where_its_program_comes_from(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = HERE[name]
    monkeypatch.setattr(collect, "here", lambda: here)
    found = asked().advise()
    parts = sections(found)[0].parts
    at = next(number for number, part in enumerate(parts) if isinstance(part, Command))
    line, below = parts[at].line, [part for part in parts[at + 1 :] if isinstance(part, str)]
    assert f"-hf {ASKED} " in line
    assert parts[at].whole == (here.machine.os == "windows")
    if here.machine.os == "windows":
        assert POWERSHELL.fullmatch(line)
    else:
        assert shlex.join(shlex.split(line)) == line
    assert below[0] == f"If llama.cpp is not installed: {where_from(here)}"
    assert below[1].startswith(
        "-hf: downloads the file with UD-Q4_K_XL in its name, 22.3 GB, from https://huggingface.co/"
    )
    for one in here.machine.unseen:
        assert any(one in part for part in below)


def test_too_little_memory_is_one_line_with_what_limits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "here", lambda: HERE[TOO_SMALL])
    with pytest.raises(BadInput) as refused:
        asked().advise()
    said = str(refused.value)
    assert "3.1 GiB in all; give a smaller quantization" in said
    assert [one.partition(":")[0] for one in HERE[TOO_SMALL].machine.unseen] == ["GPU", "CPU", "RAM"]
    assert all(one in said for one in HERE[TOO_SMALL].machine.unseen)
    assert "\n" not in said


def test_only_what_may_be_there_is_told_and_no_longer_once_it_is_given() -> None:
    assert sum(bool(one.machine.unseen) for one in HERE.values()) < len(HERE) / 2
    here = HERE["no devices were found"]
    assert here.machine.unseen == ("GPU: No devices were found; the answer is without it",)
    assert uncounted(here.machine).endswith('To count what it has, name it: --machine "this + rtx-3060".')
    assert here.with_parts("nvme-gen4").unseen == here.machine.unseen
    assert here.with_parts("rtx-3060").unseen == ()
