"""Drafted tokens that a pass verifies: how many, how often they are accepted, and what drafting them takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from flashmoe_sim.geometry.gguf import weights_of_file
from flashmoe_sim.geometry.gguf_header import MAGIC
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import is_name, named_model
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, OutOfRange, Unsupported
from flashmoe_sim.io.files import unreadable
from flashmoe_sim.io.sizes import GIB, parse_size, size
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.speculate import MOST_DRAFTED, speculate

NGRAM, MTP, MODEL = "ngram", "mtp", "model"
OUTPUT_BITS = 6.5625  # a weight of the output matrix, Q6_K in llama.cpp's files, where it is also the embeddings


@dataclass(frozen=True)
class Drafts:
    """Tokens drafted before each pass.

    count: of tokens, at least 1. accept: the probability that one is accepted, given that those before it were.
    kind: of the drafter: NGRAM, MTP or MODEL. token_bytes: of weights that it reads for each drafted token. layers:
    of a drafted token, one after another. kept_bytes: memory that it takes. call_us: what the engine takes longer for a
    routed call of several tokens, beside its experts.
    """

    count: int
    accept: float
    kind: str = NGRAM
    token_bytes: int = 0
    layers: int = 0
    kept_bytes: int = 0
    call_us: float = 0.0

    @property
    def text_tokens(self) -> float:
        """Tokens of text that a pass yields on average: its own, and the accepted ones."""
        return text_tokens(self.count, self.accept)

    @property
    def in_words(self) -> str:
        """The drafts in a few words."""
        by = {NGRAM: "found by n-gram lookup", MTP: "drafted by the model's own layer", MODEL: "drafted by a model"}
        kept = f", which takes {size(self.kept_bytes)}" if self.kept_bytes else ""
        return f"{self.count} token{'s' * (self.count > 1)} a pass {by[self.kind]}{kept}; accepted: {self.accept:g}"


@lru_cache(maxsize=4)
def drafted(workload: Workload, drafts: Drafts | None) -> Workload:
    """The workload as it is with these drafts, see `speculate`.

    Raises BadInput for a trace whose passes already verify drafts, and for one in which nothing can be drafted.
    """
    trace = workload.trace
    if drafts is None:
        return workload
    if trace.n_text is not None:
        raise Conflict(f"{trace.name or 'trace'}: its passes verify drafted tokens already; leave --draft out")
    return prepare(speculate(trace, draft=drafts.count, accept=drafts.accept), workload.geometry)


def text_tokens(count: int, accept: float) -> float:
    """1 + accept + ... + accept^count."""
    return float(sum(accept**power for power in range(count + 1)))


def break_even(count: int, cost: float) -> float | None:
    """The acceptance at which a pass of `cost` times the seconds of a token yields as many tokens of text.

    0 if drafts pay even if all are rejected; None if they do not even if all are accepted.
    """
    if cost > count + 1:
        return None
    lo, hi = 0.0, 1.0
    for _ in range(50):
        middle = (lo + hi) / 2
        lo, hi = (lo, middle) if text_tokens(count, middle) >= cost else (middle, hi)
    return 0.0 if cost <= 1 else hi


def check_drafts(draft: int | None, accept: float | None, drafter: str | int | Path | None) -> None:
    """Raise BadInput for a number out of range, and for --accept or --drafter without --draft."""
    if draft is None:
        for name, given in (("accept", accept), ("drafter", drafter)):
            if given is not None:
                raise Incomplete(f"--{name} {given}: says how tokens are drafted; give --draft too")
        return
    if not 0 <= draft <= MOST_DRAFTED:
        raise OutOfRange(f"--draft {draft}: expected 0 to {MOST_DRAFTED} tokens")
    if accept is None and draft:
        raise Incomplete(f"--draft {draft}: how often is a drafted token accepted? Give it, such as --accept 0.7")
    if accept is not None and not 0 <= accept <= 1:
        raise OutOfRange(f"--accept {accept:g}: expected a probability, 0 to 1")


def given_drafts(
    draft: int | None, accept: float | None, drafter: str | int | Path | None, model: ModelGeometry | None
) -> Drafts | None:
    """The drafts from words; None for none. drafter: by default the model's own layer, or n-gram lookup without one.

    Raises BadInput for what `check_drafts` refuses, for a drafter that the model does not have, and for one that is not
    known.
    """
    check_drafts(draft, accept, drafter)
    if not draft:
        return None
    assert accept is not None
    own = model is not None and model.drafting_layers > 0
    kind = drafter if drafter is not None else MTP if own else NGRAM
    if kind == NGRAM:
        return Drafts(draft, accept)
    if kind == MTP:
        if model is None or not own:
            name = "the trace's model" if model is None else model.name
            raise Unsupported(
                f"--drafter mtp: {name} has no layer that drafts tokens; give --drafter ngram, or a draft model by its "
                "file or size, such as 0.6GiB"
            )
        return Drafts(draft, accept, MTP, *_own_layer(model))
    return Drafts(draft, accept, MODEL, *_draft_model(kind))


def output_bytes(model: ModelGeometry) -> int:
    """Bytes of the output matrix: as many as the embeddings have, if these are apart."""
    if model.embedding_bytes or model.widths is None:
        return model.embedding_bytes
    numbers = model.widths.vocab * model.widths.hidden
    return min(round(numbers * OUTPUT_BITS / 8), model.streamed_bytes or 0)


def _own_layer(model: ModelGeometry) -> tuple[int, int, int]:
    """Bytes read for a token, layers and bytes kept of a layer like the others, with the model's output.

    A GGUF file counts the layer among the others, so that its weights are kept already.
    """
    output, last = output_bytes(model), model.layers[max(model.layers)]
    dense = max((model.streamed_bytes or 0) - output, 0) // len(model.layers)
    read = output + dense + model.top_k * last.expert_bytes
    weights = 0 if model.gguf else dense + last.n_experts * last.expert_bytes
    return read, 1, round(weights + _context_bytes())


def _context_bytes() -> float:
    """What the context and graph of a drafter take on the GPU."""
    return estimate("drafts.context_gib").value * GIB


def _draft_model(given: str | int | Path) -> tuple[int, int, int]:
    """Bytes read for a token, layers and bytes kept of a model that is given by its size, file or name."""
    weights = given if isinstance(given, int) else parse_size(str(given))
    if weights:
        return weights, round(estimate("drafts.usual_layers").value), round(weights + _context_bytes())
    if isinstance(given, str) and is_name(given):
        named = named_model(given)
        read, kept = (named.streamed_bytes or 0) + named.token_cycle_bytes(), (named.dense_bytes or 0)
        blocks = len(named.layers) if named.attention is None else len(named.attention.layers)
        return read, blocks, round(kept + named.routed_bytes + _context_bytes())
    path = Path(str(given))
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        magic = b""
    except OSError as error:
        raise unreadable(path, error) from None
    if magic != MAGIC:
        raise Malformed(
            f"--drafter {given}: expected ngram, mtp, or a draft model: a GGUF file, a name from `sim model list`, or "
            "a size such as 0.6GiB"
        )
    read, blocks, kept = weights_of_file(path)
    return read, blocks, round(kept + _context_bytes())
