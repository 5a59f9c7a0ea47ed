"""A recommendation in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flashmoe_sim.budget import WIRED, wired_limit_advice
from flashmoe_sim.geometry.model import DEFAULT_TYPE, ModelGeometry
from flashmoe_sim.geometry.named import fewest_bits, file_bytes, is_listed, named_model, repository_of, smaller
from flashmoe_sim.io.errors import TooLarge
from flashmoe_sim.io.provenance import today
from flashmoe_sim.io.sections import (
    WAITS,
    Column,
    Command,
    Item,
    Part,
    Section,
    Table,
    Verdict,
    brief_interval,
    percent,
    table,
)
from flashmoe_sim.io.sizes import GIB, three
from flashmoe_sim.machines.arithmetic import most_gb_s
from flashmoe_sim.machines.basis import basis, heading, uncounted
from flashmoe_sim.machines.sockets import BOUND, IN_WORDS, INTERLEAVED
from flashmoe_sim.systems.base import LLAMA_CPP
from flashmoe_sim.systems.compare import NEAR, Compared
from flashmoe_sim.systems.facts import OS_NAMES, listed
from flashmoe_sim.systems.files import placeholders
from flashmoe_sim.tune.buy import Advice
from flashmoe_sim.tune.change import MOST_REFS, Changed
from flashmoe_sim.tune.cliffs import cliffs
from flashmoe_sim.tune.evidence import evidence
from flashmoe_sim.tune.levers import SMALLEST_GAIN, named
from flashmoe_sim.tune.pays import CachePays, gains
from flashmoe_sim.tune.proof import kept_bytes
from flashmoe_sim.tune.recommend import KNEE, Recommendation, Sizes
from flashmoe_sim.tune.smaller import token_bytes
from flashmoe_sim.tune.speeds import prompt_speed, speed

FASTER = 3
NO_FILE, DOWNLOADED = "MODEL.gguf", "-hf"  # how a command names the model's file
OTHER_FORMAT = "give --model"  # what the reason says if another quantization of the model would do
BOUGHT = 10
MANY = 3.0  # times as fast: a smaller file then stands right below the command
AT_LAUNCH = (
    "Prices: in US dollars when a card came out, from 2016 to 2025; today's are others, and used cards cost less. "
    "--prices FILE, a table part,price, has yours, of other parts too."
)
LIKELY = 0.5
SMALLEST_PART = 0.02  # of a token's time: less of a difference is not told
SMALLEST_ALIASING = 0.001
SAME = "no change"
OTHER_COMPUTING = "other computing"  # beside that of experts on the CPU


def sections(found: Recommendation) -> list[Section]:
    """The whole advice."""
    made = [_run(found), _get(found), _size(found), _settings(found), _waits(found)]
    made += [_cache_pays(found), what_to_buy(found), _others(found)]
    made.append(Section("What to watch", tuple(cliffs(found))))
    made.append(is_enough(found))
    made.append(Section("What this rests on", tuple(evidence(found))))
    return [one for one in made if one.parts]


def memory(one: Compared) -> str:
    """`20.1 GiB of GPU memory and 3.2 GiB of RAM`, without files that stay mapped."""
    ram_bytes = one.held_bytes if one.loads_files else one.ram_bytes
    shares = [((one.gpu_bytes or 0), "GPU memory"), ((ram_bytes or 0), "RAM")]
    parts = [f"{size / GIB:.1f} GiB of {where}" for size, where in shares if size]
    return " and ".join(parts) or "no memory of its own"


def sockets(found: Recommendation) -> list[Part]:
    """How the answer uses two sockets, and what the second one adds or costs; nothing with one."""
    best, case, other = found.best.best, found.case, found.otherwise_seated
    mode = best.system.socket_mode(case)
    if not mode:
        return []
    how = f"Sockets: {IN_WORDS[mode]}"
    if other is None or other.tok_s is None or best.tok_s is None or other.launch is None:
        return [f"{how}."]
    if mode != BOUND:
        fits = best.system.read_in_ram(case) <= case.socket_ram_bytes
        need = "" if fits or mode != INTERLEAVED else f"; {best.system.read_in_ram(case) / GIB:.0f} GiB do not fit one"
        return [f"{how}{need}. One socket with all that in its RAM would have {speed(other)}."]
    node = ", node 0 or the GPU's" if case.machine.gpu is not None else ""
    node += " (in Windows: `start /node 0`)" if case.machine.os == "windows" else ""
    start = f"{how}{node}, whose RAM has room. With memory interleaved over both, it would have {speed(other)}"
    if other.tok_s <= best.tok_s:
        return [f"{start}: the second one adds room for larger models."]
    return [f"{start}. Try that too:", other.launch.command()]


def objective_s(found: Recommendation) -> float:
    """How long the prompt takes or, if an answer counts, both."""
    goal, best = found.objective, found.best.best
    seconds = goal.seconds(best)
    assert seconds is not None
    return seconds + (goal.answer_tokens * _slower_s(found) if goal.goal == "both" else 0.0)


def _slower_s(found: Recommendation) -> float:
    """How much longer a token of the answer takes than one at `depth`, since the prompt and half of the answer are in
    the context: in proportion to what a full one takes."""
    best, full, goal = found.best.best, found.filled, found.objective
    if full is None or not full.tok_s or not best.tok_s:
        return 0.0
    share = (goal.prompt_tokens + goal.answer_tokens / 2) / (found.case.context - found.case.depth)
    return share * (1 / full.tok_s - 1 / best.tok_s)


def _run(found: Recommendation) -> Section:
    best = found.best.best
    assert best.launch is not None
    goal = found.objective
    doubt = "" if found.proof.common or found.proof.shown else ", unproven"
    first = f"Run {best.system.title} ({best.system.spec}): {speed(best)}{doubt}."
    if goal.prompt_tokens:
        take = "takes" if goal.goal == "prompt" else f"and an answer of {goal.answer_tokens:,} take"
        first += (
            f" It reads a prompt at {prompt_speed(best)}: a prompt of {goal.prompt_tokens:,} tokens {take} "
            f"{three(objective_s(found))} s."
        )
    learnt = found.case.machine.learnt
    measured = [] if learnt is None else [f"{note[:1].upper()}{note[1:]}." for note in learnt.notes]
    words = [f"{word}: {meaning}." for word, meaning in meanings_of(found).items()]
    taken = filter(None, (basis(found.case.machine), uncounted(found.case.machine)))
    less = _smaller(found)
    much = less if found.smaller is not None and found.smaller.times >= MANY else []
    parts: list[Part] = [Verdict(first), *measured, best.launch.command(), *where_from(found, best)]
    parts += [*words, *much]
    parts += [*sockets(found), *taken]
    parts.append(f"It takes {memory(best)}{_free(best)}{_mapped(found)}. {_depth(found)}")
    parts += filter(None, (_faults(found), _drafts(found)))
    if raised := wired_limit_advice(found.case.machine, (best.gpu_bytes or 0) + found.case.spare_bytes):
        parts.append(f"That is near the limit of the GPU's share of the RAM: {raised}.")
    if (facts := best.system.facts) is None:
        parts.append(f"The flags are from {best.system.version}.")
    elif old := facts.if_old(today()):
        parts.append(old)
    files_gib = (found.case.model.routed_bytes + found.case.dense_bytes) / GIB
    parts.append(f"The model takes {files_gib:,.1f} GiB of storage{_other_quant(found.case.model)}.")
    if (best.aliased_share or 0.0) >= SMALLEST_ALIASING:
        parts.append(
            f"It changes the text: {best.aliased_share:.1%} of the experts are not the routed ones, see below."
        )
    if found.main_line is not None and (plain := found.main_line.best).launch is not None:
        parts += [
            f"What anybody can install, {plain.system.title} ({plain.system.spec}), gives {speed(plain)}:",
            plain.launch.command(),
            *where_from(found, plain),
        ]
    if found.faster:
        parts.append(_faster(found))
    parts += _reads_itself(found)
    parts += [f"{one.best.system.title}: {one.best.why_not}." for one in found.others if WIRED in one.best.why_not]
    parts += [] if much else less
    parts += filter(None, [_larger(found)])
    parts += _kv_types(found)
    return Section(f"{found.case.model.name} on {heading(found.case.machine)}", tuple(parts))


def where_from(found: Recommendation, one: Compared) -> list[str]:
    """Where a program comes from, in a sentence; nothing for the answer's own, which stands with its command."""
    best = found.best.best
    if one is not best and one.system.program == best.system.program:
        return []
    return [sentence] if (sentence := one.system.where_from(found.case)) else []


