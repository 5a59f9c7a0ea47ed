"""A model of the transformers library, from a folder on disk; it records the calls of each layer's experts."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.families import MAX_EXPERTS
from flashmoe_sim.io.errors import Missing, SimError, Unsupported, Unusable
from native_bridge.capture.record import RoutedCall

INSTALL = "pip install '.[capture-hf]'"

# The argument names of the modules that compute routed experts, for every architecture of transformers 5 that calls its
# experts with indices.
ROUTED = (("top_k_index", "top_k_weights"), ("router_indices", "routing_weights"))
_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|h)\.(\d+)\.")


class Transformers:
    """A model and one sequence of tokens; an `Engine`.

    folder: as written by `save_pretrained`; nothing is downloaded and no code in the folder is run.
    threads: 0 for torch's own default.
    weights: whether gate weights are recorded.
    lookahead: from how many layers ahead predictions are recorded: the gate of each of these later layers, applied to
        what this layer's own gate gets. A bias that only the choice sees is added; limits to groups of experts are not.

    Ranks follow the order in which the model passes its experts, which is the order of the router's scores unless an
    architecture asks torch for unsorted ones.

    Raises BadInput if the library is missing, it cannot load the folder, or the model has no routed experts.
    """

    def __init__(self, folder: Path, *, threads: int = 0, weights: bool = True, lookahead: int = 0) -> None:
        self._torch, library = _libraries()
        self.library = f"transformers {library.__version__}, torch {self._torch.__version__}"
        if threads:
            self._torch.set_num_threads(threads)
        try:
            local = {"local_files_only": True, "trust_remote_code": False}
            config = library.AutoConfig.from_pretrained(folder, **local)
            self._tokenizer = library.AutoTokenizer.from_pretrained(folder, **local)
            self._model = library.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", **local)
        except Exception as error:  # of any kind: from the formats it reads and the libraries that read them
            raise Unusable(f"{folder}: transformers cannot load it ({' '.join(str(error).split())[:300]})") from None
        self._model.eval()
        self.architecture = str(config.model_type)
        self.trained_context = int(getattr(config.get_text_config(), "max_position_embeddings", 0) or 0)
        self._weights, self._lookahead = weights, lookahead
        self._gates: dict[int, Any] = {}
        self._states: dict[int, Any] = {}
        self._calls: list[RoutedCall] = []
        self._cache: Any = None
        self._logits: Any = None
        self.n_experts = self._watch(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Only memory is held."""

    def tokenize(self, text: str) -> list[int]:
        return [int(token) for token in self._tokenizer(text)["input_ids"]]

    def begin(self, context: int) -> None:
        """Nothing is reserved: the cache grows."""

    def evaluate(self, tokens: Sequence[int], *, output: bool) -> list[RoutedCall]:
        try:
            with self._torch.inference_mode():
                result = self._model(
                    input_ids=self._torch.tensor([list(tokens)]),
                    past_key_values=self._cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
        except RuntimeError as error:  # memory, mostly
            raise SimError(f"torch could not evaluate {len(tokens)} tokens ({' '.join(str(error).split())})") from None
        self._cache, self._logits = result.past_key_values, result.logits
        calls, self._calls = self._calls, []
        return calls

    def logits(self) -> NDArray[np.float32]:
        return np.asarray(self._logits[0, -1].float().numpy(), np.float32)

    def is_end(self, token: int) -> bool:
        end = self._model.generation_config.eos_token_id
        return token in (end if isinstance(end, list) else [end])

    def text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens)))

    def _watch(self, folder: Path) -> dict[int, int]:
        """Listen to the experts of every layer; return the number of experts of each."""
        n_experts: dict[int, int] = {}
        for name, module in self._model.named_modules():
            parameters = list(inspect.signature(module.forward).parameters)
            for experts, weights in ROUTED:
                if experts not in parameters or weights not in parameters or not (number := _LAYER.search(name)):
                    continue
                layer = int(number[1])
                if layer in n_experts:
                    raise Unsupported(
                        f"{folder}: layer {layer} has two sets of routed experts ({self.architecture}); such a model "
                        "cannot be captured"
                    )
                places = parameters.index(experts), parameters.index(weights)
                module.register_forward_pre_hook(self._hook(layer, (experts, weights), places), with_kwargs=True)
                n_experts[layer] = int(getattr(module, "num_experts", 0)) or MAX_EXPERTS
                if self._lookahead:
                    self._watch_gate(folder, name.rpartition(".")[0], layer, n_experts[layer])
        if not n_experts:
            raise Unsupported(
                f"{folder}: no layer of this model ({self.architecture}) calls routed experts; give a mixture of "
                "experts that transformers 5 knows, or the model as GGUF"
            )
        return n_experts

    def _watch_gate(self, folder: Path, parent: str, layer: int, n_experts: int) -> None:
        """Keep a layer's gate, and listen to what it gets: the module beside the experts with a weight for each."""
        for gate in self._model.get_submodule(parent).children():
            weight = getattr(gate, "weight", None)
            if weight is not None and weight.ndim == 2 and len(weight) == n_experts:
                gate.register_forward_pre_hook(partial(self._see_state, layer), with_kwargs=True)
                self._gates[layer] = gate
                return
        raise Unsupported(f"{folder}: no gate is known in {parent} ({self.architecture}); leave --lookahead out")

    def _see_state(self, layer: int, _: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        state = given[0] if given else next(iter(named.values()))
        self._states[layer] = state.reshape(-1, state.shape[-1])

    def _predicted(self, layer: int, n_expert_used: int) -> dict[int, NDArray[np.int32]]:
        """What the gates of the next layers choose for the state of this one, by how many layers ahead they are."""
        state, later = self._states.pop(layer), [one for one in sorted(self._gates) if one > layer]
        return {
            calls: self._chosen(state, self._gates[one], n_expert_used)
            for calls, one in enumerate(later[: self._lookahead], 1)
        }

    def _chosen(self, state: Any, gate: Any, n_expert_used: int) -> NDArray[np.int32]:
        scores = state.float() @ gate.weight.float().T
        if (bias := getattr(gate, "bias", None)) is not None:
            scores = scores + bias.float()
        if (correction := getattr(gate, "e_score_correction_bias", None)) is not None:
            scores = scores.sigmoid() + correction.float()
        chosen: NDArray[np.int32] = scores.topk(n_expert_used).indices.to("cpu", self._torch.int32).numpy()
        return chosen

    def _hook(self, layer: int, names: tuple[str, str], places: tuple[int, int]) -> Any:
        def see(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            experts, weights = (
                named[name] if name in named else given[place] for name, place in zip(names, places, strict=True)
            )
            n_expert_used = experts.shape[-1]
            ahead = self._predicted(layer, n_expert_used) if self._lookahead else {}
            self._calls.append(
                RoutedCall(
                    layer,
                    experts.reshape(-1, n_expert_used).to("cpu", self._torch.int32, copy=True).numpy(),
                    weights.reshape(-1, n_expert_used).to("cpu", self._torch.float32, copy=True).numpy()
                    if self._weights
                    else None,
                    ahead,
                )
            )

        return see


def _libraries() -> tuple[Any, Any]:
    """torch and transformers, with their messages silenced."""
    try:
        import torch
        import transformers
    except ModuleNotFoundError as error:
        raise Missing(f"{error.name} is not installed; to capture from models of transformers: {INSTALL}") from None
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    return torch, transformers
