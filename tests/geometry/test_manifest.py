"""Sidecar manifests: what they say, what they lack, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry import manifest as module
from flashmoe_sim.geometry import read_manifest
from flashmoe_sim.io.errors import Malformed, Missing, TooLarge, Unsupported, Unusable
from tests.geometry.conftest import document, entry, write
from tests.support import refused

GATE, UP, DOWN, GATE_UP = "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps"


def whole(layer: int) -> list[dict[str, Any]]:
    return [entry(layer, GATE, 4352), entry(layer, UP, 4352), entry(layer, DOWN, 4352)]


def test_a_whole_sidecar(tmp_path: Path) -> None:
    """Two layers of 8 experts of 3 x 4,352 bytes: 26,112 bytes a slot pair, 208,896 in all."""
    path = write(tmp_path / "side", document(whole(0) + whole(1)))
    model = read_manifest(path)
    assert model == read_manifest(path.parent)
    assert (model.name, model.arch, model.quant, model.top_k) == ("tiny", "qwen35moe", "Q8_0", 2)
    assert model.dense_bytes is None
    assert list(model.layers) == [0, 1]
    assert dict(model.layers[0].family_bytes) == {GATE: 4352, UP: 4352, DOWN: 4352}
    assert model.routed_bytes == 2 * 8 * 13_056
    assert model.bank_bytes(2) == 2 * 2 * 13_056
    assert model.token_cycle_bytes() == 2 * 2 * 13_056
    assert model.notes == ()


@pytest.mark.parametrize("kind", ["flashmoe_affine_2bit_qwen397b", "another", 3])
def test_experts_that_are_converted_while_they_are_read_are_refused(tmp_path: Path, kind: object) -> None:
    path = write(tmp_path, document(whole(0)) | {"sidecar_kind": kind})
    with pytest.raises(
        Unsupported, match=r"manifest.json: sidecar_kind is '\w+': experts are converted .* give the model"
    ):
        read_manifest(path)
    for known in ("flashmoe_gguf", "", None):
        assert read_manifest(write(tmp_path, document(whole(0)) | {"sidecar_kind": known})).layers


def test_layers_of_different_sizes_and_a_fused_family(tmp_path: Path) -> None:
    """Layer 3 is fused with 4 experts, layer 4 is not, with 8: every layer keeps its own numbers."""
    entries = [
        entry(4, DOWN, 300),
        entry(3, DOWN, 200, experts=4, quant_type="Q6_K"),
        entry(3, GATE_UP, 500, experts=4),
        entry(4, GATE, 100),
        entry(4, UP, 100),
    ]
    model = read_manifest(write(tmp_path, document(entries, leading_dense_block_count=3)))
    assert list(model.layers) == [3, 4]
    assert model.layers[3].n_experts == 4
    assert list(model.layers[3].family_bytes.items()) == [(GATE_UP, 500), (DOWN, 200)]
    assert list(model.layers[4].family_bytes.items()) == [(GATE, 100), (UP, 100), (DOWN, 300)]
    assert model.routed_bytes == 4 * 700 + 8 * 500
    assert model.quant == "Q8_0+Q6_K"
    assert model.notes == ()


def test_notes_tell_what_a_partial_sidecar_lacks(tmp_path: Path) -> None:
    entries = [*whole(0), entry(2, GATE, 4352), *whole(5), entry(5, "ffn_down_shexp", 99, shape=[4, 4])]
    notes = read_manifest(write(tmp_path, document(entries))).notes
    assert "no routed experts in layers 1, 3-4: dense layers, or left out" in notes
    assert "partial: no ffn_up_exps in layers 2, so an expert costs more than is counted here" in notes
    assert "partial: no ffn_down_exps in layers 2, so an expert costs more than is counted here" in notes
    assert "not routed, so not counted: ffn_down_shexp" in notes


def test_a_family_missing_everywhere_and_leading_layers_left_out(tmp_path: Path) -> None:
    entries = [entry(2, GATE, 10), entry(2, UP, 10)]
    notes = read_manifest(write(tmp_path, document(entries, leading_dense_block_count=1))).notes
    assert notes == (
        "no routed experts in layers 1: dense layers, or left out",
        "partial: no ffn_down_exps in any layer, so an expert costs more than is counted here",
    )


def test_counts_that_are_absent(tmp_path: Path) -> None:
    """Without a shape the model's count holds; without a used count top-k stays 0 and a note says so."""
    entries = [entry(0, family, 10, shape=None) for family in (GATE, UP, DOWN)]
    model = read_manifest(write(tmp_path, document(entries, expert_used_count=None)))
    assert model.layers[0].n_experts == 8
    assert model.top_k == 0
    assert any("how many experts a token uses" in note for note in model.notes)


