"""The fields of a config.json of transformers, read with the checks that each kind of value needs; and its MoE layers.

Source: huggingface/transformers, configuration_*.py and modeling_*.py of the model types that have each field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashmoe_sim.io.errors import Malformed, Unsupported, shown

# Fields that change neither a byte nor which rows are read: training, rotary positions, norms, routing's arithmetic,
# other parts of a wrapper, and what generation does with the output. A router may be of a kind that is not known.
_OF_NO_SIZE = re.compile(
    r"""architectures|model_type|auto_map|_name_or_path|transformers_version|torch_dtype|dtype|.*_token_?(id|ids|index)
    |.*rope.*|.*rotary.*|.*norm.*|.*_eps|.*epsilon|.*dropout.*|.*scal(e|ing).*|.*_bias|.*hidden_act.*|.*activation.*
    |initializer.*|.*_coef|.*coefficient
    |.*(rout(er|ing)|moe_gate)_\w*(loss|jitter|noise|dtype|precision|logit|act|func|scor|sigmoid|softmax|temp|fusion
    |balanc|prob|bias)\w*|.*routed_scaling.*|.*scoring.*|.*top_?k_method|n_?group
    |topk_group|num_expert_group|use_grouped_topk|score_func|max_position.*|initial_context.*|max_window_layers
    |use_cache|output_.*|return_.*|.*_dtype|time_step.*|rescale.*|residual.*|chunk_size.*|use_mamba.*|num_logits.*
    |pretraining_tp|ep_size|seq_aux|aux_loss.*|quantization(_config)?|compression_config|vision.*|audio.*|image.*|video.*
    |.*softcap.*|mtp_.*|num_mtp_.*|use_mtp|.*_alpha|.*_limit|.*_beta.*|attention_chunk_size|swa_.*|.*sink.*
    |moe_renormalize|is_.*|do_.*|num_beam.*|.*penalty|temperature|top_[kp]|typical_p|.*_length|.*label.*
    |problem_type|pruned_heads|prefix|early_stopping|begin_.*|bad_words.*|suppress.*|remove_invalid.*|forced_.*
    |finetuning.*|task_.*|tie_encoder.*|torchscript|use_bfloat16|tokenizer_class|add_cross.*|cross_attention.*
    |encoder_.*|decoder_start.*|diversity.*|exponential.*|no_repeat.*|use_bidirectional.*|vocab_size_per_layer.*
    |unused|.*template.*|hc_.*|num_hash_layers|.*_multiplier|attn_implementation|_attn.*|head_dtype|use_qk.*|qk_.*type
    |moe_layer_(start|end|interval).*|rms_.*|logits.*|position_embedding.*|use_sliding_window|.*_freq|.*capacity.*
    |expert_dtype|attn_res.*|use_double.*|enable_moe_block|global_attn_every.*|conv_bias|use_pos_enc.*
    |moe_layer_recomp.*|tf_legacy_loss|num_return_seq.*|moe_shared_expert_overlap|language_config|text_config
    |num_reward_heads|process_image.*|projector.*|multimodal.*
    |no_rope_layers|attn_temperature.*|floor_scale|for_llm.*|mlp_bias|norm_topk.*|group_size|full_attn.*""",
    re.VERBOSE,
)


@dataclass
class ConfigFields:
    """A config's fields, of which those that were asked for are remembered."""

    text: Mapping[str, Any]
    where: str
    asked: set[str] = field(default_factory=set)

    def number(self, *names: str, otherwise: int = 0) -> int:
        """The first whole number among these fields, or the largest of a list with one for each layer.

        Raises BadInput for a negative one, and for a field that has something else.
        """
        self.asked.update(names)
        for name in names:
            value = self.text.get(name)
            values = value if isinstance(value, list) and value else [value]
            if all(type(one) is int for one in values):
                if min(values) < 0 or max(values) >= 2**31:
                    raise self.wrong(name, "a whole number from 0")
                return int(max(values))
            if value is not None and not isinstance(value, bool | dict):
                raise self.wrong(name, "a whole number")
        return otherwise

    def texts(self, name: str, count: int) -> list[str]:
        """A text for each layer; none if the field is missing."""
        self.asked.add(name)
        value = self.text.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value) or len(value) < count:
            raise self.wrong(name, f"a word for each of {count} layers")
        return value[:count]

    def whole(self, name: str, least: int = 0) -> list[int]:
        """The whole numbers of a list; empty if the field is not a list.

        Raises BadInput for a list with anything else in it, and for one of fewer than `least`.
        """
        self.asked.add(name)
        value = self.text.get(name)
        if not isinstance(value, list) or not value:
            return []
        if len(value) < least or not all(type(one) is int and 0 <= one < 2**31 for one in value):
            raise self.wrong(name, f"whole numbers, at least {least}" if least else "whole numbers")
        return value

    def marks(self, name: str, count: int) -> list[bool] | None:
        """A mark for each layer, if the field is a list."""
        self.asked.add(name)
        value = self.text.get(name)
        if not isinstance(value, list):
            return None
        if len(value) < count:
            raise self.wrong(name, f"a number for each of {count} layers")
        return [bool(one) for one in value[:count]]

    def table(self, name: str) -> Mapping[str, Any]:
        """The fields of an object; none if it is missing."""
        self.asked.add(name)
        value = self.text.get(name)
        return value if isinstance(value, dict) else {}

    def has(self, name: str) -> bool:
        """Whether a field is true, or a number above 0."""
        self.asked.add(name)
        return bool(self.text.get(name))

    def left(self) -> list[str]:
        """Fields with a value that nobody asked for."""
        return sorted(name for name in set(self.text) - self.asked if self.text[name])

    def unknown(self) -> list[str]:
        """Fields that nothing here knows."""
        return [name for name in self.left() if not _OF_NO_SIZE.fullmatch(name)]

    def wrong(self, name: str, expected: str) -> Malformed:
        return Malformed(
            f"{name} is {shown(self.text.get(name))}; expected {expected}",
            where=self.where,
            advice="give the config.json as it was published",
        )


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
