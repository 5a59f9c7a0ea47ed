"""The output of SGLang's expert distribution recorder in mode `per_token`: a server's real passes, in a `.pt` file.

A record is a pass: `topk_ids_of_layer` int32 [layers, tokens, 8], -1 if a model uses fewer experts, in layers without
routing and in padding. Ids are physical experts, which `last_physical_to_logical_map` [layers, physical] maps to the
model's. torch is not needed, and no pickle is run (see `tensors`).

Source: sglang srt/eplb/expert_distribution.py@dd780ab.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Conflict, Malformed, Unsupported, shown
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.lines import trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, PHASE_UNKNOWN, RoutingTrace, uniform_trace
from flashmoe_sim.trace.source import Archive, open_bytes
from flashmoe_sim.trace.tensors import NotTensors, load_tensors

FORMAT = "sglang-pt"
IDS, MAP = "topk_ids_of_layer", "last_physical_to_logical_map"
IDLE = 4
PHASES = {1: PHASE_PROMPT, 2: PHASE_DECODE, 5: PHASE_DECODE}  # extend, decode, verify; mixed passes are unknown


class RankPass(NamedTuple):
    """One rank's part of a pass: the pass's number, ids [layers, tokens, k], -1 for none, and the phase."""

    number: int
    ids: NDArray[Any]
    phase: int


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace: a step for every pass, a call for every layer with routing. lenient changes nothing.

    Raises BadInput for any other file of torch, a file with only counts, tokens with different numbers of experts, and
    ids that the map does not have.
    """
    return read_ranks([path], options)


def read_ranks(paths: Sequence[Path], options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read the files of several ranks as one trace, joined pass by pass: equal ids count once. Raises like `read`."""
    ranks = [_recording(one, _document(one, options)) for one in paths]
    path, mapping = paths[0], ranks[0][1]
    records = _joined([record for found, _ in ranks for record in found], path)
    k = max((int((ids >= 0).any(axis=(0, 1)).sum()) for ids, _ in records), default=0)
    if not k:
        raise Malformed(
            f"{path}: no pass of it has routing: the capture was empty; start the recorder before the requests"
        )
    parts: list[NDArray[np.int16]] = []
    calls: list[tuple[int, int, int, int]] = []  # step, layer, tokens, phase
    for step, (ids, phase) in enumerate(records):
        held: NDArray[np.bool_] = np.any(ids >= 0, axis=2)
        for layer in np.flatnonzero(held.any(axis=1)).tolist():
            chosen = ids[layer, held[layer], :k]
            where = f"{path}: pass {step}, layer {layer}"
            if (chosen < 0).any():
                raise Malformed(f"{where}: a token has fewer than {k} experts (mixed top-k); expected the same number")
            if mapping is not None:
                if chosen.max() >= mapping.shape[1]:
                    raise Malformed(
                        f"{where}: physical expert {chosen.max()}, but the map has {mapping.shape[1]}; copy it again"
                    )
                chosen = mapping[layer, chosen]
            if chosen.max() > ID_MAX or chosen.min() < 0:
                raise Malformed(f"{where}: expert {chosen.max():,}; expected 0 to {ID_MAX:,}: the file is damaged")
            parts.append(chosen.astype(np.int16).ravel())
            calls.append((step, layer, len(chosen), phase))
    step_of, layer_of, n_tokens, phases = (np.array(column) for column in zip(*calls, strict=True))
    notes = ["the ranks of a token's experts are not in the router's order"]
    if mapping is None:
        notes.append(f"no {MAP}: ids of physical experts are used as the model's")
    return uniform_trace(
        layer_of,
        n_tokens,
        np.concatenate(parts),
        k,
        phase=phases.astype(np.uint8),
        step=np.unique(step_of, return_inverse=True)[1].astype(np.int32),
        format=FORMAT,
        name=trace_name(path),
        notes=tuple(notes),
    )


def _document(path: Path, options: ReadOptions) -> Any:
    with open_bytes(path) as stream:
        content = stream.read()
    if options.progress:
        options.progress(len(content))
    archive = Archive(content, str(path))
    pickled = next((name for name in archive.names if name.endswith("/data.pkl")), "")
    try:
        return load_tensors(archive, pickled)
    except NotTensors as error:
        raise Malformed(f"{path}: {error}; expected a recording of SGLang in mode per_token") from None


def _joined(records: list[RankPass], path: Path) -> list[tuple[NDArray[Any], int]]:
    """The ids and the phase of every pass in order, with the tokens of all ranks."""
    if len({record.ids.shape[0] for record in records}) > 1:
        raise Conflict(f"{path}: records have different numbers of layers; give files of one model")
    passes: dict[int, dict[bytes, RankPass]] = {}
    for record in records:
        passes.setdefault(record.number, {}).setdefault(record.ids.tobytes(), record)
    found = []
    for number in sorted(passes):
        ranks = list(passes[number].values())
        phases = {rank.phase for rank in ranks}
        if len({rank.ids.shape[2] for rank in ranks}) > 1:
            raise Conflict(f"{path}: pass {number} has different numbers of experts per token; give files of one model")
        ids = np.concatenate([rank.ids for rank in ranks], axis=1)
        found.append((ids, phases.pop() if len(phases) == 1 else PHASE_UNKNOWN))
    return found


def _recording(path: Path, document: Any) -> tuple[list[RankPass], NDArray[Any] | None]:
    """The passes of one rank, and the map to logical experts."""
    if isinstance(document, dict) and "logical_count" in document:
        raise Unsupported(
            f"{path}: a recording of counts (mode stat), which hold no order of tokens; record in mode per_token, or "
            "make a trace with `sim trace synth`"
        )
    records = document.get("records") if isinstance(document, dict) else None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise Malformed(f"{path}: a file of torch without records; expected a recording of SGLang in mode per_token")
    found: list[RankPass] = []
    for number, record in enumerate(records):
        mode, ids = record.get("forward_mode"), record.get(IDS)
        if mode == IDLE:
            continue
        if not isinstance(ids, np.ndarray) or ids.ndim != 3 or ids.dtype.kind not in "iu" or not ids.shape[2]:
            shape = list(ids.shape) if isinstance(ids, np.ndarray) else shown(ids, 40)
            raise Malformed(f"{path}: record {number}: {IDS} is {shape}; expected ids [layers, tokens, k]")
        order = record.get("forward_pass_id")
        phase = PHASES.get(mode, PHASE_UNKNOWN) if isinstance(mode, int) else PHASE_UNKNOWN
        found.append(RankPass(order if isinstance(order, int) else number, ids, phase))
    mapping = document.get(MAP)
    if not isinstance(mapping, np.ndarray) or not found:
        return found, None
    if mapping.ndim != 2 or mapping.dtype.kind not in "iu" or mapping.shape[0] != found[0].ids.shape[0]:
        layers = found[0].ids.shape[0]
        raise Malformed(f"{path}: {MAP} is {list(mapping.shape)}; expected [{layers}, physical experts]")
    return found, mapping
