"""Measured speeds, with what their file says of the run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from flashmoe_sim.io.errors import BadInput, OutOfRange, shown

MOST_DECODE, MOST_PROMPT = 1e5, 1e7  # tokens a second that no machine reaches
MOST_TOKENS = 10**8
FEW_DECODED, FEW_PROMPT = 16, 64  # tokens below which a timing says little

_IN_FILE = re.compile(
    r"(?<![a-z0-9])(?:UD-)?(?:I?Q[1-8](?:_[a-z0-9]+)+|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32)(?![a-z0-9])",
    re.IGNORECASE | re.ASCII,
)
_IN_MLX = re.compile(r"(?<!\d)(\d)[-_ ]?bits?\b|(mxfp4(?:-q[48])?)\b", re.IGNORECASE | re.ASCII)
_UNSAID = re.compile(r"does not say|may be all|still takes prompts|has settings that no system takes")
_IN_TYPE = re.compile(r"(?<!\S)(I?Q[1-8]_\w+|TQ[12]_0|MXFP4|NVFP4|BF16|F16|F32)(?: - (Small|Medium|Large))?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A speed that somebody measured. What the file does not say is empty or None.

    where: file and place, for messages. engine: the program that ran; empty if given by hand. system: as `parse_system`
    reads it; empty if the file does not say where the experts were. unplaced: why the system is empty.
    model: its name or file. model_bytes, model_weights: the size of its file, and the number of its weights. quant: its
    quantization, such as Q4_K_M. depth: tokens in the context before the first timed one. prompt: whether a prompt was
    timed rather than decoding. tokens: timed in each repeat. sd: standard deviation over repeats, relative to tok_s.
    settings: others, such as threads and ubatch.
    """

    where: str
    engine: str = ""
    system: str = ""
    unplaced: str = ""
    model: str = ""
    model_bytes: int | None = None
    model_weights: int | None = None
    quant: str = ""
    depth: int = 0
    prompt: bool = False
    tokens: int | None = None
    tok_s: float
    sd: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        most = MOST_PROMPT if self.prompt else MOST_DECODE
        if not (math.isfinite(self.tok_s) and 0 < self.tok_s <= most):
            kind = "prompt" if self.prompt else "decode"
            raise OutOfRange(
                f"{kind} speed of {shown(self.tok_s)} tok/s; expected more than 0, and at most {most:,.0f}",
                where=self.where,
                advice="measure it again, or leave it out",
            )


@dataclass(frozen=True)
class FoundSpeeds:
    """What a reader of one format finds in a file.

    left_out: one line for each that is there and no use, such as a mean over requests.
    """

    measured: list[Measured] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, one: Callable[[], Measured]) -> None:
        """Add a measurement; or leave it out, with a line on what is wrong with it."""
        try:
            self.measured.append(one())
        except BadInput as error:
            self.left_out.append(str(error))

    def enough(self, tokens: int, where: str, *, prompt: bool) -> bool:
        """Whether a timing has enough tokens; if not, it is left out with a line that says so."""
        least, kind = (FEW_PROMPT, "prompt") if prompt else (FEW_DECODED, "answer")
        if tokens < least:
            self.left_out.append(f"{where}: the {kind} has {tokens} tokens; at least {least} say how fast it was")
        return tokens >= least


def known_by_hand(measured: Measured) -> bool:
    """Whether somebody who knows the run can say which system it was; if not, it was none that there is."""
    return not measured.unplaced or _UNSAID.search(measured.unplaced) is not None


def missing(measured: Measured) -> str:
    """One line that says what to ask of the user, or empty if the system is known."""
    if measured.system:
        return ""
    why = measured.unplaced or "does not say where the experts were"
    if not known_by_hand(measured):
        return f"{measured.where}: {why}"
    speed = f"{measured.tok_s:.4g}" + (f" depth={measured.depth}" if measured.depth else "")
    speed += " prompt" if measured.prompt else ""
    examples = f'--measured "all-gpu={speed}" or "placed:cpu_layers=N={speed}"'
    return f"{measured.where}: {why}; give it by hand: {examples}"


def distinct(measured: Iterable[Measured]) -> list[Measured]:
    """Each measurement once, in order: equal but for `where`, as when a file is given twice or copied."""
    found: dict[Measured, Measured] = {}
    for one in measured:
        found.setdefault(replace(one, where=""), one)
    return list(found.values())


def mlx_quant_of(name: str) -> str:
    """The quantization that the name of a model of MLX says, such as 4 bits of Qwen3-30B-A3B-4bit; `mlx` if none."""
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    if match := _IN_MLX.search(last):
        return f"mlx-{match[1]}bit" if match[1] else match[2].lower() if "-" in match[2] else f"mlx-{match[2].lower()}"
    return "mlx"


def quant_of(file: str, model_type: str = "") -> str:
    """The quantization that a file's name says, else llama.cpp's description of the model; empty if neither does."""
    if found := _IN_FILE.findall(re.split(r"[/\\]", file)[-1]):
        return str(found[-1]).upper()
    match = _IN_TYPE.search(model_type)
    if match is None:
        named = _IN_FILE.search(model_type)
        return named[0].upper() if named else ""
    if not match[2] or (match[1], match[2]) == ("Q2_K", "Medium"):  # as llama.cpp calls Q2_K
        return match[1]
    return f"{match[1]}_{match[2][0]}"
