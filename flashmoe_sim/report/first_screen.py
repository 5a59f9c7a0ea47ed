"""A recommendation on one screen: what to run, how fast, what others measured, and what would help."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from flashmoe_sim.budget import WIRED, wired_limit_advice
from flashmoe_sim.geometry.named import file_bytes, named_model, repository_of
from flashmoe_sim.io.notes import CUT_OFF, TAKEN, code_of
from flashmoe_sim.io.provenance import program, today
from flashmoe_sim.io.sections import Command, Item, Part, Section, Verbatim, Verdict
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.basis import basis, heading, uncounted
from flashmoe_sim.machines.normal_unknowns import LEARNT
from flashmoe_sim.report import advice
from flashmoe_sim.report.strip import Dots, Span, strip
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.systems.facts import listed
from flashmoe_sim.tune.change import Changed
from flashmoe_sim.tune.levers import named
from flashmoe_sim.tune.others import OnOneComputer, nearest
from flashmoe_sim.tune.proof import count
from flashmoe_sim.tune.recommend import Recommendation

INDENT, WIDE, HIGH = 7, 80, 24
NARROW = {"length": 36, "label": 18}  # of the strip, on a narrow terminal
SPEED = "tokens a second"
SAME, OTHER, READS = "*", "o", "x"
MARKS = {SAME: "the same engine", OTHER: "another", READS: "waits for a drive"}
LEAST = 0.1  # tokens a second: a slower speed is written as `below 0.1`
NEAR, HELPS, LIMITS = 2, 3, 2  # at most so many other engines, changes of the machine and parts of a token's time
LEAST_MEASURED = 2  # other computers, even if they take more than the screen
SMALLEST = 0.1  # of a token's time: a smaller part is not named
ON_PCS = ("linux", "windows")  # systems that read mapped files at unlike rates
SLOWER = 0.97  # of the speed at an empty context: a full context that leaves more of it is not mentioned
_FILE = re.compile(r"the file with \S+ in its name, ([\d.,]+ GB), ")
_INSTEAD = re.compile(r" instead of [\d,.]+")
_IN_BRACKETS = re.compile(r" \([^)]*\)")
Row: TypeAlias = tuple[str, str]


class MemoryTaken(NamedTuple):
    """Memory that an answer takes. gib, of_gib: how much of how much, which may be unknown. words: both, and where."""

    label: str
    gib: float
    of_gib: float | None
    words: str


def sections(found: Recommendation) -> list[Section]:
    """The screen, and then what else was asked for, such as what to buy."""
    best, plain = found.best.best, found.plain
    assert best.launch is not None
    verdict = f"{in_words(best)}, with "
    whole = f"{verdict}{best.system.title}"
    above: list[Part] = [Verdict(whole if len(whole) <= WIDE else f"{verdict}{short_name(best)}")]
    if plain is not None:
        above.append(f"{in_words(plain)}, with {short_name(plain)}, nothing to build")
    if prompt := prompt_in_words(found):
        above.append(prompt)
    measured, left = nearest(best.system, found.case), HIGH - sum(map(_height, (*above, _strip(found, plain, ()))))
    below: list[Part] = [best.launch.command(_label("Run"))]
    before = ""
    for label, text in _rows(found):
        below.append(_item("" if label == before else label, text))
        before = label
    below += [*_sockets(found), *_or(found, plain)]
    below.append(_item("Date", f"{today()}, {program()}; more: --why; a page: --save page.html"))
    title = f"{found.case.model.name} on {heading(found.case.machine)}"
    left -= sum(map(_height, (title, *below)))
    parts = (*above, _strip(found, plain, measured[: max(left, LEAST_MEASURED)]), *below)
    asked = [advice.what_to_buy(found)] if found.bought is not None else []
    asked += [advice.is_enough(found)] if found.transfers else []
    return [Section(title, parts), *asked]


def _height(part: Part) -> int:
    """Lines of a terminal that is WIDE; one of a command, however long."""
    if isinstance(part, Verbatim):
        return part.text.count("\n") + 1 - part.text.endswith("\n")
    text = part if isinstance(part, str) else part.text if isinstance(part, Item | Verdict) else ""
    indent = part.indent if isinstance(part, Item) else 0
    return len(textwrap.wrap(text, WIDE, subsequent_indent=" " * indent, break_on_hyphens=False)) or 1


def document_of(found: Recommendation) -> dict[str, Any]:
    """The same for a program: speeds as numbers, the rest as the screen says it."""
    best, plain = found.best.best, found.plain
    assert best.launch is not None
    rows = dict[str, list[str]]()
    for label, text in _rows(found):
        rows.setdefault(label.lower(), []).append(text)
    return {
        "model": found.case.model.name,
        "machine": heading(found.case.machine),
        "answer": f"{in_words(best)}, with {best.system.title}",
        "tok_s": best.tok_s,
        "tok_s_90": [best.tok_s_lo, best.tok_s_hi],
        "command": best.launch.line,
        **{label: " ".join(texts) for label, texts in rows.items()},
        "nothing_to_build": None
        if plain is None or plain.launch is None
        else {"answer": f"{in_words(plain)}, with {plain.system.title}", "command": plain.launch.line},
        "measured_by_others": [
            {"on": one.on, "engine": one.title, "tok_s": [each.tok_s for each in one.speeds], "url": one.speeds[0].url}
            for one in nearest(best.system, found.case)
        ],
    }


def number(tok_s: float) -> str:
    """A speed in two digits and words: `25`, `6.6`, `0.35`, `below 0.1`."""
    if tok_s < LEAST:
        return f"below {LEAST}"
    return f"{tok_s:,.0f}" if tok_s >= 9.95 else f"{tok_s:.1f}" if tok_s >= 0.995 else f"{tok_s:.2g}"


def likely(lo: float | None, hi: float | None) -> str:
    """`13 to 37`, or `up to 3.2`; empty without an interval."""
    if lo is None or hi is None or number(hi) == number(lo):
        return ""
    return f"{f'{number(lo)} to' if lo >= LEAST else 'up to'} {number(hi)}"


def in_words(one: Compared) -> str:
    """`25 tokens a second, most likely 13 to 37`, as far as the interval is known."""
    return _with_range(one.tok_s, likely(one.tok_s_lo, one.tok_s_hi))


def prompt_in_words(found: Recommendation) -> str:
    """How fast a prompt is read, and how long it and its answer take; empty if prompts do not count."""
    goal, best = found.objective, found.best.best
    if not goal.prompt_tokens or best.prompt_tok_s is None:
        return ""
    what = "takes" if goal.goal == "prompt" else f"and an answer of {goal.answer_tokens:,} take"
    speed = _with_range(best.prompt_tok_s, likely(best.prompt_tok_s_lo, best.prompt_tok_s_hi))
    seconds = number(advice.objective_s(found))
    return f"A prompt is read at {speed}: one of {goal.prompt_tokens:,} tokens {what} {seconds} s"


def _with_range(tok_s: float | None, range_: str) -> str:
    said = f"{number(tok_s or 0.0)} {SPEED}"
    return f"{said}, most likely {range_}" if range_ else said


def _brief(one: Compared) -> str:
    """`25 (13 to 37)`."""
    range_ = likely(one.tok_s_lo, one.tok_s_hi)
    return f"{number(one.tok_s or 0.0)} ({range_})" if range_ else number(one.tok_s or 0.0)


def _item(label: str, text: str) -> Item:
    return Item(f"{_label(label)}{text}", INDENT)


def _label(text: str) -> str:
    return f"{text:<{INDENT}}"


def short_name(one: Compared) -> str:
    """Its engine: `leloch's llama.cpp`."""
    return one.system.title.partition(",")[0]


def _strip(found: Recommendation, plain: Compared | None, measured: Sequence[OnOneComputer]) -> Verbatim:
    """The answer, what anybody can install, and what others measured."""
    spans, dots = spans_of(found.best.best, plain), dots_of(measured)
    known = {one.mark for one in dots}
    legend = ", ".join(f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in known)
    below = f"Others measured: {legend}" if known else "No published speed of this model is known here."
    wide, narrow = strip(spans, dots, SPEED), strip(spans, dots, SPEED, **NARROW)
    return Verbatim(f"\n{wide}\n{below}\n", f"\n{narrow}\n{below}\n")


def spans_of(best: Compared, plain: Compared | None) -> list[Span]:
    """The answer and what anybody can install, with their intervals."""
    ran = [("this computer", best)] + ([] if plain is None else [(f"with {short_name(plain)}", plain)])
    return [span_of(label, one, first=one is best) for label, one in ran]


def span_of(label: str, one: Compared, *, first: bool) -> Span:
    """A speed with its interval."""
    tok_s = one.tok_s or 0.0
    return Span(label, one.tok_s_lo or tok_s, tok_s, one.tok_s_hi or tok_s, first)


def dots_of(groups: Sequence[OnOneComputer]) -> list[Dots]:
    """What others measured, with a mark for how."""
    return [
        Dots(
            f"{one.on}, {one.title.partition(',')[0]}",
            [speed.tok_s for speed in one.speeds],
            READS if one.reads else SAME if one.same else OTHER,
        )
        for one in groups
    ]


def _rows(found: Recommendation) -> Iterator[Row]:
    """The lines below the command: a label and a sentence each."""
    best, machine = found.best.best, found.case.machine
    if raised := wired_limit_advice(machine, (best.gpu_bytes or 0) + found.case.spare_bytes):
        yield "First", raised
    for one in found.others:
        if WIRED in one.best.why_not:
            yield "Or", f"{one.best.system.title}: {one.best.why_not}"
    get = "; ".join(get_of(found)).replace(".; ", ". ").replace(": the model's file, ", ": ")
    yield "Get", _FILE.sub(r"\1 ", get).replace("; look for ", ", ")
    yield "Needs", needs_of(found)
    if limit := _limit(found):
        yield "Limit", limit
    yield "Helps", _helps(found)
    if found.likely_faster is None and found.reads_itself is None and (near := _near(found)):
        yield "Near", near
    full = found.filled
    if full is not None and full.tok_s is not None and full.tok_s < SLOWER * (best.tok_s or 0.0):
        yield "Full", f"{_brief(full)} once all {found.case.context:,} tokens of the context are in use"
    if doubt := doubt_of(found):
        yield "Doubt", doubt
    learnt = () if machine.learnt is None else machine.learnt.notes
    if learnt:
        taught = sum(note.startswith(LEARNT) for note in learnt)
        yield "Heard", f"{count(taught, 'measured speed')} taught this answer; --why says which, and why others did not"
    yield from _given(found)
    yield from (("Note", note) for note in found.notes if code_of(note) in (TAKEN, CUT_OFF))


def _sockets(found: Recommendation) -> Iterator[Part]:
    for part in advice.sockets(found):
        if isinstance(part, Command):
            yield replace(part, label=_label("Or"))
        else:
            yield _item("NUMA", str(part).removeprefix("Sockets: "))


def get_of(found: Recommendation) -> Iterator[str]:
    """Where the engine is, and what the words in capitals of its line stand for."""
    best = found.best.best
    facts = best.system.facts
    if facts is not None and facts.get is not None and facts.get.programs:
        branch = f", branch {facts.get.branch}" if facts.get.branch else ""
        yield f"{facts.get.address}{branch}{f'; building: {facts.get.building}' if facts.get.building else ''}"
    else:
        address = [] if facts is None or facts.get is None else [facts.get.address]
        yield from advice.where_from(found, best) or address
    words = advice.meanings_of(found)
    if advice.NO_FILE in words:
        words[advice.NO_FILE] = f"the model's file, {file_bytes(found.case.model) / 1e9:,.1f} GB{_published_at(found)}"
    yield from (f"{word}: {meaning}" for word, meaning in words.items())


def _published_at(found: Recommendation) -> str:
    """Where most GGUF files of a known model are; empty if that is not known."""
    quant, repository = found.case.model.quant, repository_of(found.case.model)
    return f"; look for {quant.upper()} at https://huggingface.co/{repository}" if quant and repository else ""


def needs_of(found: Recommendation) -> str:
    """Memory, and how much of it stays free."""
    needs = [one.words for one in held_of(found)]
    return listed(needs) if needs else advice.memory(found.best.best)


def held_of(found: Recommendation) -> list[MemoryTaken]:
    """What is taken of the GPU's memory, and of RAM."""
    best, machine = found.best.best, found.case.machine
    size = None if machine.gpu is None else machine.gpu.memory_gib
    held = []
    if best.gpu_bytes:
        of_gib = None if size is None or machine.unified else size.value
        of = "" if of_gib is None else f" of {of_gib:.1f}"
        left = f" ({best.gpu_free_bytes / GIB:.1f} stay free)" if best.gpu_free_bytes else ""
        gib = best.gpu_bytes / GIB
        held.append(MemoryTaken("GPU", gib, of_gib, f"{gib:.1f}{of} GiB of GPU memory{left}"))
    if (bytes_ := best.held_bytes or 0) and not (machine.unified and best.gpu_bytes):
        ram_gib = 0.0 if machine.memory is None else machine.memory.ram_gib.value
        too_much = f", for {best.mapped_bytes / GIB:,.1f} of experts" if best.mapped_bytes > bytes_ else ""
        of = f" of {ram_gib:.0f}" if ram_gib else ""
        held.append(MemoryTaken("RAM", bytes_ / GIB, ram_gib or None, f"{bytes_ / GIB:.1f}{of} GiB of RAM{too_much}"))
    return held


