"""Which layers of a `config.json` have routed experts.

Source: huggingface/transformers, configuration_*.py and modeling_*.py of the model types that have each field.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from flashmoe_sim.geometry.config_fields import ConfigFields
from flashmoe_sim.io.errors import Unsupported, shown

GIVE = "give a GGUF file of it"
_LISTS = ("moe_layers_enum", "moe_layers", "moe_layer_indices")
_MARKS = ("moe_layer_freq", "moe_layer_layout", "is_moe_layer")
_SPARSE, _DENSE = frozenset({"sparse", "moe"}), frozenset({"dense", "mlp"})
# A layer has experts if its number is a multiple of it, counted from 1, or from 0.
_FROM_ONE = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
_FROM_ZERO = "moe_layer_freq"
_JAMBA = (2, 1)  # its period and offset, if a config leaves them out
_SWITCHES = ("use_moe", "enable_moe_block")
_FIRSTS = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
_SAYING = (
    *("mlp_only_layers", "mlp_layer_types", *_LISTS, *_MARKS, *_SWITCHES, *_FIRSTS, "moe_layer_end_index"),
    *("expert_layer_period", "expert_layer_offset", *_FROM_ONE),
)
# Fields that sound as if they said which layers have experts, or that each layer has a network of its own.
_OF_LAYERS = re.compile(
    r"(?=.*(moe|expert|sparse|dense|mlp))"
    r"(?=.*(layer|freq|period|offset|interval|every|stride|pattern|interleav|block|alternat))"
    r"(?!.*(att|recomp|norm|index|bias|act|loss|size|width|dim)).*"
    r"|(block|layer)s?_configs?|heterogen.*"
)


def moe_layers(its: ConfigFields, blocks: int, pattern: str, kind: str, experts: Sequence[str]) -> list[int]:
    """The layers with routed experts, of which there is at least one.

    pattern: a letter for each layer, or empty. kind: the model type. experts: names of the field with their number.
    Raises BadInput if none has any, and for a field that may say which have, but is not known.
    """
    its.asked.update(_SAYING)
    has = _experts_by_layer(its, experts, blocks)
    found = [number for number in _found(its, blocks, pattern, kind) if has is None or has[number]]
    if off := [name for name in _SWITCHES if its.text.get(name) is False]:
        raise _dense(its, off[0])
    if strange := [name for name in its.left() if _OF_LAYERS.fullmatch(name)]:
        raise Unsupported(
            f"{its.where}: {strange[0]} is not known, and may say which layers have routed experts", advice=GIVE
        )
    if not found:
        raise _dense(its, *(name for name in _SAYING if its.text.get(name) not in (None, 0, 1)))
    return found


def each_alike(its: ConfigFields, names: Sequence[str], layers: Sequence[int], blocks: int) -> None:
    """Raise BadInput if a list says another number for some of these layers than for others."""
    for name in names:
        value = its.text.get(name)
        if isinstance(value, list) and len(value) >= blocks:
            if len({value[number] for number in layers}) > 1:
                raise Unsupported(f"{its.where}: {name} is another number for some layers than for others", advice=GIVE)
            return


def _experts_by_layer(its: ConfigFields, names: Sequence[str], blocks: int) -> list[bool] | None:
    """Whether each layer has more than one expert, if the number of experts is a list; None if it is not."""
    value = next((its.text[name] for name in names if its.text.get(name) is not None), None)
    if isinstance(value, list) and len(value) >= blocks and all(type(one) is int for one in value):
        return [one > 1 for one in value[:blocks]]
    return None


def _dense(its: ConfigFields, *names: str) -> Unsupported:
    said = ", ".join(f"{name} {shown(its.text[name], 24)}" for name in names[:2])
    return Unsupported(
        f"{its.where}: no layer has routed experts{f' ({said})' if said else ''}: a dense model",
        advice="give a mixture of experts (`sim model list`)",
    )


def _found(its: ConfigFields, blocks: int, pattern: str, kind: str) -> list[int]:
    if pattern:
        return [number for number, letter in enumerate(pattern) if letter == "E"]
    for name in _MARKS:
        if (marks := its.marks(name, blocks)) is not None:
            return [number for number, has in enumerate(marks) if has]
    if kinds := its.texts("mlp_layer_types", blocks):
        if set(kinds) - _SPARSE - _DENSE:
            raise its.wrong("mlp_layer_types", "dense or sparse for each layer")
        return [number for number, word in enumerate(kinds) if word in _SPARSE]
    for name in _LISTS:
        if listed := _listed(its, name, blocks):
            return listed
    return _counted(its, blocks, kind)


def _listed(its: ConfigFields, name: str, blocks: int) -> list[int]:
    """The layers that a field lists, as numbers or as a text of them."""
    listed = its.text.get(name)
    if isinstance(listed, str):
        listed = [int(one) for one in re.findall(r"\d{1,5}", listed)]
    if listed is None or listed == []:
        return []
    if not isinstance(listed, list) or not all(type(one) is int and 0 <= one < blocks for one in listed):
        raise its.wrong(name, f"numbers of layers below {blocks}")
    return sorted(set(listed))


def _counted(its: ConfigFields, blocks: int, kind: str) -> list[int]:
    """The layers from a first to a last one, or every few of them, without those that are dense."""
    first = its.number(*_FIRSTS)
    steps = {name: its.number(name, otherwise=1) for name in (*_FROM_ONE, _FROM_ZERO) if its.text.get(name) is not None}
    last = -1 if its.text.get("moe_layer_end_index") == -1 else its.number("moe_layer_end_index", otherwise=-1)
    only_dense = its.whole("mlp_only_layers")
    if not isinstance(its.text.get("mlp_only_layers"), list | None):
        raise its.wrong("mlp_only_layers", "a list of layers")
    for name, step in steps.items():
        if not step:
            raise _dense(its, name)
    period, offset = (
        its.number(f"expert_layer_{name}", otherwise=usual if kind == "jamba" else 1 - at)
        for at, (name, usual) in enumerate(zip(("period", "offset"), _JAMBA, strict=True))
    )
    if not period:
        raise its.wrong("expert_layer_period", "1 or more")
    return [
        number
        for number in range(first, min(last if last >= 0 else blocks, blocks - 1) + 1)
        if number not in only_dense
        and all((number + (name in _FROM_ONE)) % step == 0 for name, step in steps.items())
        and number % period == offset
    ]
