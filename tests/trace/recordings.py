"""Made-up routing in the encodings of engines, by the writers that they use: NumPy's, base64, JSON, and torch's zip.

`python -m tests.trace.recordings FOLDER` writes the files of data/made-up, which docs/guides/traces.md reads.
"""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.requests import Hints
from flashmoe_sim.trace.routing import RoutingTrace

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Made:
    """The experts of one request, [tokens fed, layers, k]; all but the last generated token are fed."""

    expert: Ids
    prompt: int

    @property
    def generated(self) -> int:
        return len(self.expert) - self.prompt + 1

    @property
    def usage(self) -> dict[str, int]:
        return {"prompt_tokens": self.prompt, "completion_tokens": self.generated}

    @property
    def steps(self) -> list[Ids]:
        """The prompt, then every decoded token."""
        return [self.expert[: self.prompt], *self.expert[self.prompt :, np.newaxis]]


def made(seed: int = 0, *, prompt: int = 7, generated: int = 6, layers: int = 3, experts: int = 12, k: int = 3) -> Made:
    draws = np.random.default_rng(seed).random((prompt + generated - 1, layers, experts))
    return Made(np.argsort(draws, axis=2)[:, :, :k], prompt)


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


def read(folder: Path, content: bytes | str, *, lenient: bool = False, **hints: Any) -> RoutingTrace:
    """The trace of a file of this content, whose name says nothing."""
    path = folder / "recording"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_trace(path, lenient=lenient, hints=Hints(**hints))