def _limit(found: Recommendation) -> str:
    """What most of a token's time is spent on."""
    shares = advice.shares_of(found.best.best, least=SMALLEST).items()
    after = ("of a token's time is ", *[""] * len(shares))
    texts = [f"{share:.0%} {of}{what}" for (what, share), of in zip(shares, after, strict=False)]
    return _in_a_line(texts[:LIMITS], ", ")


def _in_a_line(texts: Sequence[str], between: str) -> str:
    """As many of these as a line has room for, and the first anyway; empty for none."""
    line = "".join(texts[:1])
    for text in texts[1:]:
        if len(longer := f"{line}{between}{text}") > WIDE - INDENT:
            break
        line = longer
    return line


def helps_of(found: Recommendation) -> list[tuple[str, Changed]]:
    """Changes of the computer that bring most, in words."""
    return [(_IN_BRACKETS.sub("", one.change), one) for one in named(found.levers)[:HELPS]]


def _helps(found: Recommendation) -> str:
    changes = ((_INSTEAD.sub("", change), one) for change, one in helps_of(found))
    each = [f"{change}: {number(one.after.tok_s or 0.0)} ({one.gain:+.0%})" for change, one in changes]
    return _in_a_line(each, "; ") or "no single change of this computer gains 3%"


def _near(found: Recommendation) -> str:
    """Other engines that may be as fast; by their full titles where the short name stands on the screen already."""
    named_before = [short_name(one) for one in (found.best.best, found.plain) if one is not None]
    near, with_lines = list[str](), (found.main_line, found.reads_itself, found.likely_faster)
    for one in [each.best for each in found.rivals if each not in with_lines][:NEAR]:
        name = one.system.title if short_name(one) in named_before else short_name(one)
        near.append(f"{name} {_brief(one)}{', which may not fit' if one.tight else ''}")
        named_before.append(short_name(one))
    return _in_a_line(near, "; ")


