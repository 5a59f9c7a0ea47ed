"""llama-bench, of llama.cpp and of ik_llama.cpp: the command of a run, and what it printed.

Source: ggml-org/llama.cpp tools/llama-bench/llama-bench.cpp; ikawrakow/ik_llama.cpp examples/llama-bench.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from flashmoe_sim.io.errors import Unusable
from flashmoe_sim.measured.llama_bench import read_json
from flashmoe_sim.measured.value import Measured
from flashmoe_sim.systems.placed import BATCH
from flashmoe_sim.tune.next_run import bench_words
from flashmoe_sim.tune.trials import THREADS
from native_bridge.tuning.program import PINNED, Printed, Program, Wanted, after

KV_TYPES = ("-ctk", "-ctv")
OF_ROW = {"n_cpu_moe": "--n-cpu-moe", "ubatch": "-ub", THREADS: "-t"}  # settings that it prints, and their flags
OF_ROW |= dict(zip(("type_k", "type_v"), KV_TYPES, strict=True))
SIZE_OFF = 0.1  # by how much the size that it prints may differ from the file's: of split files it counts tensors only


class Bench(Program):
    """A llama-bench."""

    name = "llama-bench"
    maps: ClassVar[frozenset[str]] = frozenset({"-lm", "-mmp"})
    any_system = False

    @property
    def is_ik(self) -> bool:
        return "-rtr" in self.flags

    def command(self, words: Sequence[str], model: Path, wanted: Wanted) -> list[str]:
        placed = bench_words(words)
        flags = dict(zip(placed[::2], placed[1::2], strict=True))
        for flag in ("--numa", *PINNED, *KV_TYPES):
            if value := after(words, flag):
                flags[flag] = value
        if (ubatch := int(flags.get("-ub", 0))) > BATCH:
            flags["-b"] = str(ubatch)  # or it would compute no more at once
        mapped = not {"--no-mmap", "none"} & {*words}
        if "-lm" in self.flags:
            flags["-lm"] = "mmap" if mapped else "none"
        elif "-mmp" in self.flags:
            flags["-mmp"] = "1" if mapped else "0"
        flags |= {"-p": str(wanted.prompt_tokens), "-n": str(wanted.tokens if wanted.decodes else 0)}
        flags |= ({"-d": str(wanted.depth)} if wanted.depth else {}) | {"-r": str(wanted.repeats), "-o": "json"}
        return [str(self.path), "-m", str(model), *(word for pair in flags.items() for word in pair)]

    def read(self, text: str, words: Sequence[str], wanted: Wanted, *, model_bytes: int) -> Printed:
        start, goal = text.find("["), wanted.objective
        found = read_json(text[start:] if start >= 0 else text, self.name)
        rows = {one.prompt: one for one in found.measured}
        timed = [*([True] if wanted.prompt_tokens else []), *([False] if wanted.decodes else [])]
        if any(prompt not in rows for prompt in timed):
            why = f": {found.left_out[0]}" if found.left_out else ""
            raise Unusable(f"printed no speed{why}")
        for row in rows.values():
            _check(row, words, model_bytes)
        samples_s = _samples_s(text[start:])
        parts, noise = [], []
        for prompt in timed:
            tokens = wanted.prompt_tokens if prompt else 1 if goal.goal == "decode" else goal.answer_tokens
            parts.append(tokens / rows[prompt].tok_s)
            noise.append(parts[-1] * (rows[prompt].sd or 0.0))
        repeats = max((len(each) for each in samples_s), default=1)
        return Printed(
            sum(parts),
            math.hypot(*noise) / sum(parts) / math.sqrt(repeats),
            sum(sum(each) for each in samples_s),
            min((each[0] / each[-1] for each in samples_s), default=1.0),
        )


def _check(row: Measured, words: Sequence[str], model_bytes: int) -> None:
    for name, flag in OF_ROW.items():
        got, asked = row.settings.get(name), after(words, flag)
        if None not in (got, asked) and got != asked:
            raise Unusable(f"ran with {name} {got} where {asked} was asked")
    if row.model_bytes and abs(row.model_bytes - model_bytes) > SIZE_OFF * model_bytes:
        raise Unusable(f"ran a model of {row.model_bytes:,} bytes; the file has {model_bytes:,}")


def _samples_s(text: str) -> list[list[float]]:
    """The seconds of the repeats of each test; none if it does not print them."""
    try:
        rows: Any = json.loads(text)
    except ValueError:
        return []
    each = [row.get("samples_ns") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    samples = [[one / 1e9 for one in of if isinstance(one, int) and one > 0] for of in each if isinstance(of, list)]
    return [of for of in samples if of]
