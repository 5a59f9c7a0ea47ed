"""What Tab offers: verbs, options, and the names of every table; and that it costs no heavy import."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import get_completion_class

from flashmoe_sim.cli.completion import NAMES, use_shells
from flashmoe_sim.cli.main import COMPLETING
from flashmoe_sim.geometry.named import model_names
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.policies.base import ALL_CONTRACTS
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.trace.bundled import catalog
from native_bridge.cli.main import VERBS, sim
from tests.support import document, printed_by


def offered(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """What Tab offers for the last word; `FILES` for the shell's own completion of files."""
    monkeypatch.setenv(COMPLETING, "bash_complete")
    kind = get_completion_class("bash")
    items = kind(sim, {}, "sim", COMPLETING).get_completions(list(words[:-1]), words[-1])
    return ["FILES" if item.type == "file" else item.value for item in items]


def test_verbs_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered(monkeypatch, "") == [*VERBS]
    assert offered(monkeypatch, "sw") == ["sweep"]
    assert offered(monkeypatch, "trace", "insp") == ["inspect"]
    assert offered(monkeypatch, "bridge", "doc") == ["doctor"]
    assert offered(monkeypatch, "sweep", "--bank-") == ["--bank-step"]
    assert offered(monkeypatch, "swep", "--") == ["--version", "--help"]


def test_names_of_every_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered(monkeypatch, "sweep", "--policy", "") == [*POLICIES, "all"]
    assert offered(monkeypatch, "sweep", "--policy", "lru,mi") == ["lru,min", "lru,min:forced"]
    assert offered(monkeypatch, "replay", "--contract", "") == [*ALL_CONTRACTS]
    assert offered(monkeypatch, "sweep", "--prefetch", "") == [*PREFETCHERS]
    assert offered(monkeypatch, "replay", "--machine", "rtx-") == [one for one in PRESETS if one.startswith("rtx-")]
    assert offered(monkeypatch, "replay", "--model", "gpt") == [one for one in model_names() if one.startswith("gpt")]
    assert offered(monkeypatch, "compare", "--system", "") == [*SYSTEMS]
    assert offered(monkeypatch, "system", "show", "big") == ["big-moe-on-edge"]
    assert offered(monkeypatch, "policy", "show", "ar") == ["arc"]
    assert offered(monkeypatch, "machine", "show", "vm") == ["vm-2core"]
    assert offered(monkeypatch, "sweep", "py") == ["python-256"]
    assert set(catalog()) > {"python-256"}


def test_files_where_a_file_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["sweep", ""], ["sweep", "my-own"], ["replay", "--model", ""]):
        assert offered(monkeypatch, *words) == ["FILES"]
    assert offered(monkeypatch, "sweep", "--policy", "my-own") == []


def test_names_are_those_of_parameters() -> None:
    names = {name for verb in VERBS for name in parameters(sim.get_command(None, verb))}  # type: ignore[arg-type]
    assert set(NAMES) <= names | {*VERBS}


def parameters(command: object) -> list[str]:
    own = [one.name for one in getattr(command, "params", [])]
    return own + [name for below in getattr(command, "commands", {}).values() for name in parameters(below)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = printed_by(capsys, "completion", shell)
    assert COMPLETING in script
    assert document(capsys, "completion", shell)["script"] == script


def test_it_imports_nothing_heavy() -> None:
    asked = {COMPLETING: "bash_complete", "COMP_WORDS": "sim sweep --policy l", "COMP_CWORD": "3"}
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*sys.modules))\n"
        "from native_bridge.cli.main import entry\n"
        "entry()\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=True)
    *found, imported = done.stdout.splitlines()
    assert "plain,lru" in found
    assert {"numba", "numpy", "polars", "rich"}.isdisjoint(imported.split())


def test_bash_completes_after_an_equals_sign_and_a_colon(monkeypatch: pytest.MonkeyPatch) -> None:
    """There bash replaces what follows the last of them, however the word begins."""
    use_shells()
    monkeypatch.setenv(COMPLETING, "bash_complete")
    for line, found in (
        ("sim sweep --policy=ar", ["arc"]),
        ("sim sweep --policy=lru,ar", ["lru,arc"]),
        ("sim sweep --policy min:fo", ["forced"]),
        ("sim sweep --policy=min:fo", ["forced"]),
        ("sim sweep --policy ar", ["arc"]),
        ("sim policy ", ["fit", "judge", "list", "show", "victims"]),
    ):
        monkeypatch.setenv("COMP_LINE", line)
        assert answers("bash") == [f"plain,{one}" for one in found], line


def test_fish_and_zsh_replace_whole_words(monkeypatch: pytest.MonkeyPatch) -> None:
    use_shells()
    monkeypatch.setenv(COMPLETING, "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "sim sweep --policy=min:fo")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert answers("zsh") == ["plain", "--policy=min:forced", "_"]
    monkeypatch.setenv("COMP_CWORD", "--policy=min:fo")
    assert answers("fish") == ["plain,--policy=min:forced"]


def answers(shell: str) -> list[str]:
    """What the shell's script reads."""
    kind = get_completion_class(shell)
    return kind(sim, {}, "sim", COMPLETING).complete().splitlines()