def _new_words(found: Recommendation, one: Compared) -> list[str]:
    """What words in capitals stand for, of those that no command above this one has."""
    assert one.launch is not None
    known = {**meanings_of(found)}
    if found.smaller is not None and found.smaller.after is not one and found.smaller.after.launch is not None:
        known |= placeholders(found.smaller.after.launch)
    return [f"{word}: {meaning}." for word, meaning in sorted(placeholders(one.launch).items()) if word not in known]


def meanings_of(found: Recommendation) -> dict[str, str]:
    """What words in capitals in the answer's command stand for; of the file, also its size and how to download it."""
    launch, model = found.best.best.launch, found.case.model
    assert launch is not None
    meanings = placeholders(launch)
    size_gb = f"{file_bytes(model) / 1e9:,.1f} GB"
    if DOWNLOADED in meanings:
        repository, _, quant = model.repository.partition(":")
        file = f"the file with {quant} in its name" if quant else "its file"
        meanings[DOWNLOADED] = (
            f"downloads {file}, {size_gb}, from https://huggingface.co/{repository} at the first start"
        )
    elif NO_FILE in meanings:
        meanings[NO_FILE] += f". It has {size_gb}"
        if found.best.best.system.program == LLAMA_CPP and model.quant:
            asked = f"sim recommend {repository_of(model) or 'OWNER/NAME-GGUF'}:{model.quant.upper()}"
            meanings[NO_FILE] += f"; `{asked}`, or another repository, has a line that downloads it"
    return meanings


