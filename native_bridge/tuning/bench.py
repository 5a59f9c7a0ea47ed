"""llama-bench, of llama.cpp and of ik_llama.cpp: which build it is, the command of a run, and what it printed.

Source: ggml-org/llama.cpp tools/llama-bench/llama-bench.cpp; ikawrakow/ik_llama.cpp examples/llama-bench.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import Missing, Unusable
from flashmoe_sim.measured.llama_bench import read_json
from flashmoe_sim.measured.value import Measured
from flashmoe_sim.systems.placed import BATCH
from flashmoe_sim.tune.next_run import bench_words
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import THREADS, UBATCH, Trial
from native_bridge.engines.llama_program import answer_of

PROGRAM = "llama-bench"
ADVICE = "give the path of llama-bench, which every release of llama.cpp has, with --engine"
WHAT = {"program": PROGRAM, "advice": ADVICE}
OURS, IK = ("placed", "all-gpu", "cpu"), ("placed-ik", "cpu-ik")  # systems that it runs
MMAP, NUMA = "mmap", "numa"  # knobs, beside threads
KNOB_FLAGS = {THREADS: "-t", NUMA: "--numa", UBATCH: "-ub"}  # of all llama.cpp's programs
SIZE_OFF = 0.1  # by how much the size that it prints may differ from the file's: of split files it counts tensors only
_FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_NO_MEMORY = re.compile(
    r"out of memory|unable to allocate|failed to allocate|cudaMalloc failed|OutOfDeviceMemory|cannot allocate memory",
    re.IGNORECASE,
)
_OF_GPU = re.compile(r"cuda|hip|rocm|vulkan|vk::|sycl|metal|device", re.IGNORECASE)


@dataclass(frozen=True)
class Bench:
    """A llama-bench. flags: those in its --help. version: as it says, empty if it does not."""

    path: Path
    flags: frozenset[str]
    version: str

    @property
    def is_ik(self) -> bool:
        """Whether it is of ik_llama.cpp."""
        return "-rtr" in self.flags

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems that it runs."""
        places = "--n-cpu-moe" in self.flags
        return tuple(name for name in (IK if self.is_ik else OURS) if places or not name.startswith("placed"))

    @property
    def knobs(self) -> tuple[str, ...]:
        """What it can set beside what the systems have as settings."""
        maps = {"-lm", "-mmp"} & self.flags
        return (THREADS, UBATCH, *([MMAP] if maps else []), *([NUMA] if "--numa" in self.flags else []))

    def command(
        self,
        trial: Trial,
        words: Sequence[str],
        *,
        model: Path,
        objective: Objective,
        tokens: int,
        repeats: int,
        depth: int,
    ) -> list[str]:
        """The run of a setting. words: of the line that starts it. tokens: to generate, if there is an answer."""
        decodes, prompts = objective.goal != "prompt", objective.goal != "decode"
        placed = bench_words(words)
        flags = dict(zip(placed[::2], placed[1::2], strict=True))
        flags |= {KNOB_FLAGS[name]: value for name, value in trial.knobs if name in KNOB_FLAGS}
        if (ubatch := int(flags.get("-ub", 0))) > BATCH:
            flags["-b"] = str(ubatch)  # or it would compute no more at once
        flags |= self._mapping(words, dict(trial.knobs).get(MMAP))
        flags |= {"-p": str(objective.prompt_tokens if prompts else 0), "-n": str(tokens if decodes else 0)}
        flags |= ({"-d": str(depth)} if depth else {}) | {"-r": str(repeats), "-o": "json"}
        return [str(self.path), "-m", str(model), *(word for pair in flags.items() for word in pair)]

    def _mapping(self, words: Sequence[str], knob: str | None) -> dict[str, str]:
        mapped = knob != "no" if knob else not {"--no-mmap", "none"} & {*words}
        if "-lm" in self.flags:
            return {"-lm": "mmap" if mapped else "none"}
        return {"-mmp": "1" if mapped else "0"} if "-mmp" in self.flags else {}


