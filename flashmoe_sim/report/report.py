"""A report: the question, the answer, the figures behind it, and the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from flashmoe_sim.io.sections import Command, Figure, Part, Section, Table, count, interval, percent, speed
from flashmoe_sim.machines.basis import heading
from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.policies.base import CONTRACT_MEANINGS
from flashmoe_sim.report import chapters
from flashmoe_sim.report.advice import sections as advised
from flashmoe_sim.report.cells import page_table
from flashmoe_sim.report.close import Material, Row, knee
from flashmoe_sim.report.figures import predicted_measured, speeds_by_depth
from flashmoe_sim.report.figures.compared import picture
from flashmoe_sim.schema import BY_DEPTH, PREDICTED, frame
from flashmoe_sim.sweep.summary import of_user
from flashmoe_sim.sweep.task import SEMANTICS
from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.tune.evidence import evidence

SHOWN = ("Other systems", "Is the trace enough?", "What this rests on")  # elsewhere in a report, or at its end

MOST_NAMED = 4


def sections(found: Material, *, command: str) -> list[Section]:
    """The whole report, without sections that have no data. command: makes it again."""
    trace = [chapters.layers(found), chapters.use(found), chapters.reuse(found)]
    machine = [*side_by_side(found), by_depth(found), measured(found)]
    bank = [chapters.seconds(found), chapters.token(found)]
    if found.advice is None:
        made = [_answer(found), chapters.hits(found), *bank, *trace, *machine]
    else:
        made = [_answer(found), *machine, chapters.hits(found), *trace, _in_a_bank(found, bank)]
    made += [Section("What would add more", found.wanting), _origin(found, command)]
    return [one for one in made if one.parts]


def _answer(found: Material) -> Section:
    """The question and its answer: what is recommended, or without a recommendation what the rows say."""
    parts = _bank_in_short(found) if found.advice is None else advised(found.advice)[0].parts
    return Section(_title(found), (_question(found), *parts))


def _in_a_bank(found: Material, sections: Sequence[Section]) -> Section:
    """Speeds of the simulated slot bank; the recommended engine is in sections of its own."""
    parts = [part for section in sections for part in section.parts]
    if not parts:
        return Section("", ())
    rows = found.rows
    timed_as = _listed(rows, "execution")
    models = dict.fromkeys(row["execution"] for row in rows if row["execution"] is not None)
    first = (
        f"These figures show {_listed(rows, 'policy')} in a slot bank ({timed_as}), not the engine recommended above. "
        f"Timed as {'; '.join(f'{name}: {parse_execution(name).describes}' for name in models)}."
    )
    return Section("A slot bank on this machine", (first, *_bank_in_short(found), *parts))


def _bank_in_short(found: Material) -> list[Part]:
    """The bank that is looked at closely: what it hits, why it misses, what holds it back."""
    close = found.close
    row = knee(found.rows) if close is None else close.row
    parts: list[Part] = [_in_short(row), *([] if row is None else _of_yours(row, found.rows))]
    if close is not None and close.diagnosis is not None:
        kind = close.diagnosis.verdict.kind.replace("-", " ")
        parts.append(f"Why it misses there ({kind}): {close.diagnosis.verdict.text}")
    if close is not None and close.ceilings is not None:
        parts.append(f"What holds it back there: {close.ceilings.verdict.text}")
    return parts


def _title(found: Material) -> str:
    of = found.rows[0]["model"] or found.rows[0]["trace"]
    if found.machine is None:
        return f"What a bank hits: {_listed(found.rows, 'trace')}"
    return f"{of} on {heading(found.machine)}"


def _question(found: Material) -> str:
    rows = found.rows
    if found.advice is not None:
        name = found.advice.case.model.name
        return (
            f"The question: which engine runs {name} best on {found.advice.case.machine.name}, and how fast? tok/s are "
            "tokens a second, a token being a word or a part of one; 90%: the range that holds nine of ten speeds."
        )
    banks = sorted({row["bank"] for row in rows}, key=lambda bank: parse_bank(bank).size)
    ends = banks[0] + (f" to {banks[-1]}" if len(banks) > 1 else "")
    unit = {"slots": " slots a layer", "bytes": "", "share": " of the experts"}[parse_bank(banks[0]).unit]
    fast = "" if rows[0]["machine"] is None else f", and how fast is it on {_listed(rows, 'machine')}"
    contracts = dict.fromkeys(row["contract"] for row in rows)
    traces = f"trace{'s' * (len({row['trace'] for row in rows}) > 1)} {_listed(rows, 'trace')}"
    return (
        f"The question: what do banks of {ends}{unit} hit on the {traces} under {_listed(rows, 'policy')} "
        f"({'; '.join(f'contract {name}: {CONTRACT_MEANINGS[name]}' for name in contracts)}){fast}?"
    )


def _in_short(row: Row | None) -> str:
    """The bank that is looked at closely, in one sentence."""
    if row is None:
        return "Every policy here knows the future: these are ceilings, not choices."
    what = "decode speed" if row["tok_s"] is not None else "hit rate"
    fast = "" if row["tok_s"] is None else f", {speed(row['tok_s'])} tok/s"
    engine = "" if row["tok_s"] is None else f" in a slot bank ({row['execution']})"
    where = "" if row["machine"] is None else f" on {row['machine']}"
    optimum = row["best_hit_rate"]
    best = "" if optimum is None else f"; the best that starts empty hits {percent(optimum)}%"
    return (
        f"On the trace {row['trace']}, {row['policy']}{engine} reaches nine tenths of its best {what}{where} "
        f"with a bank of {row['bank']}: it hits {percent(row['hit_rate'])}%{fast}{best}."
    )


def _of_yours(row: Row, rows: Sequence[Row]) -> list[str]:
    """What your own policies hit in the bank that is looked at closely, against its policy."""
    same = ("trace_id", "bank", "scope", "contract", "prefetch", "machine")
    if row["hit_rate"] is None or of_user(row):
        return []
    found = []
    for own in rows:
        if of_user(own) and own["hit_rate"] is not None and all(own[name] == row[name] for name in same):
            more = 100 * (own["hit_rate"] - row["hit_rate"])
            where = f"{abs(more):.1f} points {'above' if more > 0 else 'below'} {row['policy']}"
            found.append(f"Your own {own['policy']} hits {percent(own['hit_rate'])}% there, {where}.")
    return found


def _origin(found: Material, command: str) -> Section:
    """Traces, model, machine, contract and versions, and the command."""
    rows = found.rows
    traces = {(row["trace"], row["trace_id"]): row for row in rows}
    columns = [
        ("trace", "left", lambda row: row["trace"]),
        ("content id", "left", lambda row: row["trace_id"]),
        ("tokens", "right", lambda row: count(row["tokens"])),
        ("model", "left", lambda row: row["model"] or "not known"),
    ]
    facts = [
        ("rows", f"{len(rows):,}, {'replayed for this report' if found.swept else 'of the folder of results'}"),
        ("policies", ", ".join(dict.fromkeys(row["policy"] for row in rows))),
        ("contracts", ", ".join(dict.fromkeys(row["contract"] for row in rows))),
        ("predictors", ", ".join(dict.fromkeys(row["prefetch"] for row in rows))),
    ]
    if rows[0]["machine"] is not None:
        facts.append(("machines", ", ".join(dict.fromkeys(row["machine"] for row in rows))))
        facts.append(("execution", ", ".join(dict.fromkeys(row["execution"] for row in rows))))
    versions = ", ".join(dict.fromkeys(row["version"] for row in rows))
    facts.append(("version", f"flashmoe-sim {versions}, semantics {SEMANTICS}"))
    parts: list[Part] = [page_table(columns, list(traces.values())), Table((("", "left"), ("", "left")), tuple(facts))]
    if found.advice is not None:
        parts += evidence(found.advice)
    else:
        parts += [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
    return Section("What this rests on", (*parts, "To make this page again:", Command(command)))


def _listed(rows: Sequence[Row], name: str) -> str:
    values = list(dict.fromkeys(row[name] for row in rows))
    if len(values) <= MOST_NAMED:
        return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"
    return f"{', '.join(values[:MOST_NAMED])} and {len(values) - MOST_NAMED} more"


def side_by_side(found: Material) -> list[Section]:
    """Every system at its best, and the advice after its first line."""
    if found.advice is None:
        return []
    rest = [one for one in advised(found.advice)[1:] if one.title not in SHOWN]
    return [Section("Systems side by side", (picture(found.advice),)), *rest]


def by_depth(found: Material) -> Section:
    """Decode speed as the context fills, if it is known."""
    rows = found.by_depth
    if not rows or found.advice is None:
        return Section("", ())
    columns = [
        ("system", "left", lambda row: row["setting"]),
        ("tokens", "right", lambda row: f"{row['depth']:,}"),
        ("tok/s", "right", lambda row: speed(row["tok_s"])),
        ("90%", "right", lambda row: interval(row["tok_s_lo"], row["tok_s_hi"])),
    ]
    caption = (
        "The recommended setting and the next fastest ones, with the same room for the context at every depth: only "
        f"what attention reads changes. A longer context (--context, here {found.advice.case.context:,} tokens) also "
        "takes memory from the experts."
    )
    chart = speeds_by_depth(frame(rows, BY_DEPTH))
    return Section("As the context fills", (Figure("by-depth", chart, caption, page_table(columns, rows)),))


def measured(found: Material) -> Section:
    """Predictions and measurements, if there are any."""
    rows = [row for row in found.measured if row["measured_tok_s"] is not None and row["tok_s"] is not None]
    if not rows:
        return Section("", ())
    columns = [
        ("source", "left", lambda row: row["source"]),
        ("bank", "right", lambda row: row["bank"] or "-"),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("predicted", "right", lambda row: speed(row["tok_s"])),
        ("90%", "right", lambda row: interval(row["tok_s_lo"], row["tok_s_hi"])),
        ("measured", "right", lambda row: speed(row["measured_tok_s"])),
        ("error", "right", lambda row: f"{row['error']:+.1%}"),
    ]
    caption = (
        "Each point is a row of the measured speeds: predicted tokens a second, with the 90% interval, against "
        "measured ones. On the diagonal they are the same; the band is a factor of 2."
    )
    chart = predicted_measured(frame(rows, PREDICTED))
    return Section(
        "Predicted against measured", (Figure("predicted-measured", chart, caption, page_table(columns, rows)),)
    )
