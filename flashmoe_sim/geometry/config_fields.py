"""The fields of a config.json of transformers, read with the checks that each kind of value needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flashmoe_sim.io.errors import Malformed, shown

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
