"""A recommendation in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.report.sections import Command, Section, Table
from flashmoe_sim.systems.base import Launch
from flashmoe_sim.systems.compare import NEAR, Compared
from flashmoe_sim.systems.files import placeholders
from flashmoe_sim.tune.cliffs import cliffs
from flashmoe_sim.tune.evidence import evidence
from flashmoe_sim.tune.recommend import KNEE, Recommendation, Sizes
from flashmoe_sim.tune.search import Searched, kept_bytes

WAITS = {
    "read": "for reads from storage",
    "upload": "for uploads to the GPU",
    "cpu": "for experts that the CPU computes",
    "compute": "for computing",
    "host": "for the host",
}
OTHERS = 6
SAME = "no change"


def sections(found: Recommendation) -> list[Section]:
    """The whole advice."""
    made = [_run(found), _size(found), _settings(found), _waits(found), _others(found)]
    made.append(Section("What to watch", tuple(cliffs(found))))
    made.append(Section("What this rests on", tuple(evidence(found))))
    return [one for one in made if one.parts]


def speed(one: Compared) -> str:
    """`12.1 tok/s (90 %: 10.2 to 14)`, with the interval if it is known."""
    if one.tok_s is None:
        return "-"
    if one.tok_s_lo is None or one.tok_s_hi is None:
        return f"{three(one.tok_s)} tok/s"
    return f"{three(one.tok_s)} tok/s (90 %: {three(one.tok_s_lo)} to {three(one.tok_s_hi)})"


def memory(one: Compared) -> str:
    """`20.1 GiB of the GPU and 3.2 GiB of RAM`."""
    shares = [((one.gpu_bytes or 0), "the GPU"), ((one.ram_bytes or 0), "RAM")]
    said = [f"{size / GIB:.1f} GiB of {where}" for size, where in shares if size]
    return " and ".join(said) or "no memory of its own"


def _run(found: Recommendation) -> Section:
    best = found.best.best
    assert best.launch is not None
    goal = found.objective
    first = f"Run {best.system.title} ({best.system.spec}): {speed(best)}."
    if goal.goal != "decode" and best.prompt_tok_s is not None:
        seconds = goal.seconds(best)
        assert seconds is not None
        what = "prompt" if goal.goal == "prompt" else f"prompt and an answer of {goal.answer_tokens:,} tokens"
        first += (
            f" It reads the prompt at {three(best.prompt_tok_s)} tok/s: {three(seconds)} s for a {what} "
            f"({goal.prompt_tokens:,} prompt tokens)."
        )
    parts: list[str | Table | Command] = [first, Command(best.launch.line), *_words(best.launch)]
    parts.append(f"It takes {memory(best)}. The flags are those of {best.system.version}.")
    if found.main_line is not None and (plain := found.main_line.best).launch is not None:
        parts += [
            f"Without a fork, llama.cpp itself ({plain.system.spec}) gives {speed(plain)}:",
            Command(plain.launch.line),
        ]
    return Section(f"{found.case.model.name} on {found.case.machine.title}", tuple(parts))


def _words(launch: Launch) -> list[str]:
    """What the words of a command line stand for."""
    return [f"{word}: {meaning}." for word, meaning in placeholders(launch).items()]


def _size(found: Recommendation) -> Section:
    sizes = found.sizes
    if sizes is None:
        return Section("", ())
    size = found.best.best.system.size
    marks = _marks(sizes)
    rows = []
    for one in found.best.tried:
        known = next((other for other in marks if other.system == one.system), one)
        rows.append(
            (
                f"{getattr(one.system, size):,}",
                f"{kept_bytes(one) / GIB:.1f}",
                "-" if one.page_cache_bytes is None else f"{max(one.page_cache_bytes, 0) / GIB:.1f}",
                "-" if one.hit_rate is None else f"{100 * one.hit_rate:.1f}",
                three(one.tok_s or 0.0),
                "" if known.tok_s_lo is None else f"{three(known.tok_s_lo)}-{three(known.tok_s_hi or 0.0)}",
                ", ".join(marks.get(known, [])),
            )
        )
    heads = ((size, "right"), ("GiB", "right"), ("pages", "right"), ("hit %", "right"), ("tok/s", "right"))
    said = f"GiB: all that it keeps; pages: GiB of RAM left for the page cache. {_why_chosen(sizes, size)}"
    return Section(
        f"How large: {size.replace('_', ' ')}", (Table((*heads, ("90 %", "right"), ("", "left")), tuple(rows)), said)
    )


def _marks(sizes: Sizes) -> dict[Compared, list[str]]:
    found: dict[Compared, list[str]] = {}
    named = (
        (sizes.smallest, "smallest"),
        (sizes.knee, "knee"),
        (sizes.chosen, "take this"),
        (sizes.fastest, "largest that helps"),
    )
    for one, mark in named:
        key = next((other for other in found if other.system == one.system), one)
        found.setdefault(key, []).append(mark)
    return found


def _why_chosen(sizes: Sizes, size: str) -> str:
    chosen, fastest = (getattr(one.system, size) for one in (sizes.chosen, sizes.fastest))
    knee = f"The knee is the smallest with {KNEE:.0%} of the best speed."
    if chosen == fastest:
        return knee
    return (
        f"{knee} {chosen:,} and {fastest:,} are the same within {NEAR:.0%}: take {chosen:,}, which needs less memory."
    )


def _settings(found: Recommendation) -> Section:
    """What the other settings bring, and what fewer experts a token would."""
    best, parts, idle = found.best.best, [], []
    for name in best.system.choices:
        others = [one for one in found.best.others if getattr(one.system, name) != getattr(best.system, name)]
        changes = {getattr(one.system, name): _gain(best, one) for one in others}
        if set(changes.values()) <= {SAME}:
            idle += [name] if changes else []
            continue
        listed = _listed([f"{value} {change}" for value, change in changes.items()])
        parts.append(f"{name}: {getattr(best.system, name)} is best; {listed}.")
    if idle:
        parts.append(
            f"{_listed(idle)}: {'no other value changes' if len(idle) == 1 else 'none changes'} the speed here."
        )
    for one in found.fewer:
        parts.append(
            f"top_k: {one.system.spec} takes fewer experts a token than the model's {found.case.model.top_k}: "
            f"{speed(one)}, {_gain(best, one)}. It changes the text: judge its quality yourself."
        )
    return Section("Other settings", tuple(parts))


def _gain(best: Compared, one: Compared) -> str:
    assert best.tok_s
    change = (one.tok_s or 0.0) / best.tok_s - 1
    return SAME if abs(change) < 0.005 else f"{change:+.0%}"


def _waits(found: Recommendation) -> Section:
    """What a token waits for."""
    spent = found.best.best.ms_per_token or {}
    total = sum(spent.values())
    if not total:
        return Section("", ())
    order = sorted(spent, key=lambda group: -spent[group])
    shares = [f"{spent[group] / total:.0%} {WAITS[group]}" for group in order if spent[group] >= 0.01 * total]
    said = f"Of a token's {three(total)} ms, it spends {_listed(shares)}."
    return Section("What holds it back", (said,))


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _others(found: Recommendation) -> Section:
    """Other systems, those within the error first."""
    ran = [one for one in found.others if one.runs]
    if not ran:
        return Section("Other systems", tuple(part for part in (_cannot(found),) if part))
    shown = ran[:OTHERS]
    rows = tuple((one.best.system.spec, *_row(one.best)) for one in shown)
    heads = (("", "left"), ("GPU", "right"), ("RAM", "right"), ("tok/s", "right"), ("90 %", "right"))
    parts: list[str | Table | Command] = [Table(heads, rows)]
    if rivals := [one.best.system.name for one in found.rivals]:
        parts.append(f"Within the error, {_listed(rivals)} could be as fast: try them if you can run them.")
    if len(ran) > len(shown):
        parts.append(f"{len(ran) - len(shown)} slower ones are left out; `sim compare` shows all.")
    parts.append(_cannot(found))
    return Section("Other systems", tuple(part for part in parts if part))


def _row(one: Compared) -> tuple[str, ...]:
    interval = "" if one.tok_s_lo is None or one.tok_s_hi is None else f"{three(one.tok_s_lo)}-{three(one.tok_s_hi)}"
    gpu, ram = ((size or 0) / GIB for size in (one.gpu_bytes, one.ram_bytes))
    return f"{gpu:.1f}", f"{ram:.1f}", three(one.tok_s or 0.0), interval


def _cannot(found: Recommendation) -> str:
    cannot = [one for one in found.found.systems if not one.runs]
    small = [one.best.system.name for one in cannot if "GiB" in one.best.why_not]
    return f"Too large for this machine: {_listed(small)}." if small else ""


def document(found: Recommendation) -> dict[str, Any]:
    """`sim recommend --json`."""
    sizes = found.sizes

    def row(one: Searched | Compared | None) -> dict[str, Any] | None:
        if one is None:
            return None
        compared = one.best if isinstance(one, Searched) else one
        launch = compared.launch
        return compared.as_row() | {"environment": dict(launch.environment) if launch else {}}

    return {
        "model": found.case.model.name,
        "machine": found.case.machine.name,
        "objective": found.objective.goal,
        "evaluations": found.found.evaluations,
        "best": row(found.best),
        "main_line": row(found.main_line),
        "sizes": None
        if sizes is None
        else {
            "setting": found.best.best.system.size,
            "smallest": row(sizes.smallest),
            "knee": row(sizes.knee),
            "chosen": row(sizes.chosen),
            "fastest": row(sizes.fastest),
            "tried": [row(one) for one in found.best.tried],
        },
        "choices": [row(one) for one in found.best.others],
        "fewer_experts": [row(one) for one in found.fewer],
        "rivals": [one.best.system.spec for one in found.rivals],
        "systems": [row(one) for one in found.found.systems],
        "cliffs": cliffs(found),
        "evidence": evidence(found),
        "notes": list(found.notes),
    }