def npy(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def npz(**arrays: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def vllm(one: Made, *, dtype: str = "uint8", **more: Any) -> dict[str, Any]:
    """vLLM since 0.22."""
    sent = base64_of(npy(one.expert.astype(dtype)))
    return {
        "id": "cmpl-7",
        "created": 1790000000,
        "choices": [{"index": 0, "routed_experts": sent}],
        "usage": one.usage,
    } | more


def vllm_021(one: Made) -> dict[str, Any]:
    """vLLM 0.21: the prompt apart, a row for every generated token but the last."""
    choice = {"index": 0, "routed_experts": one.expert[one.prompt :].tolist()}
    return {"prompt_routed_experts": one.expert[: one.prompt].tolist(), "choices": [choice], "usage": one.usage}


def sglang(one: Made, *, dtype: str = "int32", **more: Any) -> dict[str, Any]:
    sent = base64_of(one.expert.astype(np.dtype(dtype).newbyteorder("<")).tobytes())
    named = {} if dtype == "int32" else {"routed_experts_dtype": dtype}
    return {"text": "words", "meta_info": {**one.usage, "cached_tokens": 0, "routed_experts": sent, **named, **more}}


def sglang_chat(one: Made, *, name: str = "sglext") -> dict[str, Any]:
    """Its OpenAI-compatible endpoints."""
    sent = base64_of(one.expert.astype("<i4").tobytes())
    return {"choices": [{"index": 0, name: {"routed_experts": sent}}], "usage": one.usage}


def wrapped(one: Made) -> dict[str, Any]:
    """As verifiers and dynamo keep it."""
    data = base64_of(one.expert.astype(np.uint8).tobytes())
    held = {"data": data, "shape": list(one.expert.shape), "start": 0, "dtype": "uint8"}
    return {"choices": [{"routed_experts": held}], "usage": one.usage}


def lines(documents: Sequence[Any]) -> bytes:
    return "".join(json.dumps(document) + "\n" for document in documents).encode()


def step_layers(one: Made, *, dense: Sequence[int] = ()) -> bytes:
    steps = []
    for step in one.steps:
        layers: dict[str, Any] = {str(layer): step[:, layer].tolist() for layer in range(step.shape[1])}
        steps.append(layers | {str(layer): None for layer in dense})
    return json.dumps(steps).encode()


def megatron(one: Made, *, rank: int = 0) -> bytes:
    return lines(
        [
            {
                "step": number,
                "stage": "pre_dispatch",
                "block": "decoder",
                "layer": layer,
                "rank": rank,
                "num_tokens": len(step),
                "topk": step.shape[2],
                "top_indices": step[:, layer].tolist(),
            }
            for number, step in enumerate(one.steps)
            for layer in range(step.shape[1])
        ]
    )


def in_file_order(one: Made) -> list[tuple[bool, int, int, list[int]]]:
    """(prompt, position, layer, experts) as a tracer in the engine sees them: batch by batch, layer by layer."""
    found, at = [], 0
    for number, step in enumerate(one.steps):
        for layer in range(step.shape[1]):
            found += [(not number, at + token, layer, step[token, layer].tolist()) for token in range(len(step))]
        at += len(step)
    return found


def phase_csv(one: Made, *, again: bool = False) -> bytes:
    """`phase,token,layer,rank,expert`; again: decoded tokens are counted from 0 again."""
    shift = one.prompt if again else 0
    rows = [
        f"{'prefill' if prompt else 'decode'},{position - (0 if prompt else shift)},{layer},{rank},{expert}\n"
        for prompt, position, layer, experts in in_file_order(one)
        for rank, expert in enumerate(experts)
    ]
    return ("phase,token,layer,rank,expert\n" + "".join(rows)).encode()


def position_csv(one: Made) -> bytes:
    """`position,layer,id0,id1,…` without a header; positions of the prompt are negative."""
    rows = (
        f"{position - one.prompt},{layer},{','.join(map(str, experts))}\n"
        for _, position, layer, experts in in_file_order(one)
    )
    return "".join(rows).encode()


def layer_expert_csv(one: Made) -> bytes:
    """As llama.cpp's pull request writes it."""
    rows = (f"{layer},{expert}\n" for _, _, layer, experts in in_file_order(one) for expert in experts)
    return ("layer,expert\n" + "".join(rows)).encode()


def imp(one: Made, *, key: str = "trace", flat: bool = False) -> bytes:
    """imp's document; it records decoded tokens alone."""
    records = [[layer, *ids.tolist()] for token in one.expert for layer, ids in enumerate(token)]
    held: Any = [number for record in records for number in record] if flat else records
    return json.dumps({"top_k": one.expert.shape[2], key: held}).encode()


def safetensors(**tensors: NDArray[Any]) -> bytes:
    """The format's own layout: the length of the header, the header, the numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "np"}}
    data = b""
    for name, tensor in tensors.items():
        kind = {"i": "I", "u": "U", "f": "F"}[tensor.dtype.kind] + str(8 * tensor.itemsize)
        end = len(data) + tensor.nbytes
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), end]}
        data += np.ascontiguousarray(tensor).tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def glm52(several: Sequence[Made], *, layers: Sequence[int]) -> bytes:
    """The export `glm52-routing-trace-export/v2`: rows of all prompts one after another, by the model's layers."""
    rows, prompts = np.concatenate([one.expert for one in several]), []
    for one in several:
        start = prompts[-1]["end_row"] if prompts else 0
        end = start + len(one.expert)
        decoded = len(one.expert) - one.prompt
        prompts.append({"start_row": start, "prefill_rows": one.prompt, "decode_step_rows": decoded, "end_row": end})
    held = {str(layer): {"executed_topk": rows[:, place].tolist()} for place, layer in enumerate(layers)}
    return json.dumps(
        {
            "schema": "glm52-routing-trace-export/v2",
            "routing": {"k": rows.shape[2]},
            "conditional": {"prompts": prompts},
            "layers": held,
        }
    ).encode()


def strided_misread(one: Made, *, experts: int) -> Made:
    """What a recorder keeps that takes the top-k columns of sorted rows [tokens, experts] for contiguous ids."""
    tokens, layers, k = one.prompt, one.expert.shape[1], one.expert.shape[2]
    rng = np.random.default_rng(1)
    wrong = one.expert.copy()
    for layer in range(layers):
        full = np.array([rng.permutation(experts) for _ in range(tokens)])
        full[:, :k] = one.expert[:tokens, layer]
        for row in full:
            row[k:] = rng.permutation(np.setdiff1d(np.arange(experts), row[:k]))
        wrong[:tokens, layer] = full.reshape(-1)[: tokens * k].reshape(tokens, k)
    return Made(wrong, one.prompt)


class Pickled:
    """A pickle of protocol 2, as `torch.save` writes one: values, and tensors whose storages lie beside it."""

    def __init__(self) -> None:
        self.storages: list[bytes] = []

    def text(self, value: str) -> bytes:
        encoded = value.encode()
        return b"X" + struct.pack("<I", len(encoded)) + encoded

    def value(self, value: Any) -> bytes:
        if value is None:
            return b"N"
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return b"](" + b"".join(map(self.value, value)) + b"e"
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self.value, value)) + b"t"
        if isinstance(value, dict):
            return b"}(" + b"".join(self.value(one) for pair in value.items() for one in pair) + b"u"
        return self.tensor(value)

    def tensor(self, array: NDArray[Any]) -> bytes:
        kind = {"int32": "IntStorage", "int64": "LongStorage", "float32": "FloatStorage"}[str(array.dtype)]
        self.storages.append(array.tobytes())
        storage = (
            b"("
            + self.text("storage")
            + b"ctorch\n"
            + kind.encode()
            + b"\n"
            + self.text(str(len(self.storages) - 1))
            + self.text("cpu")
            + self.value(array.size)
            + b"tQ"
        )
        strides = tuple(stride // array.itemsize for stride in array.strides)
        arguments = b"(" + storage + self.value(0) + self.value(array.shape) + self.value(strides) + b"\x89"
        return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"ccollections\nOrderedDict\n)R" + b"tR"


def torch_zip(content: Any, *, pickled: bytes | None = None) -> bytes:
    """The file of `torch.save`; pickled: other bytes for its pickle."""
    writer = Pickled()
    body = b"\x80\x02" + writer.value(content) + b"."
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        members = {"data.pkl": body if pickled is None else pickled, "byteorder": b"little", "version": b"3\n"}
        members |= {f"data/{number}": storage for number, storage in enumerate(writer.storages)}
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), member)
    return stream.getvalue()