def _smaller(found: Recommendation) -> list[Part]:
    """A smaller file that is much faster, with its command."""
    less = found.smaller
    if less is None or less.after.launch is None:
        return []
    size_gb = file_bytes(named_model(less.change)) / 1e9
    found_where = "" if is_listed(less.change) else " if you find it published,"
    sentence = (
        f"A smaller file of {size_gb:,.1f} GB, --model {less.change},{found_where} changes the text and runs "
        f"{less.times:.1f} times as fast, with {less.after.system.title}: {speed(less.after)}:"
    )
    return [sentence, less.after.launch.command(), *where_from(found, less.after), *_new_words(found, less.after)]


def _larger(found: Recommendation) -> str:
    """A larger file that is faster, in a sentence; empty if there is none."""
    more = found.larger
    if more is None:
        return ""
    other, own = named_model(more.change), found.case.model
    why = f"this CPU computes {other.quant.upper()} faster than {own.quant.upper()}"
    if (reads := token_bytes(other)) < token_bytes(own):
        why = f"a token reads {reads / 1e9:.2f} GB of it and {token_bytes(own) / 1e9:.2f} GB of {own.quant.upper()}"
    return (
        f"A larger file is faster: {more.change}, of {file_bytes(other) / 1e9:,.1f} GB, runs {more.times:.2f} times as "
        f"fast with the same engine, since {why}."
    )


def _faults(found: Recommendation) -> str:
    """How to know the rate of page faults, the largest unknown of an answer that waits for them; empty for others."""
    machine = found.case.machine
    if not found.pages or machine.storage.faults_gb_s is not None:
        return ""
    named = "" if machine.os else ", and is about three times as high on Linux as on Windows: name yours in --machine"
    return (
        f"How fast pages of mapped files are read is the largest unknown{named}; `sim machine probe --file MODEL.gguf "
        "--out mine.toml` measures it in a minute."
    )


