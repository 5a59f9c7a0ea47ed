"""Whether recorded runs have one machine, one build and one model, as a fit requires of its anchors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashmoe_sim.io.errors import BadInput
from native_bridge.engines.runs import Run

SETTINGS = (
    *("n_gpu_layers", "cache-io-split", "async-upload", "parallel-reads", "mixed-slot-buffer", "cpu-vis-writes"),
    *("gpu-bank", "ds2/kimi-gpu-bank"),
)
IO_SPLIT = "cache-io-split"
BATCHED_READS = "batched reads"  # parallel reads with an io-split


def refuse_two_machines(runs: Sequence[Run], *, io_split_may_differ: bool = False) -> None:
    """Raise BadInput, naming the setting, if two runs differ in a setting that affects times, besides bank and top-k.

    An unrecorded setting matches any value.
    """
    first_of_state = {run.cache: run for run in reversed(runs) if run.cache}
    if len(first_of_state) > 1:
        raise BadInput(
            f"{first_of_state['cold'].folder} is a cold run and {first_of_state['warm'].folder} a warm one: reads from "
            "storage and from the page cache take different times; fit each kind by itself"
        )
    first_of_setting: dict[str, tuple[str, Run]] = {}
    for run in runs:
        for setting, value in _settings(run):
            if setting in (IO_SPLIT, BATCHED_READS) and io_split_may_differ:
                continue
            first, other = first_of_setting.setdefault(setting, (value, run))
            if first != value:
                raise BadInput(
                    f"{run.folder}: {setting} is {value}, but {first} in {other.folder}: "
                    "the anchors come from two machines or builds; fit each by itself"
                )
    sized = [(run.install_bytes, run) for run in runs if run.install_bytes is not None]
    for (least, most), run in sized:
        for (other_least, other_most), other in sized:
            if least > other_most:
                raise BadInput(
                    f"{run.folder}: an install has {(least + most) / 2:,.0f} bytes, but "
                    f"{(other_least + other_most) / 2:,.0f} in {other.folder}: "
                    "the anchors come from two models; fit each by itself"
                )


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    yield "engine", run.engine.name
    yield "threads", str(run.threads)
    yield "backend", run.log.backend or "none that the log names"
    if run.flags is not None:
        yield "flags", " ".join(run.flags) or "none"
    if run.log.gpu_layers is not None:
        yield "layers on the GPU", str(run.log.gpu_layers[0])
    if run.log.placement.bank:
        yield "bank in", " and ".join(run.log.placement.bank)
    for setting in SETTINGS:
        if setting in run.log.settings:
            yield setting, run.log.settings[setting]
    if run.log.routed is not None and run.log.routed.batched_reads is not None:
        yield BATCHED_READS, "on" if run.log.routed.batched_reads else "off"
    if run.log.routed is not None and run.log.routed.misses:
        yield "the order of installs", run.log.routed.execution
    if run.environment is not None:
        yield "environment", " ".join(f"{key}={value}" for key, value in sorted(run.environment.items())) or "empty"
    yield from run.place.items()
