"""What holds for every figure: names of others stay text, and what cannot be drawn is said in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import polars
import pytest

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed
from flashmoe_sim.report import figures
from flashmoe_sim.report.figures.style import Chart
from flashmoe_sim.schema import COMPARED, JUDGED, LAYER_COLUMNS, frame
from tests.report.figures.made import HOSTILE, results, row, svg, timed
from tests.report.figures.test_figures import TRACE, compared, layers
from tests.report.figures.test_gains import on
from tests.report.figures.test_judged import against_lru
from tests.trace.strategies import trace_of

SCRIPT, NAME = HOSTILE[0], "".join(HOSTILE)
MEASURED = polars.DataFrame({"measured_tok_s": 1.0, "tok_s": 2.0, "source": HOSTILE, "group": HOSTILE})
SWEPT = results(*(timed(bank, name, trace=NAME) for bank in (16, 32) for name in HOSTILE))
JUDGED_ROWS = [against_lru(SCRIPT, name, 0.1, against=SCRIPT) for name in (*HOSTILE, None)]
ANSWERS = [compared(one, 3.0) for one in HOSTILE] + [compared(one + "2", why_not=one) for one in HOSTILE]
FOREIGN: dict[str, Callable[[], Chart]] = {
    "hits": lambda: figures.hit_curves(SWEPT),
    "speeds": lambda: figures.speeds(SWEPT),
    "gains": lambda: figures.gains(results(*(one for name in HOSTILE for one in on(name, lru=0.5, **{SCRIPT: 0.6})))),
    "judged": lambda: figures.judged(frame(JUDGED_ROWS, JUDGED)),
    "systems": lambda: figures.systems(frame(ANSWERS, COMPARED)),
    "measured": lambda: figures.predicted_measured(MEASURED),
    "popularity": lambda: figures.popularity(TRACE.with_(name=NAME)),
}


@pytest.mark.parametrize("figure", FOREIGN)
def test_names_of_others_stay_text(tmp_path: Path, figure: str) -> None:
    drawn = svg(FOREIGN[figure](), tmp_path)
    assert "<script" not in drawn
    assert "<b>" not in drawn
    assert not re.search("[\u202a-\u202e\x1b]|n{61}", drawn)


ONE, JUDGEMENT = results(row(16)), frame([against_lru("arc", "a", 0.1)], JUDGED)
TWO_POLICIES = layers(1).with_columns(policy=polars.Series(["a", "b", "a"]))
NO_SPEED = polars.DataFrame({"measured_tok_s": [None], "tok_s": [1.0]})
FEW = (on("a", lru=0.5, fifo=0.4), on("a", fifo=0.5) + on("b", fifo=0.5), on("a", lru=0.5))
WRONG: list[tuple[Callable[[], Chart], type[BadInput], str]] = [
    (lambda: figures.hit_curves(results()), Incomplete, "no row has a hit rate"),
    (lambda: figures.hit_curves(results(row(16, hit_rate=None))), Incomplete, "no row has a hit rate"),
    (lambda: figures.hit_curves(results(row(16), row("4GiB"))), Conflict, "banks in bytes and in slots"),
    (lambda: figures.hit_curves(JUDGEMENT), Malformed, "hit curves: the table has no column trace_id; give the table"),
    (lambda: figures.speeds(results(timed(16, tok_s=None))), Incomplete, "no row has a speed"),
    (lambda: figures.speeds(results(timed(16), timed(16, trace="other"))), Conflict, "2 trace values"),
    (lambda: figures.systems(frame([], COMPARED)), Incomplete, "systems: no rows"),
    (lambda: figures.misses_by_layer(frame([], LAYER_COLUMNS)), Incomplete, "no layer was asked for anything"),
    (lambda: figures.misses_by_layer(TWO_POLICIES), Conflict, "2 policy values"),
    (lambda: figures.misses_by_layer(ONE), Malformed, "misses by layer: the table has no column layer"),
    (lambda: figures.predicted_measured(ONE), Malformed, "no column measured_tok_s"),
    (lambda: figures.predicted_measured(NO_SPEED), Incomplete, "no row has both speeds"),
    (lambda: figures.popularity(trace_of()), Incomplete, "has no routed calls"),
    (lambda: figures.reuse_distances(trace_of()), Incomplete, "has no routed calls"),
    (lambda: figures.drift(trace_of()), Incomplete, "has 0 steps"),
    (lambda: figures.judged(frame([], JUDGED)), Incomplete, "no rows"),
    (lambda: figures.judged(ONE), Malformed, "judged: the table has no column against; give the table of judge_pol"),
    (lambda: figures.gains(JUDGEMENT), Malformed, "gains: the table has no column trace_id; give the table of sweep"),
    *(
        (lambda few=few: figures.gains(results(*few)), Incomplete, "of two traces, or of more than 8 policies")
        for few in FEW
    ),
]


@pytest.mark.parametrize(("draw", "kind", "says"), WRONG)
def test_what_cannot_be_drawn(draw: Callable[[], Chart], kind: type[BadInput], says: str) -> None:
    with pytest.raises(kind, match=re.escape(says)):
        draw()
