"""Whether recorded runs are of one machine, one build and one model, as the anchors of a fit must be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashmoe_sim.errors import BadInput
from flashmoe_sim.machines.runs import Run

SETTINGS = ("n_gpu_layers", "cache-io-split", "async-upload", "parallel-reads")
IO_SPLIT = "cache-io-split"


def refuse_two_machines(runs: Sequence[Run], *, io_split_may_differ: bool = False) -> None:
    """Raise BadInput, naming the setting, where two runs differ in what decides their times beside bank and top-k.

    A setting that a run does not tell agrees with any.
    """
    told: dict[str, tuple[str, Run]] = {}
    for run in runs:
        for setting, value in _settings(run):
            if setting == IO_SPLIT and io_split_may_differ:
                continue
            first, other = told.setdefault(setting, (value, run))
            if first != value:
                raise BadInput(
                    f"{run.folder}: {setting} is {value}, but {first} in {other.folder}: "
                    "the anchors are of two machines or builds; fit each by itself"
                )
    sized = [(run.install_bytes, run) for run in runs if run.install_bytes is not None]
    for (least, most), run in sized:
        for (other_least, other_most), other in sized:
            if least > other_most:
                raise BadInput(
                    f"{run.folder}: an install has {(least + most) / 2:,.0f} bytes, but "
                    f"{(other_least + other_most) / 2:,.0f} in {other.folder}: "
                    "the anchors are of two models; fit each by itself"
                )


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    yield "threads", str(run.threads)
    yield "backend", run.log.backend or "none that the log names"
    for setting in SETTINGS:
        if setting in run.log.settings:
            yield setting, run.log.settings[setting]
    if run.log.routed is not None and run.log.routed.misses:
        yield "the order of installs", run.log.routed.execution
    yield from run.place.items()
