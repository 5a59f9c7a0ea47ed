"""Responses that cannot be used say why in one line."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed
from flashmoe_sim.trace.arrays import npy_array
from flashmoe_sim.trace.served_json import from_base64
from tests.support import refused
from tests.trace.recordings import calls, expected, lines, made, npy, read, vllm, vllm_021

USAGE = {"prompt_tokens": 7, "completion_tokens": 6}


def choice(routing: Any) -> bytes:
    return json.dumps({"choices": [{"routed_experts": routing}], "usage": USAGE}).encode()


def vllm_text() -> str:
    return json.dumps(vllm(made()))


@pytest.mark.parametrize(
    ("content", "found", "kind"),
    [
        (
            json.dumps(vllm_021(made()) | {"usage": {"prompt_tokens": 8, "completion_tokens": 6}}).encode(),
            "7 rows of prompt_routed_experts and 5 of routed_experts, but 8 prompt tokens and ",
            Malformed,
        ),
        (
            lines([vllm(made()), vllm(made(k=2))]),
            r"2 experts per token \(mixed top-k\), but 3 in recording: line 1",
            Conflict,
        ),
        (lines([vllm(made()), vllm_021(made())]), r"one has only the routed layers, as vLLM 0\.21 writes th", Conflict),
        (choice(None), "routed_experts is null: the server was started without the flag", Malformed),
        (json.dumps({"choices": [{"text": "words"}]}).encode(), "routed_experts is not there: the server w", Malformed),
        (json.dumps({"meta_info": {"prompt_tokens": 3}}).encode(), "not there: the server was started with", Malformed),
        (choice("k05VTVBZ"), r"line 1: routed_experts: not a .npy file", Malformed),
        (choice("k05VTVB"), "base64 of 7 letters, not a multiple of 4: it is cut off", Malformed),
        (choice("????"), "not valid base64", Malformed),
        (choice("AAAA-AAAAAAA"), "not valid base64", Malformed),
        (choice({"data": "AAAA", "shape": [1, 1], "dtype": "uint8"}), r"shape is \[1, 1\]; \[tokens, layer", Malformed),
        (choice({"data": "AAAA", "shape": [9, 9, 9], "dtype": "uint8"}), r"shape is \[9, 9, 9\]", Malformed),
        (choice({"data": "AAAA", "shape": [1, 1, 3], "dtype": "object"}), "is of dtype 'object'; one of in", Malformed),
        (choice({"data": "AAAAAA==", "dtype": "int32"}), "SGLang sends neither layers nor top-k", Incomplete),
        (choice({"data": "AAA=", "dtype": "int32"}), "has 2 bytes, which are not a whole number of int32", Malformed),
        (choice({"data": "////fw==", "dtype": "int32"}), r"expert 2,147,483,647; expected at most 32,767", Malformed),
        (choice({"data": "////fw==", "shape": [1, 1, 1]}), "expert 2,147,483,647; expected at most 32,767", Malformed),
        (choice({"data": "#" + "9" * 5000}), "not valid base64|cut off", Malformed),
        (b'{"prompt_routed_experts": 7}', "prompt_routed_experts is 7; expected lists of expert ids", Malformed),
        (b'{"prompt_routed_experts": [[[1]]], "choices": [{"routed_experts": "a"}]}', "expected lists of e", Malformed),
        (choice(7), "routed_experts is 7; expected base64 or lists of expert ids", Malformed),
        (choice([[1, 2]]), r"is not \[tokens\]\[layers\]\[k\] of expert ids", Malformed),
        (choice([[[1.5, 2]]]), r"is not \[tokens\]\[layers\]\[k\] of expert ids", Malformed),
        (choice([[[1, 99999]]]), r"is not \[tokens\]\[layers\]\[k\] of expert ids", Malformed),
        (choice([[[1, 2]], [[1]]]), r"1 or 2 experts \(mixed top-k\)", Malformed),
        (b'{"choices": [3]}', "choice 0 is 3; expected an object", Malformed),
        (b'{"choices": [{"routed_experts": "', "not a complete JSON document", Malformed),
        (b'{"response": {"body": null}, "choices": 1}', "the batch output has no response.body", Malformed),
        (b'[{"choices": 1}, 3]', "not there|expected a response", Malformed),
        (vllm_text().replace('"usage": {', '"usage": {"prompt_tokens": 4, '), "line 1: key 'prompt_tokens'", Malformed),
        (vllm_text().replace('"choices": [', '"choices": [], "choices": ['), "line 1: key 'choices' occurs", Malformed),
        (
            vllm_text().replace('"routed_experts"', '"routed_experts": "AAAA", "routed_experts"') + "\n" + vllm_text(),
            "line 1: key 'routed_experts' occurs twice; expected e",
            Malformed,
        ),
    ],
)
def test_responses_that_cannot_be_used(tmp_path: Path, content: bytes | str, found: str, kind: type[BadInput]) -> None:
    with refused(kind, match=found):
        read(tmp_path, content)


def test_lines_without_routing_are_skipped_if_lenient(tmp_path: Path) -> None:
    one = made()
    content = lines([vllm(one), {"choices": [{"routed_experts": None}]}, vllm(one)])
    with pytest.raises(Malformed, match="line 2: routed_experts is null"):
        read(tmp_path, content)
    trace = read(tmp_path, content, lenient=True)
    assert calls(trace) == expected([one, one])
    assert any("skipped 1 malformed line" in note for note in trace.notes)


def test_a_prompt_of_unknown_length(tmp_path: Path) -> None:
    document = vllm(made())
    del document["usage"]
    with pytest.raises(Malformed, match=r"neither usage.prompt_tokens nor prompt_token_ids .* --prompt-tokens"):
        read(tmp_path, json.dumps(document).encode())
    for known in (document | {"prompt_token_ids": [1] * 7}, document):
        trace = read(tmp_path, json.dumps(known).encode(), prompt_tokens=7)
        assert calls(trace) == expected([made()])


def test_texts_that_look_like_routing_are_texts(tmp_path: Path) -> None:
    """A key inside a text has escaped quotes, and escaped slashes are read too."""
    one = made(experts=200, prompt=300)
    document = vllm(one) | {"note": '"routed_experts": "#0"', 'odd "routed_experts': "AAAA"}
    text = json.dumps(document)
    for content in (text, text.replace("/", "\\/"), text.replace('"routed_experts": "k', '"routed_experts"  :\n "k')):
        assert calls(read(tmp_path, content.encode())) == expected([one])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100, 4095])
def test_base64_is_that_of_the_standard_library(size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    assert from_base64(base64.b64encode(content)).tobytes() == content


@pytest.mark.parametrize("place", range(24))
def test_every_letter_of_base64_is_checked(place: int) -> None:
    good = bytearray(base64.b64encode(bytes(range(18))))
    for letter in b"-_ \n=\xff":
        bad = good.copy()
        bad[place] = letter
        if bytes(bad[-2:]) not in (b"==",) and not (place == 23 and letter == ord("=")):
            with pytest.raises(ValueError, match="not valid base64"):
                from_base64(bytes(bad))


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        (b"(0, 4000000000, 2)", "4,000,000,000 layers; expected at most 32,768: the axes are in another order"),
        (b"(0, 2, 4000000000)", "no token of it|1 prompt tokens"),
    ],
)
def test_a_header_that_promises_much_of_nothing(tmp_path: Path, shape: bytes, found: str) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': %s, }" % shape
    content = b"\x93NUMPY\x01\0\x76\0" + header.ljust(117) + b"\n"
    sent = {"routed_experts": base64.b64encode(content).decode()}
    document = {"choices": [sent], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    for usage in (document["usage"], {"prompt_tokens": 1, "completion_tokens": 0}):
        with pytest.raises(Malformed, match=rf"{found}|0 rows of routing"):
            read(tmp_path, json.dumps(document | {"usage": usage}).encode())


def test_a_header_that_promises_more_than_there_is() -> None:
    """Nothing is allocated by a header's word; an array of objects is a pickle, and refused."""
    content = npy(np.zeros((2, 3, 4), np.uint8))
    for shape in (b"(9, 9, 9)", b"(2, 3, 5)", b"(2**9, )", b"(99999999, 99999, 9)"):
        damaged = content.replace(b"(2, 3, 4)", shape)
        with pytest.raises(ValueError, match=r"expected for uint8|not a .npy file"):
            npy_array(np.frombuffer(damaged, np.uint8))
    objects = content.replace(b"'|u1'", b"'|O8'")
    with pytest.raises(ValueError, match=r"expected whole numbers|not a .npy file"):
        npy_array(np.frombuffer(objects, np.uint8))
