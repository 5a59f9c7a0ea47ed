"""The table of formats, and reading measured speeds from a file or from text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from flashmoe_sim.io.errors import BadInput, Malformed, TooLarge
from flashmoe_sim.io.files import as_utf8, regular_file_bytes, unreadable
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.measured import (
    batched,
    bmoe,
    ds4_csv,
    koboldcpp_log,
    ktransformers_text,
    llama_bench,
    llama_benchy,
    llama_log,
    llmfit,
    mlx_text,
    neurall_csv,
    printed,
    rapid_mlx,
    responses,
    run_folder,
    serving,
    serving_text,
    strata_text,
    tune_folder,
)
from flashmoe_sim.measured.by_hand import looks_by_hand, read_by_hand
from flashmoe_sim.measured.dress import plain_text
from flashmoe_sim.measured.value import FoundSpeeds, Measured
from flashmoe_sim.systems.table import parse_system

MOST_BYTES = 64 * MIB
KIND = "a file that an engine or a benchmark printed"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x0c\x0e-\x1f]")


@dataclass(frozen=True)
class MeasuredFormat:
    """One format: its name, whether a text is of it, and its reader, which gets the text and the file's name."""

    name: str
    detect: Callable[[str], bool]
    read: Callable[[str, str], FoundSpeeds]


# Tried in this order. To add a format: one function that detects it, one that reads it, and one line here.
FORMATS: tuple[MeasuredFormat, ...] = (
    MeasuredFormat("llama-bench -o json or jsonl", llama_bench.detect_json, llama_bench.read_json),
    MeasuredFormat("llama-bench -o csv", llama_bench.detect_csv, llama_bench.read_csv),
    MeasuredFormat("llama-bench -o sql", llama_bench.detect_sql, llama_bench.read_sql),
    MeasuredFormat("llama-bench's table", llama_bench.detect_md, llama_bench.read_md),
    MeasuredFormat("a result of vLLM's or SGLang's benchmark", serving.detect, serving.read),
    MeasuredFormat("a record of llmfit", llmfit.detect, llmfit.read),
    MeasuredFormat("a response of llama-server or Ollama", responses.detect, responses.read),
    MeasuredFormat("llama-sweep-bench or llama-batched-bench", batched.detect, batched.read),
    MeasuredFormat("a log of koboldcpp", koboldcpp_log.detect, koboldcpp_log.read),
    MeasuredFormat("a log of llama-cli or llama-server", llama_log.detect, llama_log.read),
    MeasuredFormat("ktransformers' local_chat", ktransformers_text.detect, ktransformers_text.read),
    MeasuredFormat("ollama run --verbose", printed.detect_ollama, printed.read_ollama),
    MeasuredFormat("LM Studio's line of speed", printed.detect_lm_studio, printed.read_lm_studio),
    MeasuredFormat("vLLM's or SGLang's block of results", serving_text.detect, serving_text.read),
    MeasuredFormat("mlx_lm.benchmark or mlx_lm.generate", mlx_text.detect, mlx_text.read),
    MeasuredFormat("llama-benchy's table", llama_benchy.detect, llama_benchy.read),
    MeasuredFormat("a record of Rapid-MLX", rapid_mlx.detect, rapid_mlx.read),
    MeasuredFormat("Strata's matrix.json", strata_text.detect_matrix, strata_text.read_matrix),
    MeasuredFormat("Strata's log", strata_text.detect_log, strata_text.read_log),
    MeasuredFormat("BigMoeOnEdge's log", bmoe.detect_log, bmoe.read_log),
    MeasuredFormat("BigMoeOnEdge's CSV", bmoe.detect_csv, bmoe.read_csv),
    MeasuredFormat("ds4-bench's CSV", ds4_csv.detect, ds4_csv.read),
    MeasuredFormat("neurall's history of runs", neurall_csv.detect, neurall_csv.read),
)


