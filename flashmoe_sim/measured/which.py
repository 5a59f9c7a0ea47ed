"""Which known model a measurement's name means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import (
    NamedModel,
    file_bytes,
    format_of,
    meant,
    model_names,
    named_model,
    named_models,
    of_size,
)
from flashmoe_sim.geometry.names import OLLAMA, PRUNED
from flashmoe_sim.io.errors import Conflict, Incomplete, UnknownName, shown
from flashmoe_sim.io.sizes import size
from flashmoe_sim.measured.value import Measured

MLX = "mlx"  # the system and its format
_BITS = re.compile(r"(?<![A-Z])I?Q(\d)|(?:MXFP|NVFP|FP|INT|MLX_)(\d)|(?<![A-Z])B?F(16|32)|TQ(\d)")
_HASHED = re.compile(r"(?:^|[/\\])(?:sha256-)?[0-9a-f]{12,64}$")
SAME_FILE = 0.85  # of the bytes of the larger of two files: less is another quantization
SAME_WEIGHTS = 0.95  # of the number of weights: layers that only draft may be counted or not
_PRUNED = re.compile(rf"(?<![a-z])(?:{'|'.join(sorted(PRUNED))})(?![a-z])", re.IGNORECASE)
_ACTIVE = re.compile(r"(?:-a[\d.]+b)?")
_CACHED = re.compile(r"[-_]gguf_", re.IGNORECASE)


def known_model(name: str, engine: str = "") -> str:
    """The name of the known model that a file, a tag or a title means; empty if it means none.

    Files in the cache of llama.cpp begin with the name of their repository, others with their publisher's.
    """
    last = _stem(name)
    base, _, tag = last.lower().partition(":")
    if engine == "ollama" and tag in ("", "latest"):
        last = f"{base}:{OLLAMA.get(base, tag)}"
    last = _CACHED.split(last)[-1].replace(":", "-")
    for text in (last, last.partition("_")[2], re.sub(r"^nvidia-", "", last, flags=re.IGNORECASE)):
        if (found := meant(text)) and not _too_short(text, found):
            return "" if _PRUNED.search(text) or not of_size(found, _beside(found, text)) else found
    return ""


def _beside(model: str, text: str) -> list[str]:
    """The words of a text behind the model's name: `8b` of `deepseek-r1-8b`, not the `20b` of `gpt-oss-20b`."""
    given = _joined(text)
    begun = [name for name, of in model_names().items() if of == model and given.startswith(name)]
    return given[len(max(begun, key=len, default=given)) :].split("-")


def _joined(text: str) -> str:
    return re.sub("[_ ]+", "-", text.lower()).rstrip("-")


def _stem(name: str) -> str:
    return re.split(r"[/\\]", name)[-1].removesuffix(".gguf")


def _too_short(text: str, model: str) -> bool:
    """Whether a text only begins the names of a model, without its size: `gemma-4` may be another member."""
    given = _joined(text)
    names = [name for name, of in model_names().items() if of == model]
    return not any(
        given.startswith(name) or (name.startswith(given) and _ACTIVE.fullmatch(name[len(given) :])) for name in names
    )


def model_that_ran(one: Measured, in_question: ModelGeometry | None) -> ModelGeometry:
    """The model of a measurement: the one in question unless it names another one.

    Raises BadInput for an unknown model, for a file of another quantization than is known, and without any model.
    """
    if not one.model:
        if in_question is None:
            raise Incomplete(f"{one.where}: does not say which model ran; give it with --model")
        return in_question
    if in_question is not None and _describes(one, in_question):
        return in_question
    own = "" if in_question is None else known_model(in_question.name)
    name = known_model(one.model, one.engine) or _described(one, own)
    asked = in_question is not None and (name == own if name else _named_alike(one.model, in_question.name))
    if asked and in_question is not None and _of_file(one, in_question):
        return in_question
    if not name:
        raise UnknownName(
            f"unknown model {shown(one.model)}, which `sim model list` does not have",
            where=one.where,
            advice=f"if it is the one in question, give the speed by hand: --measured SYSTEM={one.tok_s:.4g}",
        )
    found = _quantized(name, one.quant)
    if found is not None and _of_file(one, found):
        return found
    what = f"{one.quant} of {name}, whose size is not known" if one.model_bytes is None else ""
    known = "none of that quantization" if found is None else f"{size(file_bytes(found))} at {found.quant}"
    raise Conflict(
        what or f"a file of {size(one.model_bytes or 0)} of {name}, which has {known}",
        where=one.where,
        advice="give that file as --model, or a measurement of the quantization in question",
    )


