"""A measured speed that the user writes on the command line."""

from __future__ import annotations

import re

from flashmoe_sim.io.errors import BadInput, Malformed, unknown_name
from flashmoe_sim.io.sizes import decimal
from flashmoe_sim.measured.value import MOST_TOKENS, Measured
from flashmoe_sim.systems.llama_flags import spec_of
from flashmoe_sim.systems.table import SYSTEMS, parse_system

WORDS = ("depth", "prompt", "quant", "model", "tokens", "sd")
BY_HAND = "--measured"  # how their places begin
_UNIT = re.compile(r"(?<=\d)\s*(?:tok(?:en)?s?/s(?:ec)?|t/s|tps)(?=\s|$)", re.IGNORECASE)
_OF_FLAGS = re.compile(r"((?:\S+\s+)?-{1,2}[a-z].*?)\s*=\s*(\d+(?:\.\d+)?)((?:\s.*)?)", re.IGNORECASE)
EXAMPLE = "placed:cpu_layers=24=28.1 depth=32768"


def looks_by_hand(given: str) -> bool:
    """Whether a text is a speed rather than the name of a file: it begins with a system, or ends in a number."""
    plain = _plain(given)
    if plain != given and decimal(plain.strip()) is not None:
        return True
    first = plain.split(maxsplit=1)[:1]
    name, equals, speed = first[0].rpartition("=") if first else ("", "", "")
    return bool(equals) and (name.split(":")[0] in SYSTEMS or decimal(speed) is not None)


def _plain(given: str) -> str:
    """A speed without its unit, and with a system instead of the flags of llama.cpp that make it."""
    plain = _UNIT.sub("", given)
    found = _OF_FLAGS.fullmatch(plain.strip())
    spec = spec_of(found[1]) if found else ""
    return f"{spec}={found[2]}{found[3]}" if found and spec else plain


def read_by_hand(given: str) -> Measured:
    """A speed such as `placed:cpu_layers=24=28.1 depth=32768`: a system, `=`, tok/s, and words after spaces.

    Words: `depth=N` tokens in the context before, `prompt` for the speed of a prompt, `quant=Q4_K_M`, `model=NAME`,
    `tokens=N` that were timed, `sd=0.02` relative to the speed. Raises BadInput for anything else.
    """
    first, *words = _plain(given).split() or [""]
    where = f"{BY_HAND} {given!r}"
    spec, equals, speed = first.rpartition("=")
    tok_s = decimal(speed)
    if not equals or not spec or tok_s is None:
        raise Malformed("does not end its system with = and tok/s", where=where, advice=f"write for example {EXAMPLE}")
    _check_system(spec, first, where)
    settings: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in WORDS:
            raise unknown_name("word of --measured", name, WORDS)
        if name in settings:
            raise Malformed(f"has {name} twice", where=where, advice="give it once")
        if bool(equals) == (name == "prompt") or (equals and not value):
            raise Malformed(f"has {word!r}", where=where, advice=f"write for example {EXAMPLE} prompt")
        settings[name] = value
    sd = decimal(settings["sd"]) if "sd" in settings else None
    if "sd" in settings and (sd is None or not 0 < sd < 1):
        raise Malformed(f"has sd {settings['sd']!r}; expected a part of the speed, such as 0.02", where=where)
    return Measured(
        where=where,
        system=spec,
        model=settings.get("model", ""),
        quant=settings.get("quant", ""),
        depth=_tokens(settings, "depth", where) or 0,
        prompt="prompt" in settings,
        tokens=_tokens(settings, "tokens", where),
        tok_s=tok_s,
        sd=sd,
    )


def _tokens(settings: dict[str, str], name: str, where: str) -> int | None:
    text = settings.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > MOST_TOKENS:
        raise Malformed(f"has {name} {text!r}; expected a number of tokens up to {MOST_TOKENS:,}", where=where)
    return int(text)


def _check_system(spec: str, first: str, where: str) -> None:
    """Raise BadInput for a system that does not exist, and for one whose last setting was taken for the speed."""
    try:
        parse_system(spec)
    except BadInput as error:
        try:
            parse_system(first)
        except BadInput:
            raise error from None
        raise Malformed(f"has no speed after {first}", where=where, advice=f"write for example {EXAMPLE}") from None