def find_bench(given: str | None) -> Bench:
    """The program given, else the one on the PATH.

    Raises BadInput if there is none, it may not be run, it does not run here, or it is not a llama-bench.
    """
    found = given or shutil.which(PROGRAM)
    if found is None:
        raise Missing(f"no {PROGRAM} on the PATH", advice=ADVICE)
    path = Path(found).expanduser().absolute()
    if path.is_dir():
        inside = path / PROGRAM
        raise Unusable(f"--engine {path}: is a folder", advice=f"give {inside}" if inside.is_file() else ADVICE)
    if not path.is_file():
        raise Missing(f"--engine {path}: no such file", advice=ADVICE)
    if not os.access(path, os.X_OK):
        raise Unusable(f"--engine {path}: may not be run", advice=f"make it a program: chmod +x {path}")
    text = answer_of(path, "--help", **WHAT)
    flags = frozenset(_FLAG.findall(text))
    if not {"--n-prompt", "--n-gen", "--output"} <= flags:
        raise Unusable(f"--engine {path}: --help is not that of a {PROGRAM}", advice=ADVICE)
    said = answer_of(path, "--version", **WHAT) if "--version" in flags else ""
    version = re.search(r"^version: (.+)$", said, re.MULTILINE)
    return Bench(path, flags, version[1] if version else "")


@dataclass(frozen=True)
class Printed:
    """What a run printed. seconds: of the objective. sd: of their logarithm, of the mean of its repeats.

    timed_s: of all repeats. slowed: the last repeat's speed over the first one's; 1 for one repeat.
    """

    seconds: float
    sd: float
    timed_s: float
    slowed: float


def read_bench(text: str, trial: Trial, words: Sequence[str], *, objective: Objective, model_bytes: int) -> Printed:
    """The speeds that a run printed.

    Raises BadInput if it printed none, or if they are of another setting or another model than was asked.
    """
    start = text.find("[")
    found = read_json(text[start:] if start >= 0 else text, PROGRAM)
    rows = {one.prompt: one for one in found.measured}
    wanted = {"decode": [False], "prompt": [True], "both": [True, False]}[objective.goal]
    if any(prompt not in rows for prompt in wanted):
        why = f": {found.left_out[0]}" if found.left_out else ""
        raise Unusable(f"printed no speed{why}")
    for row in rows.values():
        _check(row, trial, words, model_bytes)
    samples_s = _samples_s(text[start:])
    parts, noise = [], []
    for prompt in wanted:
        tokens = objective.prompt_tokens if prompt else 1 if objective.goal == "decode" else objective.answer_tokens
        parts.append(tokens / rows[prompt].tok_s)
        noise.append(parts[-1] * (rows[prompt].sd or 0.0))
    repeats = max((len(each) for each in samples_s), default=1)
    return Printed(
        sum(parts),
        math.hypot(*noise) / sum(parts) / math.sqrt(repeats),
        sum(sum(each) for each in samples_s),
        min((each[0] / each[-1] for each in samples_s), default=1.0),
    )


def memory_lacking(log: str) -> str:
    """The memory that a log says was too small: `gpu` or `ram`; empty if none was."""
    line = next((line for line in log.splitlines() if _NO_MEMORY.search(line)), "")
    return "" if not line else "gpu" if _OF_GPU.search(line) else "ram"


def _check(row: Measured, trial: Trial, words: Sequence[str], model_bytes: int) -> None:
    asked = {"n_cpu_moe": _after(words, "--n-cpu-moe"), "ubatch": _after(words, "-ub"), **dict(trial.knobs)}
    for name in ("n_cpu_moe", "ubatch", THREADS):
        got = row.settings.get(name)
        if asked.get(name) is not None and got is not None and got != asked[name]:
            raise Unusable(f"ran with {name} {got} where {asked[name]} was asked")
    if row.model_bytes and abs(row.model_bytes - model_bytes) > SIZE_OFF * model_bytes:
        raise Unusable(f"ran a model of {row.model_bytes:,} bytes; the file has {model_bytes:,}")


def _after(words: Sequence[str], flag: str) -> str | None:
    return words[words.index(flag) + 1] if flag in words else None


def _samples_s(text: str) -> list[list[float]]:
    """The seconds of the repeats of each test; none if it does not print them."""
    try:
        rows: Any = json.loads(text)
    except ValueError:
        return []
    each = [row.get("samples_ns") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    samples = [[one / 1e9 for one in of if isinstance(one, int) and one > 0] for of in each if isinstance(of, list)]
    return [of for of in samples if of]