def doubt_of(found: Recommendation) -> str:
    """The one thing that may be wrong with the answer, if there is one."""
    best, proof = found.best.best, found.proof
    if best.tight:
        return "it may not fit: little of the GPU's memory stays free"
    if changed := best.system.changes_text(found.case):
        return f"it changes the text: {changed}"
    if found.pages:
        return f"most of a token waits for the drive, and how fast is the largest unknown{_measure(found)}"
    if not proof.rows:
        return f"nobody has published a speed of this engine with {proof.arch or 'such a model'} {proof.where}"
    if proof.machines == 1 and not proof.common:
        return f"its {proof.rows} published speeds with such a model are all from one computer"
    if found.borrowed:
        return "no recorded routing of this model is at hand; that of others stands in"
    return ""


def _measure(found: Recommendation) -> str:
    known = found.case.machine.storage.faults_gb_s is not None
    return "" if known else ": `sim machine probe --file MODEL.gguf --out mine.toml` measures it"


def _given(found: Recommendation) -> Iterator[Row]:
    """What of the computer nobody said."""
    machine = found.case.machine
    sentence = basis(machine)
    _, guessed, names = sentence.partition("guessed: ")
    if guessed:
        yield "Guess", names
    elif not sentence.startswith("Given: ") and sentence:
        yield "Guess", sentence.removeprefix("Guessed: ")
    if found.waits_for_pages(SMALLEST) and not machine.os and not machine.unified:
        yield "Guess", f"the system, on which reading depends: give {' or '.join(f'`+ {name}`' for name in ON_PCS)}"
    if unseen := uncounted(machine):
        yield "Unseen", unseen
    facts = found.best.best.system.facts
    if facts is not None and (old := facts.if_old(today())):
        yield "Old", old


