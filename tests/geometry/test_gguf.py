"""GGUF headers: hand-made files with sizes worked out here, and files that are damaged."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from flashmoe_sim.geometry import load_model, read_gguf
from flashmoe_sim.io.errors import BadInput, Conflict, Malformed, Missing, Unsupported
from tests.geometry.conftest import gguf, key, tensor, text
from tests.support import refused

EXPERT_BYTES, ROUTER_BYTES = 3 * 8 * 2 * 4, 8 * 4
DATA_BYTES = 4 * EXPERT_BYTES + ROUTER_BYTES
U32, STRING, ARRAY, U64 = 4, 8, 9, 10


def array(kind: int, count: int, content: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + content


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_small_model(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    """4 experts of three 8 x 2 matrices in F32: 192 bytes each; the router's 32 bytes are dense."""
    model = read_gguf(save(tmp_path / "small.gguf", gguf(moe_keys, moe_tensors, data_bytes=DATA_BYTES)))
    assert (model.name, model.arch, model.quant, model.top_k) == ("Small", "qwen3moe", "F32", 2)
    assert model.layers[0].n_experts == 4
    assert dict(model.layers[0].family_bytes) == {"ffn_gate_exps": 64, "ffn_up_exps": 64, "ffn_down_exps": 64}
    assert model.routed_bytes == 4 * EXPERT_BYTES == 768
    assert model.dense_bytes == ROUTER_BYTES
    assert model.notes == ()