def _depth(found: Recommendation) -> str:
    """How full the context is at which speeds are quoted, and the best's speed with all of it filled."""
    depth, full = found.case.depth, found.filled
    sentence = f"All speeds are with {depth:,} tokens in the context" if depth else "All speeds are at an empty context"
    if full is None or full.tok_s is None:
        return f"{sentence}; more tokens in it are slower."
    return f"{sentence}; with all {found.case.context:,} tokens of it filled this one has {speed(full)}."


def _kv_types(found: Recommendation) -> list[Part]:
    """What keys and values of another type would do, with the command of the one that is worth it."""
    kinds, own = found.kv_types, found.case.kv_type
    if kinds is None:
        return []
    if (better := kinds.proposed) is None:
        each = listed([f"{one.kv_type} would be {speed(one.best)}" for one in kinds.tried])
        return [f"Keys and values stay in {own}: {each}."]
    best = better.best
    assert best.launch is not None
    slightly = own == DEFAULT_TYPE and better.kv_type == "q8_0"
    change = "it changes the text slightly" if slightly else "it changes the text"
    if better.kv_type == DEFAULT_TYPE:
        change = "it no longer changes the text"
    others = [f"{one.kv_type} {speed(one.best)}" for one in kinds.tried if one is not better]
    beside = f" ({listed(others)})" if others else ""
    setting = "" if best.system == found.best.best.system else f", with {best.system.spec}"
    doubt = "" if best.system.uses_gpu else ", which no published speed on a CPU shows"
    sentence = f"--kv-type {better.kv_type} would be {speed(best)}{setting}{doubt}{beside}; {change}."
    parts: list[Part] = [f"{sentence} It takes {memory(best)}:", best.launch.command()]
    return parts


def _drafts(found: Recommendation) -> str:
    """Whether drafts pay, and from which acceptance on; empty without drafts."""
    drafts, best = found.case.drafts, found.quoted
    if drafts is None or best.undrafted is None or best.pass_cost is None or best.pass_tokens is None:
        return ""
    gains, least = best.pass_tokens > best.pass_cost, best.break_even_accept
    sentence = (
        f"Drafts {'pay' if gains else 'do not pay'} here: without them it has {speed(best.undrafted)}. A pass takes "
        f"{best.pass_cost:.2f} times as long as a token does alone, and yields {best.pass_tokens:.2f} tokens of text"
    )
    if least is None:
        return f"{sentence}; with {drafts.count} drafted, no acceptance pays."
    return f"{sentence}; they pay from an acceptance of {least:.2f} on."


def _free(one: Compared) -> str:
    """What a setting leaves free of the GPU's memory, if it uses any."""
    if not one.gpu_bytes or not one.gpu_free_bytes:
        return ""
    return f", leaves {one.gpu_free_bytes / GIB:.1f} GiB of GPU memory free"


def _faster(found: Recommendation) -> str:
    """Systems that are predicted to be faster, and why they do not stand first."""
    clauses = []
    for one in found.faster[:FASTER]:
        system, proof = one.best.system, found.proof_of(one)
        rows = f"shown by {proof.words}" if proof.rows else "unproven"
        if reason := system.changes_text(found.case):
            why = f"which changes the text: {reason}"
        elif not proof.there and system.facts is not None:
            why = f"on {listed([OS_NAMES[name] for name in system.facts.platform.os])} only, {rows}"
        elif (proof.shown or proof.common) and not one.best.tight:
            why = f"but in fewer than nine of ten draws, {rows}"
        elif one.best.tight:
            why = f"which may not fit: it leaves {max(one.best.gpu_free_bytes or 0, 0) / GIB:.1f} GiB of the GPU free"
        else:
            why = "unproven"
        clauses.append(f"{system.spec} at {speed(one.best)}, {why}")
    return f"Predicted to be faster: {'; '.join(clauses)}."


def _reads_itself(found: Recommendation) -> list[Part]:
    """The engine that reads experts itself, with its command, proof or not, where the answer waits for pages."""
    one = found.reads_itself
    if one is None or (launch := one.best.launch) is None:
        return []
    system = one.best.system
    get = None if system.facts is None else system.facts.get
    below = where_from(found, one.best)
    where = "" if get is None or below else f" ({get.address})"
    sentence = (
        f"Most of a token waits for pages of mapped files. {system.title}{where} reads experts into its own cache, and "
        f"is faster in {found.wins(one):.0%} of draws; that rests on {found.proof_of(one).sentence}:"
    )
    return [sentence, launch.command(), *below, *_new_words(found, one.best)]


