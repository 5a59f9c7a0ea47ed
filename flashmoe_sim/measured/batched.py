"""llama-sweep-bench, which measures one sequence at growing depths, and llama-batched-bench: tables and lines of JSON.

A row of llama-sweep-bench decodes TG tokens behind N_KV, drops them, and then reads a prompt of PP tokens there. A row
of llama-batched-bench reads B prompts of PP tokens, and decodes TG behind each.
Source: ikawrakow/ik_llama.cpp 1ce4bb973, examples/sweep-bench; ggml-org/llama.cpp tools/batched-bench.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from flashmoe_sim.measured.tables import MOST_LINE, cells_of, line_objects, real, tables, whole
from flashmoe_sim.measured.value import FoundSpeeds, Measured, quant_of
from flashmoe_sim.systems.llama_flags import IK, settings_of_command, system_of

COLUMNS = "PP", "TG", "N_KV", "S_PP t/s", "S_TG t/s"
KEYS = "pp", "tg", "n_kv", "speed_pp", "speed_tg"
SIDES = "B", "PL"  # how the column of sequences is called
SHOWN = "command"  # whether it stands above the rows
HIDDEN = "does not show its command, which may place experts on the CPU"
_COMMAND = re.compile(r"(?:sweep|batched)-bench(?:\.exe)?[\"']?\s+(?:-|[\\^`]\s*$)")
_GOES_ON = re.compile(r"[\\^`]\s*$")
_LOADED = re.compile(r"loaded meta data with \d+ key-value pairs and \d+ tensors from (.+?)(?: \(version|$)")
_OFFLOADED = re.compile(r"offloaded (\d{1,4})/(\d{1,4}) layers to GPU")
_SETTING = re.compile(r"\b(n_batch|n_ubatch|n_gpu_layers|n_threads|flash_attn) = (-?\d{1,9})\b")
_MOVED = re.compile(r"buffer type overridd?en to")
_FEWER = re.compile(r"(?:^|\s)(?:-ser|--smart-expert-reduction)\s|expert_used_count=int:")
NAMES = {"n_batch": "batch", "n_ubatch": "ubatch", "n_gpu_layers": "n_gpu_layers", "n_threads": "threads"}


class BatchRow(NamedTuple):
    """A row. sequences: None in llama-sweep-bench, which has one."""

    line: int
    prompt: int | None
    decoded: int | None
    n_kv: int | None
    prompt_tok_s: float | None
    tok_s: float | None
    sequences: int | None
    settings: dict[str, str]


def detect(text: str) -> bool:
    return next(_rows(text), None) is not None


def read(text: str, where: str) -> FoundSpeeds:
    """Prompt and decode speed of each row of one sequence."""
    found, lines = FoundSpeeds(), text.split("\n")
    settings, at = dict[str, str](), 0
    for row in _rows(text):
        noted = dict[str, str]()
        for number in range(at, row.line - 1):
            _note(noted, lines, number)
        if noted or any(set(COLUMNS) <= set(cells_of(line)) for line in lines[at : row.line - 1]):
            settings = noted  # another run's, which may be without any
        at = row.line
        place = f"{where}: line {row.line}"
        if None in (row.prompt, row.decoded, row.n_kv, row.prompt_tok_s, row.tok_s):
            found.left_out.append(f"{place}: has a cell that is no number; give the output as printed")
        elif row.sequences not in (None, 1):
            found.left_out.append(f"{place}: {row.sequences} sequences at once; measure one at a time: -npl 1")
        else:
            all_of = settings | row.settings
            if not all_of.pop(SHOWN, "") and "n_gpu_layers" in all_of:
                all_of.setdefault("elsewhere", HIDDEN)
            _add(found, row, place, all_of)
    return found


def _add(found: FoundSpeeds, row: BatchRow, place: str, settings: dict[str, str]) -> None:
    sweep = row.sequences is None
    engine, n_kv, read_tokens = IK if sweep else "llama.cpp", row.n_kv or 0, row.prompt or 0
    for prompt, tokens, depth, tok_s in (
        (True, read_tokens, n_kv if sweep else 0, row.prompt_tok_s or 0.0),
        (False, row.decoded or 0, n_kv if sweep else read_tokens, row.tok_s or 0.0),
    ):
        if not tokens or not found.enough(tokens, place, prompt=prompt):
            continue
        system, unplaced = system_of(settings, engine=engine, prompt=prompt)
        model = settings.get("model", "")
        one = partial(
            Measured, where=place, engine=engine, system=system, unplaced=unplaced, model=model, quant=quant_of(model)
        )
        found.add(partial(one, depth=depth, prompt=prompt, tokens=tokens, tok_s=tok_s, settings=settings))


def _rows(text: str) -> Iterator[BatchRow]:
    found = [*_of_tables(text), *_of_json(text)]
    yield from sorted(found, key=lambda row: row.line)


def _of_tables(text: str) -> Iterator[BatchRow]:
    for line, cells in tables(text, *COLUMNS):
        sides = next((cells[name] for name in SIDES if name in cells), None)
        prompt, decoded, n_kv = (whole(cells[name]) for name in ("PP", "TG", "N_KV"))
        prompt_tok_s, tok_s = (real(cells[name]) for name in ("S_PP t/s", "S_TG t/s"))
        sequences = None if sides is None else whole(sides) or 0
        yield BatchRow(line, prompt, decoded, n_kv, prompt_tok_s, tok_s, sequences, {})


def _of_json(text: str) -> Iterator[BatchRow]:
    for line, values in line_objects(text, *KEYS):
        prompt, decoded, n_kv = (whole(values[name]) for name in ("pp", "tg", "n_kv"))
        prompt_tok_s, tok_s = (real(values[name]) for name in ("speed_pp", "speed_tg"))
        sides = values.get("pl", values.get("b"))
        settings = {name: str(values[key]) for key, name in NAMES.items() if (whole(values.get(key)) or 0) > 0}
        sequences = None if sides is None else whole(sides) or 0
        yield BatchRow(line, prompt, decoded, n_kv, prompt_tok_s, tok_s, sequences, settings)


def _note(settings: dict[str, str], lines: list[str], number: int) -> None:
    """Add the settings in a line before a table."""
    line = lines[number][:MOST_LINE]
    if _COMMAND.search(line):
        end = number
        while _GOES_ON.search(lines[end]) and end + 1 < len(lines):
            end += 1
        command = " ".join(_GOES_ON.sub("", one) for one in lines[number : end + 1])[:MOST_LINE]
        settings.clear()
        settings.update(settings_of_command(command))
        settings[SHOWN] = "yes"
        if _FEWER.search(command):
            settings["elsewhere"] = "computes fewer experts than the model's, which no setting here does"
    elif match := _LOADED.search(line):
        settings["model"] = match[1]
    elif match := _OFFLOADED.search(line):
        settings |= {"n_gpu_layers": match[1], "layers": match[2]}
    elif _MOVED.search(line) and not {"overrides", "n_cpu_moe"} & set(settings):
        settings["elsewhere"] = "places experts by a setting that it does not show"
    elif "n_kv_max = " in line:
        for name, value in _SETTING.findall(line):
            if name in NAMES and int(value) > 0:
                settings.setdefault(NAMES[name], value)