def test_version_2_and_every_kind_of_value(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    numbers = [("B", 0), ("b", 1), ("H", 2), ("h", 3), ("I", 4), ("i", 5), ("f", 6), ("?", 7), ("Q", 10), ("q", 11)]
    keys = [key(f"k.{kind}", kind, struct.pack("<" + code, 1)) for code, kind in numbers]
    keys += [key(f"a.{kind}", ARRAY, array(kind, 3, struct.pack("<3" + code, 1, 1, 1))) for code, kind in numbers]
    keys.append(key("words", ARRAY, array(STRING, 2, text("ab") + text(""))))
    keys.append(key("nested", ARRAY, array(ARRAY, 2, array(U32, 1, bytes(4)) + array(STRING, 1, text("x")))))
    content = gguf(keys + moe_keys, moe_tensors, version=2, data_bytes=DATA_BYTES)
    assert read_gguf(save(tmp_path / "a.gguf", content)).routed_bytes == 768


def test_a_name_from_the_file_and_unknown_top_k(tmp_path: Path, moe_tensors: list[bytes]) -> None:
    keys = [key("general.architecture", STRING, text("x"))]
    model = read_gguf(save(tmp_path / "mine.gguf", gguf(keys, moe_tensors, data_bytes=DATA_BYTES)))
    assert (model.name, model.top_k) == ("mine", 0)
    assert any("expert_used_count is missing" in note for note in model.notes)


def test_expert_counts_may_differ_from_the_key(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    keys = [*moe_keys[:2], key("qwen3moe.expert_count", U32, struct.pack("<I", 8)), moe_keys[3]]
    model = read_gguf(save(tmp_path / "a.gguf", gguf(keys, moe_tensors, data_bytes=DATA_BYTES)))
    assert model.layers[0].n_experts == 4
    assert model.notes == ("qwen3moe.expert_count is 8; the tensors' own expert counts are used",)


def test_drafting_layers_are_noted(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    one = struct.pack("<I", 1)
    keys = [*moe_keys, key("qwen3moe.nextn_predict_layers", U32, one), key("qwen3moe.block_count", U32, one)]
    assert read_gguf(save(tmp_path / "a.gguf", gguf(keys, moe_tensors, data_bytes=DATA_BYTES))).notes == ()
    last = [
        tensor(f"blk.1.ffn_{family}_exps.weight", ne, 0)
        for family, ne in (("gate", (8, 2, 4)), ("up", (8, 2, 4)), ("down", (2, 8, 4)))
    ]
    keys[-1] = key("qwen3moe.block_count", U32, struct.pack("<I", 2))
    model = read_gguf(save(tmp_path / "b.gguf", gguf(keys, moe_tensors + last, data_bytes=DATA_BYTES)))
    assert model.notes == ("layers 1 only draft tokens ahead; they are counted here like the others",)


def test_a_dense_tensor_of_unknown_type(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    tensors = [*moe_tensors, tensor("output.weight", (256, 2), 150)]
    model = read_gguf(save(tmp_path / "a.gguf", gguf(moe_keys, tensors, data_bytes=DATA_BYTES)))
    assert model.dense_bytes is None
    assert model.routed_bytes == 768
    assert "1 dense tensors have a type unknown to this program: dense bytes not known" in model.notes


HUGE = struct.pack("<Q", 2**60)
GATE = "blk.0.ffn_gate_exps.weight"
DAMAGED: dict[str, tuple[bytes, str]] = {
    "wrong magic": (b"GGML" + bytes(100), "at byte 0: begins with b'GGML'; expected b'GGUF'"),
    "three bytes": (b"GGU", "at byte 0"),
    "magic only": (b"GGUF", "at byte 4: 4 bytes expected, but the file ends at byte 4"),
    "version 1": (gguf([], [], version=1), "at byte 4: GGUF version 1; this program reads 2 and 3"),
    "version 4": (gguf([], [], version=4), "at byte 4: GGUF version 4"),
    "2^60 tensors": (b"GGUF" + struct.pack("<I", 3) + HUGE + bytes(8), "at byte 8: 1152921504606846976 tensors"),
    "2^60 keys": (b"GGUF" + struct.pack("<I", 3) + bytes(8) + HUGE, "at byte 16: 1152921504606846976 keys"),
    "key name of 2^60": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + HUGE + bytes(40),
        "at byte 24: the name of a key has 1152921504606846976 bytes",
    ),
    "string of 2^60": (gguf([key("k", STRING, HUGE)], []), "1152921504606846976 bytes expected"),
    "value type 13": (gguf([key("k", 13, bytes(8))], []), "at byte 33: value type 13; expected 0 to 12"),
    "array of type 99": (gguf([key("k", ARRAY, array(99, 1))], []), "array of type 99"),
    "array of 2^60 numbers": (
        gguf([key("k", ARRAY, array(U64, 2**60))], []),
        "1152921504606846976 numbers in an array",
    ),
    "array of 2^60 strings": (gguf([key("k", ARRAY, array(STRING, 2**60))], []), "strings in an array"),
    "string in an array past the end": (
        gguf([key("k", ARRAY, array(STRING, 2, text("a") + struct.pack("<Q", 2**63 + 5)))], []),
        "an array of 2 strings runs past the end of the file",
    ),
    "arrays without end": (
        gguf([key("k", ARRAY, array(ARRAY, 1) * 50 + array(U32, 0))], []),
        "arrays nested deeper than 4",
    ),
    "no dimensions": (gguf([], [text(GATE) + bytes(60)]), "has 0 dimensions; expected 1 to 4"),
    "five dimensions": (gguf([], [tensor(GATE, (1, 1, 1, 1, 1), 0)]), "has 5 dimensions"),
    "a dimension of 0": (gguf([], [tensor(GATE, (8, 0, 4), 0)]), "has dimensions [8, 0, 4]; the file is damaged"),
    "dimensions overflow": (gguf([], [tensor(GATE, (2**40, 2**40), 0)]), "has dimensions [1099511627776"),
    "half a block": (gguf([], [tensor(GATE, (100, 2, 4), 12)]), "not a whole number of Q4_K blocks"),
    "a tensor twice": (gguf([], [tensor(GATE, (8, 2, 4), 0)] * 2), f"a second tensor {GATE!r}"),
    "weights cut off": (gguf([], [tensor(GATE, (8, 2, 4), 0)], data_bytes=255), "its tensors reach to byte"),
    "offset of 2^60": (
        gguf([], [tensor(GATE, (8, 2, 4), 0, 2**60)], data_bytes=256),
        "is at byte 1152921504606846976 of the weights, which take 256; the file is damaged",
    ),
    "alignment 0": (
        gguf([key("general.alignment", U32, bytes(4))], [tensor("a", (8,), 0)], data_bytes=32),
        "general.alignment is 0",
    ),
    "two dimensions": (gguf([], [tensor(GATE, (8, 2), 0)], data_bytes=64), "has dimensions [8, 2]; expected three"),
    "experts of unknown type": (gguf([], [tensor(GATE, (8, 2, 4), 150)]), "has ggml type 150"),
    "experts differ": (
        gguf([], [tensor(GATE, (8, 2, 4), 0), tensor("blk.0.ffn_up_exps.weight", (8, 2, 3), 0)], data_bytes=256),
        "holds 3 experts, but layer 0 has 4",
    ),
    "no experts": (
        gguf(
            [key("general.architecture", STRING, text("llama"))],
            [tensor("blk.0.ffn_up.weight", (8,), 0)],
            data_bytes=32,
        ),
        "not a mixture-of-experts model",
    ),
    "old layout": (
        gguf(
            [key("general.architecture", STRING, text("llama")), key("llama.expert_count", U32, struct.pack("<I", 8))],
            [tensor("blk.0.ffn_up.0.weight", (8,), 0)],
            data_bytes=32,
        ),
        "the experts are stored one by one, an old layout",
    ),
}


SOUND = {"experts of unknown type", "no experts", "old layout"}  # but of no use here


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    content, message = DAMAGED[name]
    path = save(tmp_path / "bad.gguf", content)
    with refused(Unsupported if name in SOUND else Malformed, message, begins=f"{path}"):
        read_gguf(path)


def test_top_k_out_of_range(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    keys = [*moe_keys[:3], key("qwen3moe.expert_used_count", U32, struct.pack("<I", 5))]
    with pytest.raises(Malformed, match="expert_used_count is 5; expected 1 to 4"):
        read_gguf(save(tmp_path / "a.gguf", gguf(keys, moe_tensors, data_bytes=DATA_BYTES)))


def test_cut_anywhere_or_changed_anywhere(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    """Every prefix is refused; every changed byte gives a model or a one-line error, never another exception."""
    content = gguf([*moe_keys, key("w", ARRAY, array(STRING, 2, text("a") + text("b")))], moe_tensors)
    path = tmp_path / "a.gguf"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(Malformed):
            read_gguf(path)
    whole = content + bytes(DATA_BYTES)
    messages = []
    for at in range(len(content)):
        for value in (0, 1, 0x7F, 0xFF):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                read_gguf(path)
            except BadInput as error:
                messages.append(str(error))
    assert messages
    assert not [message for message in messages if "\n" in message]


def split(folder: Path, keys: list[bytes], tensors: list[list[bytes]], **changes: int) -> list[Path]:
    """A model split into one file per list of tensors, each with keys that give its place."""
    count = len(tensors)
    paths = []
    for number, part in enumerate(tensors):
        place = {"split.count": count, "split.no": number, "split.tensors.count": sum(map(len, tensors)), **changes}
        own = [key(name, U32, struct.pack("<I", value)) for name, value in place.items()]
        path = folder / f"m-{number + 1:05}-of-{count:05}.gguf"
        paths.append(save(path, gguf((keys if number == 0 else []) + own, part, data_bytes=DATA_BYTES)))
    return paths


def test_any_file_of_a_split_model_opens_all(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    paths = split(tmp_path, moe_keys, [[], moe_tensors[:2], moe_tensors[2:]])
    models = [read_gguf(path) for path in paths]
    assert models[0].layers == models[1].layers == models[2].layers
    assert models[1].routed_bytes == 768
    assert models[2].name == "Small"
    assert {model.gguf for model in models} == {str(paths[0])}


def test_all_missing_files_are_named(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    paths = split(tmp_path, moe_keys, [moe_tensors[:1], moe_tensors[1:2], moe_tensors[2:3], moe_tensors[3:]])
    paths[1].unlink()
    paths[2].unlink()
    with pytest.raises(Missing) as error:
        read_gguf(paths[3])
    assert str(error.value) == (
        f"{paths[3]}: 2 of the model's 4 files are missing (m-00002-of-00004.gguf, m-00003-of-00004.gguf), and each "
        "file lists only its own tensors; put them beside it; of each, the first 32 MiB are enough for `--model`"
    )


def test_split_files_under_wrong_names(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    paths = split(tmp_path, moe_keys, [moe_tensors[:2], moe_tensors[2:]])
    lone = tmp_path / "lone.gguf"
    lone.write_bytes(paths[0].read_bytes())
    with pytest.raises(Conflict, match=r"split\.count 2, but by its name it is file 1 of 1"):
        read_gguf(lone)
    paths[1].write_bytes(paths[0].read_bytes())
    with pytest.raises(Conflict, match=r"m-00002-of-00002\.gguf: split\.no is 0"):
        read_gguf(paths[0])
    beyond = tmp_path / "m-00007-of-00002.gguf"
    beyond.write_bytes(paths[0].read_bytes())
    with pytest.raises(Conflict, match="by its name it is file 7 of 2"):
        read_gguf(beyond)


def test_split_files_that_do_not_fit_together(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    with pytest.raises(Malformed, match="is in two of its files"):
        read_gguf(split(tmp_path, moe_keys, [moe_tensors, moe_tensors[:1]])[0])
    with pytest.raises(Malformed, match=r"4 tensors in its 2 files, but split\.tensors\.count is 9"):
        read_gguf(split(tmp_path, moe_keys, [moe_tensors[:2], moe_tensors[2:]], **{"split.tensors.count": 9})[0])


def test_the_first_bytes_of_a_download(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    """A header alone is a model, with a note; for what reads the weights, it is not."""
    whole = gguf(moe_keys, moe_tensors, data_bytes=DATA_BYTES)
    path = save(tmp_path / "m.gguf", whole)
    expected = load_model(path)
    data_begin = len(whole) - DATA_BYTES
    header = len(b"".join((b"GGUF", bytes(20), *moe_keys, *moe_tensors)))
    for length in (header, data_begin - 1, data_begin, data_begin + DATA_BYTES // 2, len(whole) - 1):
        save(path, whole[:length])
        model = load_model(path)
        assert model.notes == ("the weights are cut off: enough to simulate, not to run",)
        assert replace(model, notes=()) == expected
        with pytest.raises(
            Malformed, match=f"at byte {length}: the file ends, but its tensors reach to byte {len(whole)}"
        ):
            read_gguf(path)
    for length in (header // 2, header - 1):
        save(path, whole[:length])
        with pytest.raises(Malformed) as error:
            load_model(path)
        assert re.search(rf": at byte \d+: .* file ends at byte {length}; its header is cut", str(error.value))
        assert "get the first 32 MiB (curl -L -r 0-33554431 -o m.gguf URL)" in str(error.value)


def test_the_first_bytes_of_a_split_model(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    """The first file has keys alone, as llama.cpp can write it; the others are cut."""
    last = [tensor("blk.0.ffn_down_exps.weight", (2, 8, 4), 0), tensor("blk.0.ffn_gate_inp.weight", (8,), 0, 256)]
    paths = split(tmp_path, moe_keys, [[], moe_tensors[:2], last])
    expected = load_model(paths[0])
    for path in paths[1:]:
        save(path, path.read_bytes()[:-DATA_BYTES])
    for path in paths:
        assert replace(load_model(path), notes=(), source=expected.source) == expected
    assert load_model(paths[0]).notes == (
        "the weights in 2 of its 3 files are cut off: enough to simulate, not to run",
    )