def _get(found: Recommendation) -> Section:
    """Where to get the engine."""
    lines = found.best.best.system.how_to_get(found.case.machine)
    return Section("Get it", tuple(Item(line, 2) for line in lines))


def _other_quant(model: ModelGeometry) -> str:
    """How to ask for a smaller quantization that the same engine reads, if the model is a named one that has any."""
    others = smaller(model) or fewest_bits(model)
    if not others:
        return ""
    other = named_model(others[0])
    gib = (other.routed_bytes + (other.dense_bytes or 0)) / GIB
    found_where = "" if is_listed(other.name) else ", if you find it published"
    return f"; --model {other.name} is another quantization, of {gib:,.1f} GiB{found_where}"


def _mapped(found: Recommendation) -> str:
    """Files that it computes from in place in RAM, and how much of them RAM can hold."""
    best = found.best.best
    mapped, pages = best.mapped_bytes, best.page_cache_bytes
    if not mapped or best.loads_files:
        return ""
    held = "" if pages is None or pages >= mapped else f", which holds {max(pages, 0) / GIB:.1f}"
    return f", and maps {mapped / GIB:.1f} GiB of its files into RAM{held}"


def _size(found: Recommendation) -> Section:
    sizes = found.sizes
    if sizes is None:
        return Section("", ())
    size = found.best.best.system.size
    marks = _marks(sizes)
    marked = {one: next((other for other in marks if other.system == one.system), one) for one in found.best.tried}
    columns: list[Column] = [
        (size, "right", lambda one: f"{getattr(one.system, size):,}"),
        ("GiB", "right", lambda one: f"{kept_bytes(one) / GIB:.1f}"),
        ("pages", "right", lambda one: "-" if (free := one.page_cache_bytes) is None else f"{max(free, 0) / GIB:.1f}"),
        ("hit %", "right", lambda one: percent(one.hit_rate)),
        *_prompt(found),
        ("tok/s", "right", lambda one: three(one.tok_s or 0.0)),
        ("90%", "right", lambda one: brief_interval(marked[one].tok_s_lo, marked[one].tok_s_hi)),
        ("", "left", lambda one: ", ".join(marks.get(marked[one], []))),
    ]
    prompt = " prompt: its tokens a second." if found.objective.prompt_tokens else ""
    legend = f"GiB: all that it keeps; pages: GiB of RAM left for the page cache.{prompt} {_why_chosen(sizes, size)}"
    return Section(f"How large: {size}", (table(columns, found.best.tried), legend))


def _prompt(found: Recommendation) -> list[Column]:
    """The column of prompt speeds, if prompts count."""
    column: Column = ("prompt", "right", lambda one: three(one.prompt_tok_s or 0.0))
    return [column] if found.objective.prompt_tokens else []


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
    """The gains of the other settings, and of fewer experts per token."""
    best, parts, idle = found.best.best, [], []
    for name in {**best.system.choices, **best.system.prompt_choices}:
        others = [one for one in found.best.others if getattr(one.system, name) != getattr(best.system, name)]
        changes = {getattr(one.system, name): _gain(found, one) for one in others}
        if set(changes.values()) <= {SAME}:
            idle += [name] if changes else []
            continue
        each = listed([f"{_chosen(value)} {change}" for value, change in changes.items()])
        parts.append(f"{name}: {_chosen(getattr(best.system, name))} is chosen; {each}.")
    if idle:
        parts.append(
            f"{listed(idle)}: {'no other value changes' if len(idle) == 1 else 'none changes'} the speed here."
        )
    for one in found.fewer:
        parts.append(
            f"top_k: {one.system.spec} uses fewer experts a token than the model's {found.case.model.top_k}: "
            f"{speed(one)}, {_gain(found, one)}. It changes the text, so judge the quality yourself."
        )
    return Section("Other settings", tuple(parts))


