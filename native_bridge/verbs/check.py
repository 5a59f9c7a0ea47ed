"""`sim bridge check`: the runtime against the simulator's predictions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.cli.common import interruptible, message
from flashmoe_sim.cli.progress import working
from flashmoe_sim.io.errors import Incomplete, Malformed, SimError
from flashmoe_sim.io.sections import Column, Section, count, table
from flashmoe_sim.options import FORCE, option, option_field
from flashmoe_sim.question import command_line
from flashmoe_sim.verbs.base import Verb
from native_bridge.verbs.base import PROMPT, TOKENS, RunOptions, first_difference, refuse_given

if TYPE_CHECKING:
    from native_bridge.check.result import RunCheck, RunChecks

MOST_NAMES, MOST_FAILED = 4, 3


@dataclass(frozen=True, kw_only=True)
class Check(RunOptions, Verb["RunChecks"]):
    """Compare runs with the simulator's predictions."""

    help: ClassVar[str] = """Compare recorded runs of the patched runtime with the simulator's predictions.

    RUN_FOLDER is the folder of a run (run.json, log.txt and trace.jsonl.gz), or one of several such folders. Every slot
    of every routed call and every counter of the log must be equal; exit 1 if any is not, or if a run could not be
    compared. Seconds are predicted from other runs of the same machine, never from the run itself, and shown with their
    error; they never change the exit code.

    Without folders the runs are made first, in all modes, on --model (a GGUF file; by default the bundled small
    model), with --runtime or the one that FLASHMOE_RUNTIME names; --sidecar, --runs, --threads and --gpu-layers are
    only for that.

    \b
    Example: sim bridge check runs/ --out check.html
             sim bridge check --runtime build/bin/llama-cli --runs made/
    """

    folders: tuple[Path, ...] = field(
        default=(), kw_only=False, metadata=option("[RUN_FOLDER]...", "", positional=True)
    )
    model: str | None = option_field(
        None,
        "SPEC",
        "The model of all runs: a manifest, sidecar folder or GGUF file; default: a manifest.json beside the runs.",
    )
    runs: Path | None = option_field(None, "DIR", "Folder for the runs that are made; default: not kept.")
    anchors: tuple[Path, ...] = option_field(
        (), "DIR", "A run to predict seconds from; give two or more. Default: chosen for each run.", flag="--anchor"
    )
    out: Path | None = option_field(None, "FILE", "Also write a report to this .html, one self-contained file.")
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> RunChecks:
        from flashmoe_sim.io.whole import refuse_existing
        from native_bridge.check.result import check_folders

        if self.out is not None:
            if self.out.suffix.lower() not in (".html", ".htm"):
                raise Malformed(f"{self.out}: the report is a web page; give --out a name that ends in .html")
            refuse_existing(self.out, force=self.force)
        if self.folders:
            refuse_given(
                self,
                ("runtime", "sidecar", "runs", "threads", "gpu_layers"),
                "with RUN_FOLDER: runs are made or given; leave it out",
            )
            with working("replaying") as progress:
                found = interruptible(
                    check_folders, self.folders, model=self.model, anchors=self.anchors, progress=progress
                )
        else:
            with self._made() as (folders, model), working("replaying") as progress:
                found = interruptible(check_folders, folders, model=str(model), anchors=self.anchors, progress=progress)
        if self.out is not None:
            from native_bridge.check.page import write_page

            write_page(found, self.out, command=command_line("bridge check", self), force=self.force)
        return found

    @contextmanager
    def _made(self) -> Iterator[tuple[list[Path], Path]]:
        """Runs in every mode, kept in `runs` or only until the block ends, and the model file that they ran.

        Raises BadInput for impossible runs, and SimError if a run fails.
        """
        from flashmoe_sim.geometry.gguf import read_gguf
        from native_bridge.fixture import bundled_model
        from native_bridge.repeats import plan

        if self.runtime is None and not os.environ.get("FLASHMOE_RUNTIME"):
            raise Incomplete("no RUN_FOLDER; give the folders of runs, or --runtime to make some")
        model = bundled_model() if self.model is None else Path(self.model)
        with TemporaryDirectory(prefix="flashmoe-check-") as temporary:
            place = self.runs or Path(temporary)
            series = self.series(model, place, force=self.force)
            requests = series.engine.comparison(read_gguf(model), prompt=PROMPT, n_predict=TOKENS, **self.of_request())
            planned = plan(requests, place, modes=series.engine.modes)
            geometry = series.check(planned)
            kept = f"kept in {place}" if self.runs else "not kept (--runs)"
            message(f"{len(planned)} runs of {geometry.name}, {kept}")
            yield series.run_whole(planned), model

    def document(self, found: RunChecks) -> dict[str, Any]:
        from native_bridge.check.result import as_json

        return as_json(found)

    def sections(self, found: RunChecks) -> list[Section]:
        from native_bridge.check.result import four, shown, signed

        columns: list[Column] = [
            ("run", "left", lambda of: _broken(shown(of), 19)),
            ("mode", "left", lambda of: _broken(of[0].counts.folder.run.mode, 15)),
            ("bank", "right", lambda of: of[0].bank),
            ("slots", "right", lambda of: count(sum(each.counts.slots for each in of) or None)),
            ("counts", "right", lambda of: of[0].verdict),
            ("tok/s", "right", lambda of: four(of[0].seconds.tok_s)),
            ("measured", "right", lambda of: four(of[0].seconds.measured_tok_s)),
            ("error", "right", lambda of: signed(of[0].seconds.error)),
        ]
        rounded = [f"{one.name}: {one.counts.rounded}" for one in found.runs if one.counts.rounded]
        failed = [_failed_line(one) for one in found.failed]
        lines = [*found.in_short(), *rounded, *failed, *_fitted_on(found)]
        return [Section("", (table(columns, found.settings, dispensable=("mode",)), *lines))]

    def notes(self, found: RunChecks) -> list[str]:
        return [] if self.out is None else [f"wrote {self.out}"]

    def failures(self, found: RunChecks) -> list[SimError]:
        names = [one.name for one in found.failed]
        if not names:
            return []
        more = f" and {len(names) - MOST_FAILED} more" if len(names) > MOST_FAILED else ""
        shown = ", ".join(names[:MOST_FAILED]) + more
        return [SimError(f"{len(names)} of {len(found.runs)} runs differ or could not be compared: {shown}")]


def _failed_line(one: RunCheck) -> str:
    if one.counts.unlike:
        return f"{one.name}: not compared: {one.counts.unlike}"
    return first_difference(one.name, one.counts.differences)


def _fitted_on(checked: RunChecks) -> list[str]:
    """Which runs were predicted from which, and why others were not."""
    from native_bridge.check.result import shown

    groups: dict[str, list[str]] = {}
    for of in checked.settings:
        one = of[0]
        basis = f"seconds from {', '.join(one.seconds.anchors)}" if one.seconds.anchors else ""
        why = one.seconds.why_not.replace(f" beside {one.counts.folder.name} itself", " beside it")
        groups.setdefault(basis or f"no seconds: {why}", []).append(shown(of))
    return [
        f"{basis}: {', '.join(names[:MOST_NAMES])}" + f" and {len(names) - MOST_NAMES} more" * (len(names) > MOST_NAMES)
        for basis, names in groups.items()
    ]


def _broken(name: str, width: int) -> str:
    """A name in lines that break at its hyphens and spaces."""
    lines = [""]
    for part in re.split(r"(?<=[- ])", name):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
