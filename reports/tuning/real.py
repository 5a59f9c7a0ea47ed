"""A real engine here: every setting measured in interleaved rounds, and three searches among them.

python -m reports.tuning.real MODEL.gguf PROGRAM   # real.csv
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from flashmoe_sim.cli.progress import working
from native_bridge.tuning.session import Session
from native_bridge.verbs.tune import Tune
from reports.tuning.page import GRID, REAL

ROUNDS, SEARCHES = 2, 3
SHARE = 0.25  # of the time for every setting once: what a search gets
PROMPT_TOKENS, ANSWER_TOKENS = 640, 64


def begun(model: Path, program: str, folder: Path, minutes: float = 60.0) -> Session:
    """A search that has no runs yet."""
    asked = Tune(
        model=model,
        engine=program,
        out=folder,
        minutes=minutes,
        objective="both",
        prompt_tokens=PROMPT_TOKENS,
        answer_tokens=ANSWER_TOKENS,
    )
    session, _ = asked.session()
    session.open()
    return session


def lines(session: Session, what: str) -> list[dict[str, object]]:
    """The runs of a session."""
    return [
        {
            "what": what,
            "setting": run.trial.spec,
            "seconds": run.outcome.seconds,
            "wall_s": round(run.outcome.wall_s, 1),
            "ended": session.ended() if what != GRID else "",
        }
        for run in session.runs
    ]


def keep(found: list[dict[str, object]], more: list[dict[str, object]]) -> None:
    """Write what was measured so far: an hour of it may be interrupted."""
    found += more
    pl.DataFrame(found).write_csv(REAL)


def measured(model: Path, program: str, place: Path) -> list[dict[str, object]]:
    """Every setting, once in each round, in an order of its own; those of an earlier run of this program."""
    if REAL.exists():
        return pl.read_csv(REAL).filter(what=GRID).to_dicts()
    found = list[dict[str, object]]()
    for round_ in range(ROUNDS):
        every = begun(model, program, place / f"{GRID}-{round_}")
        settings = range(len(every.grid.trials))
        with working(f"measuring, round {round_ + 1} of {ROUNDS}") as progress:
            for done, setting in enumerate(random.Random(round_).sample(settings, len(settings))):
                progress(done, len(settings))
                every.measure(setting)
        keep(found, lines(every, GRID))
    return found


if __name__ == "__main__":
    model, program = Path(sys.argv[1]), sys.argv[2]
    with TemporaryDirectory() as folder:
        found = measured(model, program, Path(folder))
        minutes = sum(float(str(one["wall_s"])) for one in found) / ROUNDS / 60 * SHARE
        for number in range(1, SEARCHES + 1):
            search = begun(model, program, Path(folder) / f"search-{number}", minutes)
            for _ in search.run():
                pass
            keep(found, lines(search, f"search {number}"))
