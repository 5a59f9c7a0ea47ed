"""The whole check: every run compared and predicted, and its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from flashmoe_sim.machines.machine import Machine
from native_bridge.check.anchors import is_repeat
from native_bridge.check.counts import CountCheck, check_counts
from native_bridge.check.folder import open_folders, without_repeat
from native_bridge.check.seconds import Machines, Seconds, predict_seconds

MOST_SHORT = 3
IN_WORDS = {
    "differ": "with counts that differ",
    "unknown": "that could not be compared",
    "text": "without slots, with the text of another whose experts are all resident",
    "rounded": "without slots, with another text than one whose experts are all resident, as a GPU may round it",
    "-": "without slots, and without a text to compare",
}


@dataclass(frozen=True, eq=False)
class RunCheck:
    """One run; its name is unique in the check."""

    name: str
    counts: CountCheck
    seconds: Seconds

    @property
    def bank(self) -> str:
        """Its slots per layer; `-` if nothing was routed through slots."""
        run = self.counts.folder.run
        return str(run.bank) if run.log.routed else "-"

    @property
    def verdict(self) -> str:
        """`exact`, `differ`, `unknown` (not compared) or, if nothing is routed, `text` (the same), `rounded` or `-`."""
        if self.counts.unlike:
            return "unknown"
        if self.counts.differences:
            return "differ"
        if self.counts.compared:
            return "exact"
        if self.counts.rounded:
            return "rounded"
        return "text" if self.counts.same_text_as else "-"


@dataclass(frozen=True, eq=False)
class RunChecks:
    """All runs in the given order, and the machines on which they were predicted, by the names of anchors."""

    runs: tuple[RunCheck, ...]
    machines: dict[tuple[str, ...], Machine]

    @property
    def failed(self) -> list[RunCheck]:
        return [one for one in self.runs if not one.counts.passed]

    @property
    def settings(self) -> list[list[RunCheck]]:
        """The runs, grouped with repeats, which share their seconds; other verdicts and unfit runs are separate."""
        found: list[list[RunCheck]] = []
        for one in self.runs:
            for of in found:
                first, folder = of[0].counts.folder, one.counts.folder
                alike = (of[0].verdict, bool(first.unfit)) == (one.verdict, bool(folder.unfit))
                if alike and is_repeat(first, folder):
                    of.append(one)
                    break
            else:
                found.append([one])
        return found

    @property
    def predicted(self) -> list[list[RunCheck]]:
        """The settings with a speed."""
        return [of for of in self.settings if of[0].seconds.tok_s is not None]

    def in_short(self) -> list[str]:
        """One sentence on counts and, if any speed was predicted, one on seconds."""
        exact = [one for one in self.runs if one.verdict == "exact"]
        routed = [one for one in self.runs if one.counts.compared or one.counts.unlike]
        lines = [
            f"{len(exact)} of {_number(routed, 'run')} with slots exact: "
            f"{sum(one.counts.slots for one in exact):,} slots of "
            f"{sum(one.counts.calls for one in exact):,} routed calls and "
            f"{sum(one.counts.counters for one in exact):,} counters equal."
        ]
        for verdict, words in IN_WORDS.items():
            if some := [one for one in self.runs if one.verdict == verdict]:
                lines.append(f"{_number(some, 'run')} {words}.")
        if short := [one for one in self.runs if one.counts.short]:
            names = ", ".join(one.name for one in short[:MOST_SHORT]) + ", …" * (len(short) > MOST_SHORT)
            lines.append(f"{_number(short, 'run')} ended before their last token: {names}.")
        if on_host := [one for one in self.runs if one.counts.folder.run.log.host_bank_of_gpu]:
            lines.append(
                f"{_number(on_host, 'run')} had layers on a GPU and the slots in the host's memory: nothing went over "
                "the link, and the CPU computed the experts."
            )
        speeds = [of[0].seconds for of in self.predicted]
        errors = [abs(one.error) for one in speeds if one.error is not None]
        if errors:
            held = sum(one.held is True for one in speeds)
            lines.append(
                f"{_number(errors, 'speed')} predicted from other runs: median error {median(errors):.1%}, "
                f"worst {max(errors):.1%}, {held} measured within the 90% interval."
            )
        return lines


def check_folders(
    folders: Sequence[Path],
    *,
    model: str | None = None,
    anchors: Sequence[Path] = (),
    progress: Callable[[int, int], None] | None = None,
) -> RunChecks:
    """Compare the runs in these folders with the simulator's predictions.

    model: of all of them; by default from the manifest.json with each. anchors: the runs from which to predict seconds;
    by default they are chosen for each run. progress: called after the counts of each run with the number done and the
    total.
    Raises BadInput for a folder that is missing or not a run, and for a run of another model.
    """
    among = open_folders(folders, model=model)
    compared = []
    for folder in among.given:
        compared.append(check_counts(folder, among))
        if progress is not None:
            progress(len(compared), len(among.given))
    differing = frozenset(one.folder.place.resolve() for one in compared if not one.passed)
    machines = Machines(among, open_folders(anchors, model=model).given, differing)
    places = [one.name for one in among.given]
    runs = []
    for counts in compared:
        folder = counts.folder
        name = folder.name if places.count(folder.name) == 1 else f"{folder.place.resolve().parent.name}/{folder.name}"
        runs.append(RunCheck(name, counts, predict_seconds(counts, machines)))
    fitted = {
        tuple(dict.fromkeys(without_repeat(place.name) for place in anchors)): one
        for anchors, one in machines.fitted.items()
    }
    return RunChecks(tuple(runs), fitted)


def as_json(check: RunChecks) -> dict[str, Any]:
    """The document of `sim bridge check --json`."""
    return {
        "passed": not check.failed,
        "in_short": check.in_short(),
        "runs": [
            {
                "run": one.name,
                "folder": str(one.counts.folder.place),
                "mode": one.counts.folder.run.mode,
                "bank": one.counts.folder.run.bank,
                "verdict": one.verdict,
                "slots": one.counts.slots,
                "calls": one.counts.calls,
                "counters": one.counts.counters,
                "aliased_refs": one.counts.aliased,
                "differences": [
                    {"where": d.where, "runtime": d.runtime, "simulator": d.simulator} for d in one.counts.differences
                ],
                "not_compared": one.counts.unlike or None,
                "tokens": one.counts.tokens,
                "tokens_wanted": one.counts.folder.run.n_predict,
                "notes": list(one.counts.notes),
                "measured_tok_s": one.seconds.measured_tok_s,
                "tok_s": one.seconds.tok_s,
                "ms_per_token": 1e3 / one.seconds.tok_s if one.seconds.tok_s else None,
                "tok_s_lo": one.seconds.tok_s_lo,
                "tok_s_hi": one.seconds.tok_s_hi,
                "error": one.seconds.error,
                "within_interval": one.seconds.held,
                "install_s": one.seconds.install_s,
                "measured_install_s": one.seconds.measured_install_s,
                "install_error": one.seconds.install_error,
                "source_bytes": one.seconds.bytes_read,
                "anchors": list(one.seconds.anchors),
                "no_seconds": one.seconds.why_not or None,
            }
            for one in check.runs
        ],
    }


def shown(repeats: Sequence[RunCheck]) -> str:
    """The name of a run, or of its repeats together."""
    first = repeats[0]
    return first.name if len(repeats) == 1 else f"{without_repeat(first.name)} x{len(repeats)}"


def four(tok_s: float | None) -> str:
    """A speed in four digits."""
    return f"{tok_s:.4g}" if tok_s else "-"


def signed(error: float | None) -> str:
    """A relative error in per cent."""
    return "-" if error is None else f"{error:+.1%}"


def _number(of: Sequence[object], what: str) -> str:
    return f"{len(of)} {what}{'s' * (len(of) != 1)}"
