"""Quantizations in the words of a name, as people write them: `UD-Q4_K_XL`, `q4km`, `AWQ-4bit`, `5.05bpw`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_LEGACY = r"(?P<q>q)(?P<bits>\d)(?P<kind>k(?:s|m|l|xl|xxl|p)?|0(?:44|48|88|l)?|1|xl|l|x)?(?P<rows>r[48])?"
_TERNARY = r"(?P<q>tq)(?P<bits>\d)(?P<kind>[01])?(?P<rows>r[48])?"
_IMPORTANCE = r"(?P<q>iq)(?P<bits>\d)(?P<kind>xxs|xs|s|m|nlxl|nl|kss|ks|kt|kl|k|x)?(?P<rows>r[48])?"
_CUSTOM = r"(?P<q>dq|oq)(?P<bits>\d)(?P<kind>k(?:s|m|l|xl)?|plus|e)?(?P<rows>r[48])?"
_GGUF = [re.compile(one) for one in (_LEGACY, _TERNARY, _IMPORTANCE, _CUSTOM)]
_PLAIN = re.compile(r"bf16|fp?16|fp?32|fp[48]|mxfp[48]|nvfp4(?:a16)?|nf4|int[248]|w\d(?:a\d+)?")
_BITS = re.compile(r"(\d(?:\.\d+)?)bits?")
_RATE = re.compile(r"\d+(?:\.\d+)?")
_GROUP = re.compile(r"gs?(\d+)")
_WEIGHTS = {"int4": "w4", "int8": "w8"}  # the bits that W4A16, W8A16 and W8A8 have too
_SCHEMES = ("awq", "gptq", "autoround", "bnb", "hqq")
_SIZES = {"small": "s", "medium": "m", "large": "l"}
_BEFORE = {"ud": "ud-", "i1": "", "smol": "smol-"}
_BEHIND = frozenset({"moe"})  # of MXFP4_MOE
_APEX = frozenset({"balanced", "compact", "mini", "nano", "quality"})
_LONGEST = 5  # words of one quantization
# No other uploader's files are named so: with UD- left out, these are Unsloth's.
_UNSLOTHS = re.compile(r"q[24568]_k_xl")


class SaidQuant(NamedTuple):
    """A quantization and the words that say it."""

    first: int
    end: int
    name: str


def quantizations_in(words: Sequence[str], *, mlx: bool = False, uploader: str = "") -> list[SaidQuant]:
    """The quantizations that words in small letters say, in their order, each by its plain name, such as `ud-q4_k_xl`.

    mlx: whether the model is in MLX's format. uploader: who made the files, which decides what a short name means.
    """
    found: list[SaidQuant] = []
    at = 0
    while at < len(words):
        one = _gguf(words, at, uploader) or _other(words, at)
        if one is None:
            at += 1
            continue
        found.append(one._replace(name="nvfp4") if (uploader, one.name) == ("nvidia", "fp4") else one)
        at = one.end
    return _joined(found, mlx=mlx)


def _gguf(words: Sequence[str], at: int, uploader: str) -> SaidQuant | None:
    """A type of ggml at the longest of the words that make one."""
    best = None
    for end in range(at + 1, min(at + _LONGEST, len(words)) + 1):
        last = words[end - 1]
        compact = "".join((*words[at : end - 1], _SIZES.get(last, last) if end > at + 1 else last))
        if name := _type(compact):
            best = SaidQuant(at, end, name)
    if best is None:
        return None
    name, first = best.name, at
    if at and words[at - 1] in _BEFORE:
        name, first = _BEFORE[words[at - 1]] + name, at - 1
    elif _UNSLOTHS.fullmatch(name) or (uploader == "unsloth" and name.endswith("_k_xl")):
        name = f"ud-{name}" if uploader != "bartowski" else name
    end = best.end
    if end < len(words) and words[end].endswith("bpw") and _RATE.fullmatch(words[end].removesuffix("bpw")):
        return SaidQuant(first, end + 1, f"{name}-{words[end]}")
    return SaidQuant(first, end, name)


def _type(compact: str) -> str:
    """The name of a type from its letters: `q4km` is `q4_k_m`, `iq4ks` is `iq4_ks`; empty for another word."""
    match = next(filter(None, (one.fullmatch(compact) for one in _GGUF)), None)
    if match is None:
        return ""
    kind = match["kind"] or ""
    if match["q"] in ("q", "dq"):
        if kind in ("xl", "l"):
            kind = f"k{kind}"  # UD_Q4_XL
        kind = "_".join(filter(None, (kind[:1], kind[1:]))) if kind != "plus" else kind
    if match["q"] == "q" and kind[:2] == "0_":
        kind = "_".join(kind.replace("_", ""))
    kind = "nl_xl" if kind == "nlxl" else kind
    name = match["q"] + match["bits"]
    if match["q"] == "oq" or kind == "plus":
        name, kind = name + kind, ""
    return "_".join(filter(None, (name, kind, match["rows"])))


def _other(words: Sequence[str], at: int) -> SaidQuant | None:
    """A quantization of another kind."""
    word, behind = words[at], words[at + 1] if at + 1 < len(words) else ""
    if word == "apex":
        rest = [one for one in words[at + 1 : at + 3] if one == "i" or one in _APEX]
        return SaidQuant(at, at + 1 + len(rest), "-".join(("apex", *rest)))
    if word in _SCHEMES or word in ("exl2", "exl3"):
        return SaidQuant(at, at + 1, word)
    if word.endswith("bpw") and _RATE.fullmatch(word.removesuffix("bpw")):
        return SaidQuant(at, at + 1, word)
    if _RATE.fullmatch(word) and behind == "bpw":
        return SaidQuant(at, at + 2, f"{word}bpw")
    if bits := _BITS.fullmatch(word):
        return _grouped(words, at + 1, SaidQuant(at, at + 1, f"{bits[1]}bit"))
    if re.fullmatch(r"\d", word) and behind in ("bit", "bits"):
        return _grouped(words, at + 2, SaidQuant(at, at + 2, f"{word}bit"))
    if _PLAIN.fullmatch(word):
        name = re.sub(r"^fp(16|32)", r"f\1", word).replace("nvfp4a16", "nvfp4")
        if behind in _BEHIND and word == "mxfp4":
            return SaidQuant(at, at + 2, f"{name}_{behind}")
        if name.startswith("int") and (group := _GROUP.fullmatch(behind)):
            return SaidQuant(at, at + 2, f"{name}-g{group[1]}")
        return SaidQuant(at, at + 1, name)
    return None


def _grouped(words: Sequence[str], at: int, found: SaidQuant) -> SaidQuant:
    """A number of bits with what stands behind it: the group size, and DWQ, which changes no size."""
    end, name = at, found.name
    while end < len(words):
        if group := _GROUP.fullmatch(words[end]):
            name += "" if group[1] == "64" else f"-g{group[1]}"
        elif words[end] == "dq":
            name += "-dq"
        elif words[end] != "dwq":
            break
        end += 1
    return SaidQuant(found.first, end, name)


def _joined(found: list[SaidQuant], *, mlx: bool) -> list[SaidQuant]:
    """What belongs together as one: a scheme and its bits, EXL3 and its rate, MLX's experts and other weights."""
    names = [one.name for one in found]
    again = [one for one in found if any(name.startswith(_WEIGHTS.get(one.name, "-")) for name in names)]
    if len(again) == 1 and len(found) == 2:
        (other,) = (one for one in found if one not in again)
        found, names = [other._replace(first=found[0].first, end=found[1].end)], [other.name]
    spans = (found[0].first, found[-1].end) if found else (0, 0)
    bits = [name for name in names if name.endswith("bit") or name.startswith("int") or re.match(r"w\d", name)]
    rates = [name for name in names if name.endswith("bpw") and _RATE.fullmatch(name.removesuffix("bpw"))]
    schemes = [name for name in names if name in _SCHEMES]
    exl = [name for name in names if name in ("exl2", "exl3")]
    by_bits = any(_BITS.fullmatch(name.partition("-")[0]) for name in names)
    mlx = mlx or (by_bits and not (schemes or exl or rates)) or any(name.startswith("oq") for name in names)
    rest = [name for name in names if name not in (*bits, *rates, *schemes, *exl)]
    if schemes and not rest and len(set(bits)) <= 1:
        its = bits[0] if bits else "4bit" if schemes[0] == "awq" else ""
        return [SaidQuant(*spans, "-".join(filter(None, (schemes[0], its))))]
    if rates and not rest and len(set(rates)) == 1:
        return [SaidQuant(*spans, f"{exl[0] if exl else 'exl3'}-{rates[0]}")]
    if mlx and found:
        return [SaidQuant(*spans, _of_mlx(names))]
    if names in (["mxfp4", "q8"], ["mxfp4", "q4"]):
        return [SaidQuant(*spans, "-".join(names))]
    return found


def _of_mlx(names: list[str]) -> str:
    """A quantization of MLX: of its bits, or of a format; behind it the bits of the weights outside the experts."""
    if names in (["mxfp4", "q8"], ["mxfp4", "q4"]):
        return "-".join(names)
    plain = [re.sub(r"^q(\d)$", r"\1bit", name) if len(names) == 1 else name for name in dict.fromkeys(names)]
    if len(plain) > 1 and plain[0].endswith("bit") and plain[1] == "mxfp4":  # MiniMax-M2.7-4bit-mxfp4
        plain = plain[1:]
    return "-".join(("mlx", *plain))