def test_the_name_falls_back_to_the_folder(tmp_path: Path) -> None:
    content = document(whole(0))
    del content["source"]
    assert read_manifest(write(tmp_path / "kimi-sidecar", content)).name == "kimi-sidecar"


def test_the_files_it_names_are_not_needed(tmp_path: Path) -> None:
    assert read_manifest(write(tmp_path, document(whole(0)))).routed_bytes == 8 * 13_056
    assert [item.name for item in tmp_path.iterdir()] == ["manifest.json"]


BAD_ENTRIES: dict[str, tuple[dict[str, Any], str]] = {
    "layer negative": ({"layer": -1}, "entry 3: layer is -1; expected an integer from 0 to 32767"),
    "layer float": ({"layer": 3.5}, "entry 3: layer is 3.5"),
    "layer bool": ({"layer": True}, "entry 3: layer is True"),
    "layer absent": ({"layer": None}, "entry 3: layer is nothing"),
    "bytes zero": ({"bytes_per_expert": 0}, "entry 3: bytes_per_expert is 0"),
    "bytes absurd": ({"bytes_per_expert": 2**60}, "entry 3: bytes_per_expert is 1152921504606846976"),
    "bytes beyond 64 bits": ({"bytes_per_expert": 10**30}, "entry 3: bytes_per_expert is 1e+30"),
    "length absent": ({"exact_byte_length": None}, "entry 3: exact_byte_length is nothing"),
    "length wrong": ({"exact_byte_length": 1}, "bytes_per_expert 4352 x 8 experts = 34816, but exact_byte_length is 1"),
    "experts differ": ({"shape": [1, 1, 4]}, "4 experts in layer 0, but an earlier entry has 8"),
    "experts zero": ({"shape": [128, 32, 0]}, "entry 3: shape is [128, 32, 0]"),
    "shape bool": ({"shape": [128, 32, True]}, "entry 3: shape is [128, 32, True]"),
    "shape short": ({"shape": [8]}, "entry 3: shape is [8]"),
    "twice": ({"tensor_family": GATE}, "entry 3: a second ffn_gate_exps of layer 0"),
    "family absent": ({"tensor_family": None}, "entry 3: tensor_family is nothing"),
    "file a number": ({"repacked_file": 7}, "entry 3: repacked_file is 7"),
}


@pytest.mark.parametrize(("changes", "message"), BAD_ENTRIES.values(), ids=BAD_ENTRIES.keys())
def test_a_bad_entry_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    bad = {**entry(0, GATE_UP, 4352), **changes}
    path = write(tmp_path, document([*whole(0), bad]))
    with refused(Malformed, message, str(path)):
        read_manifest(path)


BAD_DOCUMENTS: dict[str, tuple[Any, str]] = {
    "NUL bytes": (bytes(100), "not JSON"),
    "cut short": (b'{"entries": [', "not JSON"),
    "a key twice": (b'{"entries": [], "entries": []}', "not JSON (key 'entries' occurs twice)"),
    "a key twice, deep": (b'{"entries": [{"layer": 1, "l\\u0061yer": 2}]}', "key 'layer' occurs twice"),
    "empty": (b"", "is empty"),
    "a list": ([], "the document is []; expected an object"),
    "no entries": ({"model": {}}, "entries is nothing; expected a list"),
    "entries an object": ({"entries": {}}, "entries is {}"),
    "entry a number": ({"entries": [1]}, "entry 0 is 1; expected an object"),
    "entries empty": ({"entries": []}, "no routed expert tensor"),
    "model a list": ({"model": [], "entries": []}, "model is []"),
    "expert count": (document(whole(0), expert_count="8"), "model.expert_count is '8'"),
    "top-k zero": (document(whole(0), expert_used_count=0), "model.expert_used_count is 0"),
    "top-k too large": (
        document(whole(0), expert_used_count=9),
        "expert_used_count is 9; expected an integer from 1 to 8",
    ),
    "only shared": (document([entry(0, "ffn_up_shexp", 9)]), "no routed expert tensor"),
}


@pytest.mark.parametrize(("content", "message"), BAD_DOCUMENTS.values(), ids=BAD_DOCUMENTS.keys())
def test_a_bad_document(tmp_path: Path, content: Any, message: str) -> None:
    with refused(Malformed, message):
        read_manifest(write(tmp_path, content))


def test_no_manifest_there(tmp_path: Path) -> None:
    (tmp_path / "a" / "manifest.json").mkdir(parents=True)
    for kind, place, line in (
        (Missing, tmp_path, "no manifest.json in this folder"),
        (Missing, tmp_path / "nothing.json", "no such file"),
        (Unusable, tmp_path / "a", "is a directory"),
    ):
        with refused(kind, line, begins=f"{place}"):
            read_manifest(place)


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MANIFEST_BYTES", 10)
    with pytest.raises(TooLarge, match="a manifest has at most"):
        read_manifest(write(tmp_path, document(whole(0))))
