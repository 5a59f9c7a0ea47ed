"""The check as one web page: no network, no scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashmoe_sim.io.home import without_home
from flashmoe_sim.io.sizes import size
from flashmoe_sim.io.version import program
from flashmoe_sim.io.whole import atomic_writer
from native_bridge.check.figure import draw
from native_bridge.check.result import Check, RunCheck, shown

TEMPLATE = "page.html.j2"
MOST_DIFFERENCES = 20


def write_page(check: Check, out: Path, *, command: str, force: bool = False) -> None:
    """Write the page, without the path of the user's home. command: what makes it again.

    Raises BadInput where `out` exists without force, or cannot be written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(TEMPLATE).render(
        failed=len(check.failed),
        total=len(check.runs),
        in_short=check.in_short(),
        runs=[_run(one) for one in check.runs],
        timed=[_run(of[0]) | {"name": shown(of)} for of in check.predicted],
        figure=Markup(draw(check)) if check.predicted else None,  # noqa: S704  # drawn here, no text of a file in it
        machines=_machines(check),
        no_seconds=_no_seconds(check),
        facts=_facts(check),
        command=command,
        program=program(),
    )
    with atomic_writer(out, force=force) as stream:
        stream.write(without_home(page).encode())


def _run(one: RunCheck) -> dict[str, Any]:
    counts, seconds, run = one.counts, one.seconds, one.counts.folder.run
    speed = f"{seconds.tok_s:.4g}" if seconds.tok_s else "-"
    lo, hi = seconds.tok_s_lo, seconds.tok_s_hi
    return {
        "name": one.name,
        "folder": str(counts.folder.place),
        "mode": run.mode,
        "bank": str(run.bank) if run.log.routed else "-",
        "ubatch": run.ubatch,
        "slots": f"{counts.slots:,}" if counts.slots else "-",
        "counters": str(counts.counters) if counts.counters else "-",
        "aliased": f"{counts.aliased:,}" if counts.aliased is not None else "-",
        "verdict": one.verdict,
        "differences": counts.differences[:MOST_DIFFERENCES],
        "more": max(0, len(counts.differences) - MOST_DIFFERENCES),
        "unlike": counts.unlike,
        "notes": counts.notes,
        "speed": speed,
        "interval": f"{lo:.4g} to {hi:.4g}" if lo is not None and hi is not None else "",
        "measured": f"{seconds.measured_tok_s:.4g}" if seconds.measured_tok_s else "-",
        "error": _signed(seconds.error),
        "held": seconds.held,
        "install": f"{seconds.install_s:.3g}" if seconds.install_s is not None else "-",
        "install_measured": f"{seconds.measured_install_s:.3g}" if seconds.measured_install_s else "-",
        "install_error": _signed(seconds.install_error),
        "read": size(seconds.bytes_read) if seconds.bytes_read is not None else "-",
    }


def _signed(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"


def _machines(check: Check) -> list[dict[str, Any]]:
    """The machines that were fitted, with their numbers and what was predicted on each."""
    found = []
    for anchors, machine in check.machines.items():
        runs = [shown(of) for of in check.predicted if of[0].seconds.anchors == anchors]
        numbers = [
            (path, f"{one.value:.4g}", f"{one.lo:.4g} to {one.hi:.4g}")
            for path, one in machine.quantities()
            if path.endswith((".layer_us", ".read_gb_s", ".call_us", ".resume_us", ".first_touch_gb_s", ".pinned_gb_s"))
            and one.value
        ]
        if runs:
            found.append({"anchors": anchors, "numbers": numbers, "runs": ", ".join(runs)})
    return found


def _no_seconds(check: Check) -> list[tuple[str, str]]:
    return [(shown(of), of[0].seconds.why_not) for of in check.settings if of[0].seconds.why_not]


def _facts(check: Check) -> list[dict[str, str]]:
    """Machine, runtime and model, once for all runs that have the same."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for one in check.runs:
        groups.setdefault(tuple(_facts_of(one).items()), []).append(one.name)
    return [{"runs": ", ".join(names), **dict(facts)} for facts, names in groups.items()]


def _facts_of(one: RunCheck) -> dict[str, str]:
    folder = one.counts.folder
    told, log = folder.told, folder.run.log
    runtime = told.get("runtime")
    build = (
        [f"{key} {runtime[key]}" for key in ("version", "commit") if key in runtime]
        if isinstance(runtime, dict)
        else []
    )
    model = folder.model
    return {
        "machine": ", ".join(folder.run.place.values()) or "not told",
        "threads": str(folder.run.threads),
        "backend": log.backend or "none that the log names",
        "runtime": ", ".join(build) or log.build or "not told",
        "model": model.name if model else "not known",
        "layers": f"{len(model.layers)} of {max(layer.n_experts for layer in model.layers.values())} experts"
        if model
        else "-",
        "cache": folder.cache or "not told",
    }