def _chosen(value: object) -> str:
    """A setting's value; None is the program's own."""
    return "the default" if value is None else str(value)


def _gain(found: Recommendation, one: Compared) -> str:
    """How a setting changes the speed of the objective."""
    best, seconds = found.objective.seconds(found.best.best), found.objective.seconds(one)
    assert best
    assert seconds
    change = best / seconds - 1
    return SAME if abs(change) < 0.005 else f"{change:+.0%}"


def _spent_on(group: str, ms: Mapping[str, float]) -> str:
    """What a part of a token's time goes to, beside the other parts."""
    return OTHER_COMPUTING if group == "compute" and ms.get("cpu") else WAITS[group][1]


def shares_of(one: Compared, *, least: float) -> dict[str, float]:
    """The parts of a token's time in words, the largest first, without those of a smaller share than `least`."""
    spent = one.ms_per_token or {}
    total = sum(spent.values())
    order = sorted(spent, key=lambda group: -spent[group])
    return {_spent_on(group, spent): spent[group] / total for group in order if total and spent[group] >= least * total}


def _waits(found: Recommendation) -> Section:
    """What a token waits for, and the gains of changes of the machine."""
    spent = found.best.best.ms_per_token or {}
    total = sum(spent.values())
    if not total:
        return Section("", ())
    shares = [f"{share:.0%} {what}" for what, share in shares_of(found.best.best, least=0.01).items()]
    token = "decoded token" if found.objective.prompt_tokens else "token"
    sentence = f"A {token} takes {three(total)} ms: {listed(shares)}." + (_cores(found) if spent.get("cpu") else "")
    machine = found.case.machine
    unit = machine.gpu or machine.cpu
    if unit is None or unit.weights_gb_s is None:
        return Section("What holds it back", (sentence, "The machine was fitted without rates for its parts."))
    helps = named(found.levers)
    if not helps:
        return Section("What holds it back", (sentence, "No single change of the machine gains 3%."))
    columns: list[Column] = [
        ("one change, with the same engine", "left", lambda one: one.change),
        ("tok/s", "right", lambda one: three(one.after.tok_s or 0.0)),
        ("90%", "right", lambda one: brief_interval(one.sure.tok_s_lo, one.sure.tok_s_hi)),
        ("", "right", lambda one: f"{one.gain:+.0%}"),
    ]
    if three(before := helps[0].before.tok_s or 0.0) != three(found.best.best.tok_s or 0.0):
        sentence += (
            f" Gains are relative to {three(before)} tok/s: the fastest size, on the first {MOST_REFS:,} experts that "
            "the trace uses."
        )
    return Section("What holds it back", (sentence, table(columns, helps)))


def _cores(found: Recommendation) -> str:
    """That the cores and not the RAM decide how fast the CPU computes; empty if that is not so."""
    machine, quant = found.case.machine, found.case.model.quant
    most = most_gb_s(machine, quant, found.best.best.system.engine)
    rate = None if machine.cpu is None else machine.cpu.weights_gb_s
    if rate is None or most >= rate.value:
        return ""
    return (
        f" The CPU's {machine.cpu_cores} cores compute {quant} at {three(most)} GB/s, and RAM delivers "
        f"{three(rate.value)}: faster RAM does not help, more cores or a quantization of four bits may."
    )


def _cache_pays(found: Recommendation) -> Section:
    """Whether an expert cache is faster here than none: how surely, from what size on, and why."""
    one = found.cache_pays
    if one is None:
        return Section("", ())
    cached, plain = one.cached.system.spec, one.plain.system.spec
    speeds = f"{three(one.cached.tok_s or 0.0)} against {three(one.plain.tok_s or 0.0)} tok/s predicted"
    if (p := one.likely.p) is None:
        none = f"There is no difference between {cached} and {plain}: {one.likely.why_none} ({speeds})."
        return Section("Does a cache pay?", tuple(filter(None, (none, _breaks_even(one)))))
    draws = f"It is faster in {one.likely.faster_in:.0%} of the draws of all that is unknown."
    sentence = f"{cached} is faster than {plain} with a probability of {p:.0%} ({speeds})."
    if p < LIKELY:
        sentence = f"No cache is likely to be faster than {plain}. The likeliest, {cached}, is with {p:.0%} ({speeds})."
    despite = f"It is {one.likely.despite}." if one.likely.despite else ""
    parts = [sentence, despite, draws, _why_pays(one), _breaks_even(one)]
    known = gains()
    parts.append(
        f"The probability is fitted on {known.pairs} published pairs of speeds with and without a cache, on "
        f"{known.machines} machines; without who measured a pair, it named the faster one in {known.right:.0%}."
    )
    return Section("Does a cache pay?", tuple(filter(None, parts)))