def recorder(one: Made, *, physical: NDArray[np.int64] | None = None, padding: int = 0) -> dict[str, Any]:
    """What SGLang's recorder holds: passes of eight columns, ids of physical experts, and rows of padding."""
    records = []
    layers, k = one.expert.shape[1:]
    for number, step in enumerate(one.steps):
        ids = np.full((layers, len(step) + padding, 8), -1, np.int32)
        ids[:, : len(step), :k] = step.transpose(1, 0, 2)
        if physical is not None:
            inverse = np.argsort(physical, axis=1)
            for layer in range(layers):
                ids[layer, : len(step), :k] = inverse[layer][step[:, layer]]
        records.append(
            {
                "forward_pass_id": 41 + number,
                "rank": 0,
                "gatherer_key": "primary",
                "input_ids": [5] * len(step),
                "extend_seq_lens": None,
                "forward_mode": 2 if number else 1,
                "topk_ids_of_layer": ids,
                "misc_objects": [],
            }
        )
    return {"records": records, "last_physical_to_logical_map": physical}


def calls(trace: RoutingTrace) -> list[tuple[int, int, int, int, list[int]]]:
    """(step, layer, phase, tokens, experts) of each call."""
    phase = np.zeros(trace.calls, np.uint8) if trace.phase is None else trace.phase
    bounds = trace.offset.tolist()
    return [
        (
            int(trace.steps[call]),
            int(trace.layer[call]),
            int(phase[call]),
            int(trace.n_tokens[call]),
            trace.expert[bounds[call] : bounds[call + 1]].tolist(),
        )
        for call in range(trace.calls)
    ]


def expected(requests: Sequence[Made], *, chunk: int = 512, cached: int = 0, layers: Sequence[int] = ()) -> list[Any]:
    """The calls of requests by the definition, token by token; layers: the numbers of the arrays' layers."""
    found: list[Any] = []
    step = 0
    for one in requests:
        numbers = layers or range(one.expert.shape[1])
        prompt = list(range(cached, one.prompt))
        passes = [(1, prompt[at : at + chunk]) for at in range(0, len(prompt), chunk)]
        passes += [(2, [token]) for token in range(one.prompt, len(one.expert))]
        for phase, tokens in passes:
            for place, layer in enumerate(numbers):
                ids = [int(expert) for token in tokens for expert in one.expert[token, place]]
                found.append((step, layer, phase, len(tokens), ids))
            step += 1
    return found


def files() -> dict[str, bytes]:
    """The files of data/made-up: two requests to a model of four layers, 16 experts and two experts a token."""
    one, other = (made(seed, prompt=size, generated=17, layers=4, experts=16, k=2) for seed, size in ((1, 24), (2, 40)))
    table = "pos,blk,e0,e1\n" + "".join(
        f"{position},{layer},{','.join(map(str, ids))}\n" for _, position, layer, ids in in_file_order(one)
    )
    shard = np.full((2, 4, len(other.expert), 2), -1, np.int16)
    for request, each in enumerate((one, other)):
        shard[request, :, : len(each.expert)] = each.expert.swapaxes(0, 1)
    return {
        "imp.json": imp(Made(one.expert[one.prompt :], 0)),
        "glm52.json": glm52([one, other], layers=[3, 4, 5, 6]),
        "shard.safetensors": safetensors(topk_indices=shard),
        "vllm.jsonl": lines([vllm(one), vllm(other)]),
        "vllm-0.21.jsonl": lines([vllm_021(one), vllm_021(other)]),
        "sglang.jsonl": lines([sglang(one), sglang(other)]),
        "recorder.pt": torch_zip(recorder(one)),
        "routing.npy": npy(one.expert.astype(np.int16)),
        "router_trace_rank0.jsonl": megatron(one),
        "moe-trace.csv": position_csv(one),
        "steps.json": step_layers(one, dense=[4]),
        "log.csv": table.encode(),
    }


if __name__ == "__main__":
    for name, content in files().items():
        (Path(sys.argv[1]) / name).write_bytes(content)
