"""The check as one web page: no network, and no scripts except to draw its figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashmoe_sim.io.sections import Column, Command, Figure, Part, Section, Table, Verdict
from flashmoe_sim.io.sizes import size
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.report.cells import page_table
from flashmoe_sim.report.page import check_installed, html
from native_bridge.check.result import RunCheck, RunChecks, four, shown, signed

MOST_DIFFERENCES = 20
IN_WORDS = {"text": "same text", "unknown": "not compared"}
NUMBERS = (".layer_us", ".read_gb_s", ".call_us", ".resume_us", ".first_touch_gb_s", ".pinned_gb_s")


def write_page(check: RunChecks, out: Path, *, command: str, force: bool = False) -> None:
    """Write the page, without the path of the user's home. command: makes it again.

    Raises BadInput if `out` exists without force, or cannot be written, and without the extra `report`.
    """
    made = [
        _answer(check),
        _differences(check),
        Section("Counts", _counts(check)),
        _seconds(check),
        _machines(check),
        _table("Without a predicted speed", _unpredicted(check), ("runs", "left"), ("why", "left")),
        _table("Notes", [(one.name, "; ".join(one.counts.notes)) for one in check.runs if one.counts.notes]),
        Section("Machine, runtime and model", (_facts(check),)),
        Section("To make this page again", (Command(command),)),
    ]
    page = html("Runs of the runtime against the simulator", [one for one in made if one.parts])
    with atomic_writer(out, force=force) as stream:
        stream.write(page.encode())


def _answer(check: RunChecks) -> Section:
    failed, total = len(check.failed), len(check.runs)
    verdict = Verdict("all counts equal", good=True)
    if failed:
        verdict = Verdict(f"{failed} of {total} runs differ or could not be compared", good=False)
    return Section("Runs of the runtime against the simulator", (verdict, *check.in_short()))


def _differences(check: RunChecks) -> Section:
    parts: list[Part] = []
    for one in check.failed:
        counts = one.counts
        parts.append(f"{one.name} ({counts.folder.run.mode}, {counts.folder.place}):")
        if counts.unlike:
            parts.append(counts.unlike)
            continue
        rows = tuple((one.where, one.runtime, one.simulator) for one in counts.differences[:MOST_DIFFERENCES])
        parts.append(Table((("where", "left"), ("the runtime", "left"), ("the simulator", "left")), rows))
        if (more := len(counts.differences) - MOST_DIFFERENCES) > 0:
            parts.append(f"and {more} more")
    return Section("What differs", tuple(parts))


def _counts(check: RunChecks) -> tuple[Part, ...]:
    columns: tuple[Column, ...] = (
        ("run", "left", lambda one: one.name),
        ("mode", "left", lambda one: one.counts.folder.run.mode),
        ("bank", "right", lambda one: one.bank),
        ("micro-batch", "right", lambda one: str(one.counts.folder.run.ubatch)),
        ("slots", "right", lambda one: f"{one.counts.slots:,}" if one.counts.slots else "-"),
        ("counters", "right", lambda one: str(one.counts.counters) if one.counts.counters else "-"),
        ("aliased", "right", lambda one: f"{one.counts.aliased:,}" if one.counts.aliased is not None else "-"),
        ("counts", "left", lambda one: IN_WORDS.get(one.verdict, one.verdict)),
    )
    return (
        page_table(columns, check.runs),
        "Slots: references whose slot was compared, in the modes that record them. Counters: numbers of the log. "
        "Aliased: references to an expert whose slot had gone to another expert of the same call.",
    )


def _seconds(check: RunChecks) -> Section:
    """Predicted against measured, as a table and, if a speed was measured, as a figure."""
    if not check.predicted:
        return Section("", ())
    explanation = (
        "Predicted from other runs of the same machine, never from the run itself or a repeat of it; repeats are one "
        "row, measured as their median. Each speed has its 90% interval; held: whether that has what was measured. "
        "Installs: seconds of all of them. Read: bytes from the sidecar, as predicted."
    )
    columns: tuple[Column, ...] = (
        ("run", "left", shown),
        ("predicted tok/s", "right", lambda of: four(of[0].seconds.tok_s)),
        ("90%", "right", lambda of: _interval(of[0])),
        ("measured", "right", lambda of: four(of[0].seconds.measured_tok_s)),
        ("error", "right", lambda of: signed(of[0].seconds.error)),
        ("held", "left", lambda of: {True: "yes", False: "no", None: ""}[of[0].seconds.held]),
        ("installs, s", "right", lambda of: _three(of[0].seconds.install_s)),
        ("measured", "right", lambda of: _three(of[0].seconds.measured_install_s or None)),
        ("error", "right", lambda of: signed(of[0].seconds.install_error)),
        ("read", "right", lambda of: size(of[0].seconds.bytes_read)),
    )
    numbers = page_table(columns, check.predicted)
    rows = [
        {"source": shown(of), "group": of[0].counts.folder.run.mode}
        | {name: getattr(of[0].seconds, name) for name in ("measured_tok_s", "tok_s", "tok_s_lo", "tok_s_hi")}
        for of in check.predicted
        if of[0].seconds.measured_tok_s
    ]
    if not rows:
        return Section("Seconds", (explanation, numbers))
    check_installed()
    import polars

    from flashmoe_sim.report.figures import predicted_measured

    caption = "Each point is a run, with its 90% interval; on the diagonal, what was predicted is what was measured."
    chart = predicted_measured(polars.DataFrame(rows, infer_schema_length=None))
    return Section("Seconds", (explanation, numbers, Figure("predicted-measured", chart, caption)))


def _unpredicted(check: RunChecks) -> list[tuple[str, str]]:
    """The runs that have no predicted speed, together if the reason is the same."""
    alike = dict[str, list[str]]()
    for of in check.settings:
        if why := of[0].seconds.why_not:
            alike.setdefault(why.replace(f"beside {of[0].name} itself", "beside the run itself"), []).append(shown(of))
    return [(", ".join(runs), why) for why, runs in alike.items()]


def _machines(check: RunChecks) -> Section:
    """The fitted machines, with their numbers and the predictions on each."""
    rows = []
    for anchors, machine in check.machines.items():
        runs = ", ".join(shown(of) for of in check.predicted if of[0].seconds.anchors == anchors)
        numbers = [(path, one) for path, one in machine.quantities() if path.endswith(NUMBERS) and one.value]
        if not runs:
            continue
        for number, (path, one) in enumerate(numbers):
            first = (", ".join(anchors), runs) if not number else ("", "")
            rows.append((first[0], path, f"{one.value:.4g}", f"{one.lo:.4g} to {one.hi:.4g}", first[1]))
    columns = (("fitted on", "left"), ("number", "left"), ("value", "right"), ("90%", "right"), ("predicts", "left"))
    return _table("What the seconds were predicted from", rows, *columns)


def _facts(check: RunChecks) -> Table:
    """Machine, runtime and model, once for all runs that share them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for one in check.runs:
        groups.setdefault(_facts_of(one), []).append(one.name)
    heads = ("runs", "machine", "threads", "backend", "runtime", "model", "layers", "page cache")
    rows = tuple((", ".join(names), *facts) for facts, names in groups.items())
    return Table(tuple((head, "right" if head == "threads" else "left") for head in heads), rows)


def _facts_of(one: RunCheck) -> tuple[str, ...]:
    folder = one.counts.folder
    document, log = folder.run.document, folder.run.log
    runtime = document.get("runtime")
    build = (
        [f"{key} {runtime[key]}" for key in ("version", "commit") if key in runtime]
        if isinstance(runtime, dict)
        else []
    )
    model = folder.model
    return (
        ", ".join(folder.run.place.values()) or "not told",
        str(folder.run.threads),
        log.backend or "none that the log names",
        ", ".join(build) or log.build or "not told",
        model.name if model else "not known",
        f"{len(model.layers)} of {max(layer.n_experts for layer in model.layers.values())} experts" if model else "-",
        folder.cache or "not told",
    )


def _table(title: str, rows: Sequence[tuple[str, ...]], *columns: tuple[str, str]) -> Section:
    if not rows:
        return Section("", ())
    return Section(title, (Table(columns or (("run", "left"), ("note", "left")), tuple(rows)),))


def _interval(one: RunCheck) -> str:
    lo, hi = one.seconds.tok_s_lo, one.seconds.tok_s_hi
    return f"{lo:.4g} to {hi:.4g}" if lo is not None and hi is not None else ""


def _three(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3g}"