def _why_pays(one: CachePays) -> str:
    """What a token waits for less with the cache, and what more."""
    least = SMALLEST_PART * sum((one.plain.ms_per_token or {}).values())
    changes = [
        f"{three(abs(ms))} ms {'more' if ms > 0 else 'less'} on {_spent_on(group, one.more_ms)}"
        for group, ms in sorted(one.more_ms.items(), key=lambda item: -abs(item[1]))
        if abs(ms) > least
    ]
    return f"With the cache a token spends {listed(changes)}." if changes else ""


def _breaks_even(one: CachePays) -> str:
    """The size and the hit rate from which the cache is predicted to be faster."""
    name, clauses = one.cached.system.name, []
    if one.least_bytes is not None and one.least_share is not None:
        clauses.append(f"from {one.least_bytes / GIB:.1f} GiB of experts on ({one.least_share:.0%} of all)")
    if (rate := one.least_hit_rate) is not None and one.cached.hit_rate is not None:
        from_rate = f"from a hit rate of {rate:.0%} on" if rate > 0 else "at any hit rate"
        clauses.append(f"{from_rate}; this trace hits {one.cached.hit_rate:.0%}")
    return f"{name} is predicted to be faster {', and '.join(clauses)}." if clauses else ""


def what_to_buy(found: Recommendation) -> Section:
    """What to buy, if requested."""
    bought = found.bought
    if bought is None:
        return Section("", ())
    rows, for_target, now = bought.rows, bought.target_tok_s is not None, bought.present.tok_s
    parts: list[str | Table | Command] = []
    if bought.sentence:
        parts.append(bought.sentence)
    if not for_target:
        parts += filter(None, (bought.if_used, _without_a_price(bought, found.levers)))
    if rows:
        shown = rows[:BOUGHT] if for_target else rows
        columns: list[Column] = [
            ("other parts", "left", lambda one: ", ".join(one.changes)),
            ("tok/s", "right", lambda one: three(one.found.tok_s or 0.0)),
            ("90%", "right", lambda one: brief_interval(one.found.tok_s_lo, one.found.tok_s_hi)),
            ("", "right", lambda one: f"{(one.found.tok_s or 0.0) / now - 1:+.0%}" if now else ""),
        ]
        if bought.prices is not None:
            columns.insert(1, ("price", "right", lambda one: three(one.price or 0.0)))
        parts.append(table(columns, shown))
        if more := len(rows) - len(shown):
            parts.append(f"{more} larger changes are not shown; --json has them.")
        if for_target and any("gpu" in one.kinds for one in shown):
            parts.append("A card stands for all better ones of its maker and generation, which are enough, too.")
    if bought.prices is not None and bought.prices.at_launch and not bought.enough:
        parts.append(AT_LAUNCH)
    if bought.useless and bought.prices is None:
        kinds = listed([{"ram": "RAM", "gpu": "GPU", "cpu": "CPU"}.get(kind, kind) for kind in bought.useless], "or")
        parts.append(f"No better {kinds} gains 3% or more.")
    for one in rows:
        if one.found.tok_s is not None and one.found.tok_s < (now or 0.0):
            parts.append(
                f"{one.changes[0]} run {one.found.system.spec}: caches of experts are modelled for one GPU, and two "
                "that share the layers are slower than one with a cache."
            )
    parts.append(f"{bought.n_machines} machines were tried, in {bought.evaluations:,} replays or timings.")
    if bought.note:
        parts.append(_sentence(bought.note))
    return Section("What to buy", tuple(parts))


