"""Prompt speeds: rates by part, backend and engine, fitted on rows with partial pooling.

The seconds of a token are a sum of parts, each with its rate; the engine multiplies all of them. Every rate and
every factor is drawn towards what all have in common, so that an engine with two rows leans on the others and one with
none gets their spread.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from flashmoe_sim.machines.belief import SD_90
from reports.field.predict import Raw
from reports.field.prompt import prompt_of
from reports.field.prompt_parts import PARTS, part_seconds
from reports.field.tune import engine_of

FILE = Path(__file__).with_name("prompts.toml")
# The logarithm of what multiplies a part, before any row: its middle if that is not 0, and its standard deviation.
MIDDLE = {"copy": 0.2, "storage": 0.3, "attention": 0.3, "backend cuda": 0.8, "backend metal": 0.2}
SPREAD = {"gpu": 1.0, "padding": 1.0, "cpu": 1.0, "attention": 0.7, "layer": 0.7}
OTHER_SPREAD = 0.4
# The groups that a row belongs to, with the standard deviation of their factors, and the parts that these multiply.
KINDS = {"backend": 0.5, "cpu of": 0.5, "engine": 0.4}
PARTS_OF = {"backend": ("gpu", "padding"), "cpu of": ("cpu",), "engine": PARTS}
ROW_SD, UNTOLD_SD = 0.35, 0.7  # of a row that tells its prompt's length, and of one that does not
MOST = 1.2  # the logarithm of an error counts at most as this: such a row ran otherwise than it says
TOLD, UNTOLD = "told", "not told"


class Line(NamedTuple):
    """A row: its machine, the seconds of its parts, and its groups; ln(seconds a token) as measured, if known."""

    row_id: str
    machine: str
    length: str
    seconds: tuple[float, ...]
    groups: tuple[str, ...]
    measured: float | None


@dataclass(frozen=True)
class Prompts:
    """What is fitted: the logarithm of the factor of each part and group, and the spread of left-out rows.

    spread: standard deviation of ln(measured / predicted), by whether the row tells the prompt's length.
    """

    factors: dict[str, float]
    spread: dict[str, float]

    def tok_s(self, line: Line) -> float:
        """Tokens a second of a prompt."""
        return math.exp(
            -float(_Columns.of([line], list(self.factors)).predicted(np.array([*self.factors.values()]))[0])
        )

    def interval(self, line: Line) -> tuple[float, float]:
        """The 90% interval of the speed."""
        tok_s, width = self.tok_s(line), math.exp(SD_90 * self.spread[line.length])
        return tok_s / width, tok_s * width


def line_of(raw: Raw) -> Line | None:
    """A priced row as the fit sees it; None without a price."""
    if not (seconds := part_seconds(raw)):
        return None
    assert raw.way is not None
    machine, row = raw.way.machine, raw.row
    backend = (machine.api or "gpu") if machine.gpu is not None else "cpu"
    engine = engine_of(row)
    names = (backend, engine, engine)
    return Line(
        row.id,
        row.machine_id or row.id,
        TOLD if prompt_of(row).length_given else UNTOLD,
        tuple(seconds[part] for part in PARTS),
        tuple(f"{kind} {name}" for kind, name in zip(KINDS, names, strict=True)),
        None if row.prompt_tok_s is None else -math.log(row.prompt_tok_s),
    )


class _Columns(NamedTuple):
    """Lines as arrays. seconds: f64 [lines, parts]. place: of each kind's group among the values; -1 if unknown."""

    seconds: NDArray[np.float64]
    place: dict[str, NDArray[np.intp]]

    @classmethod
    def of(cls, lines: Sequence[Line], names: Sequence[str]) -> _Columns:
        places = {name: number for number, name in enumerate(names)}
        place = {
            kind: np.array([places.get(line.groups[number], -1) for line in lines], np.intp)
            for number, kind in enumerate(KINDS)
        }
        return cls(np.array([line.seconds for line in lines]), place)

    def predicted(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """ln(seconds a token) of every line; values: of the parts, then of the groups."""
        log_factor = np.tile(values[: len(PARTS)], (len(self.seconds), 1))
        padded = np.append(values, 0.0)  # at -1
        for kind, parts in PARTS_OF.items():
            log_factor[:, [PARTS.index(part) for part in parts]] += padded[self.place[kind]][:, None]
        total: NDArray[np.float64] = np.log((self.seconds * np.exp(log_factor)).sum(axis=1))
        return total


def fitted(lines: Sequence[Line], *, leaving: Set[str] = frozenset()) -> dict[str, float]:
    """The factors of parts and groups by measured rows of machines that are not left out.

    A machine counts as the square root of its rows.
    """
    some = [line for line in lines if line.measured is not None and line.machine not in leaving]
    groups = sorted({name for line in some for name in line.groups})
    names, columns = [*PARTS, *groups], _Columns.of(some, [*PARTS, *groups])
    middle = np.array([MIDDLE.get(name, 0.0) for name in names])
    spread = np.array([SPREAD.get(name, OTHER_SPREAD) for name in PARTS] + [_spread_of(name) for name in groups])
    measured = np.array([line.measured for line in some])
    rows = Counter(line.machine for line in some)
    row_sd = np.array([(ROW_SD if line.length == TOLD else UNTOLD_SD) * rows[line.machine] ** 0.25 for line in some])

    def residuals(values: NDArray[np.float64]) -> NDArray[np.float64]:
        off = MOST * np.tanh((columns.predicted(values) - measured) / MOST)
        return np.concatenate([off / row_sd, (values - middle) / spread])

    return dict(zip(names, least_squares(residuals, middle).x.tolist(), strict=True))


def left_out(lines: Sequence[Line]) -> dict[str, float]:
    """The predicted speed of every measured row, with its machine left out, by the row's id."""
    found: dict[str, float] = {}
    for machine in sorted({line.machine for line in lines if line.measured is not None}):
        others = Prompts(fitted(lines, leaving={machine}), {})
        found |= {line.row_id: others.tok_s(line) for line in lines if line.machine == machine}
    return found


def with_spread(factors: dict[str, float], lines: Sequence[Line], left: dict[str, float]) -> Prompts:
    """With the spread by the size that nine of ten left-out errors stay below; a machine counts as one of its rows."""
    spread = {}
    for length in (TOLD, UNTOLD):
        some = [line for line in lines if line.measured is not None and line.length == length]
        rows = Counter(line.machine for line in some)
        sizes = np.array([abs(-(line.measured or 0.0) - math.log(left[line.row_id])) for line in some])
        weights = np.array([rows[line.machine] ** -0.5 for line in some])
        spread[length] = float(np.quantile(sizes, 0.9, weights=weights, method="inverted_cdf")) / SD_90
    return Prompts(factors, spread)


def save(found: Prompts, path: Path = FILE) -> None:
    """Write what is fitted as a file that people can read."""
    lines = ["# Made by `python -m reports.field --tune`: ln(factor) of seconds, by part and group; see the page."]
    for table in ("factors", "spread"):
        lines += ["", f"[{table}]", *(f'"{name}" = {value:.4f}' for name, value in getattr(found, table).items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def load(path: Path = FILE) -> Prompts:
    """What the file has."""
    return Prompts(**tomllib.loads(path.read_text(encoding="utf-8")))


def _spread_of(group: str) -> float:
    return next(spread for kind, spread in KINDS.items() if group.startswith(f"{kind} "))
