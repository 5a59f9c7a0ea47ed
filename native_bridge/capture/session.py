"""Running a model over a prompt and its answer, and recording every routed call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Conflict, Incomplete, Missing, SimError, TooLarge, Unsupported
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT
from native_bridge.capture.record import RoutedCall, TraceWriter

# The runtime's default; without it a model at high temperatures soon writes nonsense.
SAMPLED_FROM = 40


class LoadedModel(Protocol):
    """A loaded model with one sequence of tokens.

    library: what runs it, with its version.
    architecture: as named in the model's file.
    n_experts: experts of each routed layer, keyed by layer number.
    trained_context: tokens it was trained with; 0 if unknown.
    """

    @property
    def library(self) -> str: ...

    @property
    def architecture(self) -> str: ...

    @property
    def n_experts(self) -> Mapping[int, int]: ...

    @property
    def trained_context(self) -> int: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def tokenize(self, text: str) -> list[int]: ...

    def begin(self, context: int) -> None:
        """Make room for this many tokens; called before the first evaluation."""

    def evaluate(self, tokens: Sequence[int], *, output: bool) -> list[RoutedCall]:
        """Append tokens to the sequence in one micro-batch; return the routed calls in the order of computation.

        output: whether `logits` of the last one will be needed.
        """

    def logits(self) -> NDArray[np.float32]:
        """The logits of the last token evaluated with output: f32 [vocabulary]."""

    def is_end(self, token: int) -> bool: ...

    def text(self, tokens: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class CaptureRequest:
    """What to run: a prompt in micro-batches of `ubatch` tokens, then at most `tokens` tokens one by one.

    temperature: 0 takes the likeliest token, a higher one draws from the likeliest 40, with `seed`.
    context: tokens to make room for; 0 for as many as needed.
    """

    prompt: str
    tokens: int
    ubatch: int
    context: int = 0
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Captured:
    """What was run: the tokens of the prompt, and the model's answer."""

    prompt_tokens: int
    generated: tuple[int, ...]
    text: str


def capture(
    engine: LoadedModel,
    request: CaptureRequest,
    write: TraceWriter,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Captured:
    """Run the request and write a step for each micro-batch of the prompt and each generated token but the last.

    progress: called after each step with the tokens evaluated so far and the maximum.

    As in the runtime, the last generated token is not evaluated, since nothing follows it.
    Raises BadInput for a prompt without tokens, a prompt that does not fit, and a model without a routed call.
    """
    prompt = engine.tokenize(request.prompt)
    wanted = len(prompt) + request.tokens
    engine.begin(_context(engine, request, len(prompt)))
    evaluated = 0

    def step(tokens: Sequence[int], phase: int, *, output: bool) -> None:
        nonlocal evaluated
        calls = engine.evaluate(tokens, output=output)
        if not calls:
            raise Unsupported(
                "the model was run, but no router was seen; it names its tensors otherwise than other models do"
            )
        for call in calls:
            _check(call, engine.n_experts)
        write.add(calls, phase=phase)
        evaluated += len(tokens)
        if progress:
            progress(evaluated, wanted - 1 if request.tokens else wanted)

    for begin in range(0, len(prompt), request.ubatch):
        part = prompt[begin : begin + request.ubatch]
        step(part, PHASE_PROMPT, output=begin + len(part) == len(prompt))
    random = np.random.default_rng(request.seed)
    generated: list[int] = []
    while len(generated) < request.tokens:
        if generated:
            step(generated[-1:], PHASE_DECODE, output=True)
        generated.append(choose(engine.logits(), request.temperature, random))
        if engine.is_end(generated[-1]):
            break
    return Captured(len(prompt), tuple(generated), engine.text(generated))


def open_model(
    path: Path, *, ubatch: int, threads: int, gpu_layers: int, weights: bool, lookahead: int = 0
) -> LoadedModel:
    """The loaded model of a GGUF file or of a transformers folder; a context manager.

    Raises BadInput for a path that is neither, a model without routed experts, and if the library is missing.
    """
    if not path.is_dir():
        if lookahead:
            raise Conflict(f"{path}: --lookahead is for folders of the transformers library, not for GGUF files")
        from native_bridge.capture.llama_cpp import LlamaCpp

        return LlamaCpp(path, ubatch=ubatch, threads=threads, gpu_layers=gpu_layers, weights=weights)
    if not (path / "config.json").is_file():
        raise Missing(
            f"{path}: a folder without config.json; give a GGUF file, or a folder of the transformers library"
        )
    if gpu_layers:
        raise Conflict(f"{path}: --gpu-layers is for GGUF files; models of transformers are run on the CPU")
    from native_bridge.capture.transformers import Transformers

    return Transformers(path, threads=threads, weights=weights, lookahead=lookahead)


def choose(logits: NDArray[np.float32], temperature: float, random: np.random.Generator) -> int:
    """The next token, from f32 [vocabulary]: the likeliest (the first among equals), or a drawn one."""
    if temperature == 0:
        return int(np.argmax(logits))
    likeliest = np.argsort(-logits, kind="stable")[:SAMPLED_FROM]
    scaled = logits[likeliest].astype(np.float64) / temperature
    share = np.exp(scaled - scaled.max())
    return int(random.choice(likeliest, p=share / share.sum()))


def _check(call: RoutedCall, n_experts: Mapping[int, int]) -> None:
    """Refuse impossible values: they would mean that something other than a router's choice was read."""
    most = n_experts.get(call.layer, 0)
    if call.experts.min() < 0 or call.experts.max() >= most:
        raise SimError(f"layer {call.layer} asked for experts {call.experts.min()} to {call.experts.max()} of {most}")
    if call.weights is not None and not np.isfinite(call.weights).all():
        raise SimError(f"layer {call.layer} computed weights that are not numbers; is the model's file damaged?")


def _context(engine: LoadedModel, request: CaptureRequest, n_prompt: int) -> int:
    if not n_prompt:
        raise Incomplete("the prompt has no tokens; give a text")
    needed = n_prompt + request.tokens
    limit = request.context or engine.trained_context
    if limit and needed > limit:
        whose = "--ctx is" if request.context else "the model was trained with"
        raise TooLarge(
            f"the prompt has {n_prompt} tokens, with {request.tokens} more to come, and {whose} {limit}; "
            "give a shorter prompt, fewer --tokens or another --ctx"
        )
    return request.context or needed