def _without_a_price(bought: Advice, levers: Sequence[Changed]) -> str:
    """A larger memory that gives more than all parts within the budget; empty if there is none."""
    if bought.prices is None or bought.prices.budget is None:
        return ""
    most = max((row.found.tok_s or 0.0 for row in bought.rows), default=bought.present.tok_s or 0.0)
    more = [one for one in levers if one.memory and (one.after.tok_s or 0.0) > most * (1 + SMALLEST_GAIN)]
    if not more:
        return ""
    best = max(more, key=lambda one: one.after.tok_s or 0.0)
    return (
        f"More than any of them gives {best.change}: {speed(best.sure)}; say what that costs in a table for --prices."
    )


def is_enough(found: Recommendation) -> Section:
    """Whether the trace is long enough, and how the choice holds on other traces."""
    parts: list[str | Table | Command] = []
    if found.enough is not None:
        parts += [_sentence(one) for one in found.enough.sentences]
    parts += [_sentence(one.sentence) for one in found.transfers]
    return Section("Is the trace enough?", tuple(parts))


def _sentence(text: str) -> str:
    """The text with a full stop and a capital, unless it begins with a name."""
    first = text[:1].upper() if text.partition(" ")[0].isalpha() else text[:1]
    return f"{first}{text[1:].removesuffix('.')}."


def _others(found: Recommendation) -> Section:
    """The recommended system, and those that are faster in at least one of ten draws."""
    rivals = found.rivals
    if not rivals:
        slower = "No other system is faster in as many as one of ten draws." if found.timed else ""
        return Section("Other systems", tuple(part for part in (slower, _cannot(found)) if part))
    searched = {one.best: one for one in (found.best, *rivals)}
    often = {one.best: f"{found.wins(one):.0%}" for one in rivals}
    columns: list[Column] = [
        ("", "left", lambda one: one.system.spec),
        ("tok/s", "right", lambda one: three(one.tok_s or 0.0)),
        ("90%", "right", lambda one: brief_interval(one.tok_s_lo, one.tok_s_hi)),
        ("faster in", "right", lambda one: often.get(one, "")),
        *_prompt(found),
        ("GPU", "right", lambda one: f"{(one.gpu_bytes or 0) / GIB:.1f}"),
        ("RAM", "right", lambda one: f"{(one.held_bytes or 0) / GIB:.1f}"),
        ("shown by", "left", lambda one: found.proof_of(searched[one]).short),
    ]
    on = f" on {found.case.machine.api}" if found.case.machine.api else ""
    arch = found.case.model.arch or "this kind of model"
    left = len(found.timed) - len(rivals)
    legend = (
        "GPU, RAM: GiB that it keeps, mapped files included; faster in: the share of draws of all that is unknown in "
        "which it is faster than the first one (the intervals of two rows rise and fall together); shown by: "
        f"published speeds of the engine with {arch}{on}, and from how many machines"
    )
    parts: list[str | Table | Command] = [
        table(columns, searched, caption=legend, dispensable=("RAM", "GPU", "shown by"))
    ]
    if left:
        parts.append(
            f"{left} more {'is' if left == 1 else 'are'} slower in nine of ten draws; `sim compare` shows all."
        )
    parts.append(_cannot(found))
    return Section("Other systems", tuple(part for part in parts if part))


def _cannot(found: Recommendation) -> str:
    """Systems that are too large or not timed, and those that are shown to run this model in another format."""
    cannot = [one for one in found.found.systems if not one.runs]
    small = [one.best.system.name for one in cannot if one.best.code == TooLarge.code]
    sentences = [f"Too large for this machine: {listed(small)}."] if small else []
    untimed = [one.best.system.name for one in found.others if one.runs and one not in found.timed]
    if untimed:
        sentences.append(f"How they read prompts is not known here: {listed(untimed)}.")
    for one in cannot:
        if OTHER_FORMAT in one.best.why_not and found.proof_of(one).shown:
            sentences.append(f"{one.best.system.title} {one.best.why_not}.")
    return " ".join(sentences)