def _another(one: Compared, how: str, best: Compared) -> Iterator[Part]:
    """Another engine than the best one, and how it is; its line, and where it is."""
    launch, facts = one.launch, one.system.facts
    if launch is not None:
        same = short_name(one) == short_name(best)
        yield _item("Or", f"{one.system.title if same else short_name(one)}, {how}:")
        yield launch.command(_label(""))
        if not same and facts is not None and facts.get is not None:
            yield _item("", f"from {facts.get.address}")


def _or(found: Recommendation, plain: Compared | None) -> Iterator[Part]:
    """Other lines that may be better for who asks."""
    other, less, likely_faster = found.reads_itself, found.smaller, found.likely_faster
    if likely_faster is not None:
        share = math.floor(100 * found.wins(likely_faster))  # below the one from which it would be named first
        how = f"likely faster ({share}%): {_brief(likely_faster.best)}"
        yield from _another(likely_faster.best, how, found.best.best)
    if other is not None and other.best.launch is not None:
        yield from _another(other.best, f"which reads experts itself, {_brief(other.best)}", found.best.best)
    elif plain is not None and plain.launch is not None:
        yield plain.launch.command(_label("Or"))
    if less is not None and less.after.launch is not None:
        size_gb = file_bytes(named_model(less.change)) / 1e9
        yield _item("Or", f"{less.change}, {size_gb:,.1f} GB, changes the text: {_brief(less.after)}")