def read_measured(given: str | Path) -> list[Measured]:
    """The measured speeds of a file of any known format, or the one that a text such as `all-gpu=58.8` gives by hand.

    `read_by_hand` describes the text. Raises BadInput, in one line, for what is neither.
    """
    found = read_with_notes(given)
    if not found.measured:
        raise Malformed(found.left_out[0])
    return found.measured


def is_measured(given: str | Path) -> bool:
    """Whether a text or file is one that `read_measured` takes."""
    if isinstance(given, str) and looks_by_hand(given) and not _is_file(given):
        return True
    path = Path(given)
    if _run_folder(path) or _is_file(str(path / tune_folder.RECORD)):
        return True
    text = _text(path)
    return any(entry.detect(text) for entry in FORMATS)


def read_with_notes(given: str | Path) -> FoundSpeeds:
    """As `read_measured`, with a line for each speed in the file that is no use, and maybe with no speed that is."""
    if isinstance(given, str) and looks_by_hand(given) and not _is_file(given):
        return FoundSpeeds([read_by_hand(given)])
    path = Path(given)
    if folder := _run_folder(path):
        return _checked(run_folder.read(_text(folder / run_folder.RUN), _text(folder / run_folder.LOG), folder))
    if _is_file(str(path / tune_folder.RECORD)):
        return _checked(tune_folder.read(_text(path / tune_folder.RECORD), path))
    text = _text(path)
    detected = [entry for entry in FORMATS if entry.detect(text)]
    if not detected:
        raise Malformed(
            f"{path}: is of no known format; known: {', '.join(entry.name for entry in FORMATS)}",
            advice="give a speed by hand: --measured SYSTEM=TOK/S",
        )
    left_out: list[str] = []
    for number, entry in enumerate(detected, 1):
        try:
            found = _checked(entry.read(text, str(path)))
        except BadInput as error:
            if number == len(detected) and not left_out:
                raise
            found = FoundSpeeds([], [str(error)])
        left_out += found.left_out
        if found.measured:
            left_out += [
                f"{path}: {other.name}: not read too; give it in a file of its own" for other in detected[number:]
            ]
            return FoundSpeeds(found.measured, left_out)
    if not left_out:
        names = " or ".join(entry.name for entry in detected)
        raise Malformed(f"has no speed that {names} prints", where=str(path), advice="give the program's whole output")
    return FoundSpeeds([], left_out)


def _checked(found: FoundSpeeds) -> FoundSpeeds:
    """With systems that exist only: settings out of range name none."""
    return FoundSpeeds([_with_system(one) for one in found.measured], found.left_out)


def _with_system(measured: Measured) -> Measured:
    refused = _refusal(measured.system) if measured.system else ""
    return (
        replace(measured, system="", unplaced=f"has settings that no system takes ({refused})") if refused else measured
    )


@lru_cache(maxsize=256)
def _refusal(system: str) -> str:
    """Why there is no such system, or empty."""
    try:
        parse_system(system)
    except BadInput as error:
        return str(error)
    return ""


def _run_folder(path: Path) -> Path | None:
    """The folder of a recorded run, if that or its run.json is given."""
    folder = path.parent if path.name == run_folder.RUN else path
    return folder if _is_file(str(folder / run_folder.RUN)) else None


def _is_file(given: str) -> bool:
    try:
        return Path(given).exists()
    except (OSError, ValueError):
        return False


def _text(path: Path) -> str:
    """The file as text, without the escapes of a terminal. UTF-16 is what Windows' `>` writes.

    Raises BadInput for a file that is not there, empty, binary or longer than MOST_BYTES.
    """
    if regular_file_bytes(path, kind=KIND) > MOST_BYTES:
        raise TooLarge(f"{path}: is longer than {MOST_BYTES // MIB} MiB", advice="give the part with the speeds")
    try:
        data = as_utf8(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from None
    if b"\0" in data:
        raise Malformed(f"{path}: is a binary file; expected {KIND}")
    return plain_text(_ESCAPES.sub("", data.decode("utf-8-sig", "replace")))
