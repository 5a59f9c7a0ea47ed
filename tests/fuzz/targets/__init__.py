"""The doors, by kind."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import machines, measured, models, runs, sweeps, traces, words

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *traces.TARGETS,
        *models.TARGETS,
        *machines.TARGETS,
        *measured.TARGETS,
        *runs.TARGETS,
        *sweeps.TARGETS,
        *words.TARGETS,
    )
}