def _of_file(one: Measured, model: ModelGeometry) -> bool:
    """Whether a measurement's file is as large as the model's or, if its size is not known, has as many bits.

    A file of MLX is none of another program's.
    """
    if model.format and (one.system == MLX) != (model.format == MLX):
        return False
    if one.model_bytes is not None:
        read_bytes = file_bytes(model) - model.unread_bytes
        return _alike(one.model_bytes, file_bytes(model)) or _alike(one.model_bytes, read_bytes)
    known = named_models().get(model.base_name)
    only = known is not None and _only(known) is not None
    return only or not _bits(one.quant) or not _bits(model.quant) or _bits(one.quant) == _bits(model.quant)


def _named_alike(name: str, other: str) -> bool:
    """Whether one of two names, which no known model has, begins with the other."""
    shorter, longer = sorted((re.sub("[^a-z0-9]", "", _stem(text).lower()) for text in (name, other)), key=len)
    return bool(shorter) and longer.startswith(shorter)


def _describes(one: Measured, model: ModelGeometry) -> bool:
    """Whether a description such as `qwen3moe 30B.A3B Q4_K - Medium` is of a model, by quantization and bytes too."""
    arch, described, _ = one.model.partition(" ")
    return (
        bool(described)
        and arch.lower() == model.arch
        and _bits(one.quant) == (_bits(model.quant) or _bits(one.quant))
        and one.model_bytes is not None
        and _of_file(one, model)
    )


def _described(one: Measured, own: str) -> str:
    """The known model of such a description, if only one fits or the one in question, `own`, does; or empty."""
    arch, described, _ = one.model.partition(" ")
    if not described or one.model_bytes is None:
        return ""
    fitting = [name for name in named_models() if _fits(one, name, arch.lower())]
    return own if own in fitting else fitting[0] if len(fitting) == 1 else ""


def _fits(one: Measured, name: str, arch: str) -> bool:
    model = named_models()[name]
    weights = (model.routed_params_b + model.dense_params_b + model.table_params_b) * 1e9
    if model.arch != arch or (one.model_weights and not _alike(one.model_weights, weights, SAME_WEIGHTS)):
        return False
    found = _quantized(name, one.quant)
    return found is not None and _of_file(one, found)


def _only(model: NamedModel) -> str | None:
    """The only quantization of a model beside those of MLX; None if there are others."""
    others = [name for name, quant in model.quants.items() if format_of(quant) != MLX]
    return others[0] if len(others) == 1 else None


@lru_cache(maxsize=256)
def _quantized(name: str, quant: str) -> ModelGeometry | None:
    """The known model in a quantization or one of as many bits; in its default one if none is given or there is one."""
    known = named_models()[name].quants
    if not quant or (_only(named_models()[name]) and quant.lower() not in known):
        return named_model(name)
    same = [one for one in known if one.replace("-", "_") == quant.lower().replace("-", "_")]
    alike = [one for one in known if _bits(quant) and _bits(one) == _bits(quant)]
    best = next(iter(same or [one for one in alike if one.endswith("_k_m")] or alike), "")
    return named_model(f"{name}:{best}") if best else None


def _bits(quant: str) -> str:
    """The bits of a quantization's weights, such as 4 of UD-Q4_K_XL; empty if its name does not say."""
    match = _BITS.search(quant.upper())
    return next(filter(None, match.groups())) if match else ""


def _alike(one: float, other: float, share: float = SAME_FILE) -> bool:
    return min(one, other) >= share * max(one, other)


def likeliest(names: Iterable[str], engine: str = "") -> str:
    """The first name that means a known model, else the first one that is no hash; or empty."""
    given = [name for name in names if name]
    known = (name for name in given if known_model(name, engine))
    return next(known, "") or next((name for name in given if not _HASHED.search(name)), "")
