"""Files of torch are read without torch, and nothing in them is run."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import BadInput, Conflict, Malformed, TooLarge
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.sglang_pt import read_ranks
from flashmoe_sim.trace.source import Archive
from flashmoe_sim.trace.tensors import NotTensors, load_tensors
from tests.trace.recordings import Evil, Pickled, calls, expected, made, read, recorder, torch_zip


def loaded(content: bytes) -> Any:
    return load_tensors(Archive(content, "file"), "archive/data.pkl")


def test_what_torch_itself_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    document = recorder(made())
    for record in document["records"]:
        record["topk_ids_of_layer"] = torch.from_numpy(record["topk_ids_of_layer"])
    path = tmp_path / "a.pt"
    torch.save(document, path)
    assert calls(load_trace(path)) == expected([made()])


def test_physical_experts_are_mapped_back(tmp_path: Path) -> None:
    one = made()
    physical = np.stack([np.random.default_rng(layer).permutation(12) for layer in range(3)])
    trace = read(tmp_path, torch_zip(recorder(one, physical=physical)))
    assert calls(trace) == expected([one])
    document = recorder(one, physical=physical)
    document["last_physical_to_logical_map"] = physical[:, :4].copy()
    with pytest.raises(Malformed, match=r"physical expert 1[01], but the map has 4"):
        read(tmp_path, torch_zip(document))


def test_padding_idle_passes_and_layers_that_do_not_route(tmp_path: Path) -> None:
    one = made()
    document = recorder(one, padding=3)
    for record in document["records"]:
        dense = np.full((1, *record["topk_ids_of_layer"].shape[1:]), -1, np.int32)
        record["topk_ids_of_layer"] = np.ascontiguousarray(np.concatenate([dense, record["topk_ids_of_layer"]]))
    idle = dict(document["records"][0], forward_mode=4, forward_pass_id=40, topk_ids_of_layer=None)
    document["records"] = [*reversed(document["records"]), idle]
    assert calls(read(tmp_path, torch_zip(document))) == expected([one], layers=[1, 2, 3])


def test_a_mixed_pass_has_no_phase(tmp_path: Path) -> None:
    document = recorder(made())
    document["records"][0]["forward_mode"] = 3
    assert read(tmp_path, torch_zip(document)).phase[0] == 0


def test_ranks_are_joined_pass_by_pass(tmp_path: Path) -> None:
    """Tensor-parallel ranks repeat the same tokens; others, of the same length here, have tokens of their own."""
    one, other = made(1), made(2)
    paths = [tmp_path / f"{rank}.pt" for rank in range(3)]
    for path, held in zip(paths, (one, one, other), strict=True):
        path.write_bytes(torch_zip(recorder(held)))
    assert calls(read_ranks(paths[:2])) == expected([one])
    both = [np.concatenate([a, b]) for a, b in zip(one.steps, other.steps, strict=True)]
    found = calls(read_ranks(paths))
    assert [call[4] for call in found] == [step[:, layer].ravel().tolist() for step in both for layer in range(3)]
    assert main(["trace", "import", *map(str, paths), "--out", str(tmp_path / "all.parquet")]) == 0
    assert calls(load_trace(tmp_path / "all.parquet")) == found
    paths[1].write_bytes(torch_zip(recorder(made(layers=2))))
    with pytest.raises(Conflict, match="records have different numbers of layers"):
        read_ranks(paths)


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({"logical_count": [1]}, "a recording of counts .* `sim trace synth`"),
        ({"state_dict": 1}, "a file of torch without records"),
        ([1, 2], "a file of torch without records"),
        ({"records": []}, "the capture was empty"),
        (
            {"records": [{"topk_ids_of_layer": 3}]},
            r"topk_ids_of_layer is 3; expected ids \[layers, tokens, k\]",
        ),
        ({"records": [{"topk_ids_of_layer": np.zeros((2, 2), np.int32)}]}, r"topk_ids_of_layer is \[2, 2\]"),
    ],
)
def test_other_files_of_torch(tmp_path: Path, document: Any, found: str) -> None:
    with pytest.raises(BadInput, match=found):
        read(tmp_path, torch_zip(document))


def test_mixed_top_k(tmp_path: Path) -> None:
    document = recorder(made())
    document["records"][0]["topk_ids_of_layer"][1, 2, 2] = -1
    with pytest.raises(Malformed, match=r"pass 0, layer 1: a token has fewer than 3 experts \(mixed top-k\)"):
        read(tmp_path, torch_zip(document))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_pickle_is_run(tmp_path: Path, protocol: int) -> None:
    witness = tmp_path / "witness"
    pickled = pickle.dumps({"records": [Evil(f"touch {witness}")]}, protocol=protocol)
    with pytest.raises(Malformed, match=r"a pickle (that calls (posix|nt)\.system|with \w+).*: it is not run"):
        read(tmp_path, torch_zip(None, pickled=pickled))
    assert not witness.exists()
    pickle.loads(pickled)  # the file would have done it
    assert witness.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"cbuiltins\neval\nX\x03\x00\x00\x001+1\x85R.",
        b"ctorch._utils\n_rebuild_tensor_v2\nN\x85R.",
        b"ccollections\nOrderedDict\n](K\x01K\x02e\x85R.",
        b"c__main__\nEvil\n)\x81.",
        b"(ios\nsystem\n.",
        b"cos\nsystem\nX\x01\x00\x00\x00a\x85R0.",
        b"X\xff\xff\xff\xffabc.",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
        b"r\xff\xff\xff\x7f.",
        b"h\x05.",
        b"R.",
        b"t.",
        b"K\x01K\x02s.",
        b"]K\x01\x8c\x01au.",
        b"",
        b"K\x01",
        b"\x80\x02}}K\x01s.",
    ],
)
def test_broken_and_foreign_pickles(body: bytes) -> None:
    with pytest.raises(NotTensors):
        loaded(torch_zip(None, pickled=body))


def test_a_pickle_of_any_bytes_is_read_or_refused() -> None:
    rng = np.random.default_rng(0)
    good = zipfile.ZipFile(io.BytesIO(torch_zip(recorder(made())))).read("archive/data.pkl")
    for _ in range(300):
        damaged = bytearray(good)
        for at in rng.integers(0, len(good), 3):
            damaged[at] = rng.integers(0, 256)
        with suppress(NotTensors):
            loaded(torch_zip(recorder(made()), pickled=bytes(damaged)))


@pytest.mark.parametrize("shape", [(3,), (1 << 40,), (2, 2), (1 << 20, 1 << 20)])
@pytest.mark.parametrize("stride", [1, 0, 1 << 62])
def test_tensors_stay_within_their_storage(shape: tuple[int, ...], stride: int) -> None:
    writer = Pickled()

    def number(value: int) -> bytes:
        return b"\x8a\x09" + struct.pack("<q", value) + b"\0"

    storage = (
        b"(" + writer.text("storage") + b"ctorch\nIntStorage\n" + writer.text("0") + writer.text("cpu") + b"K\x02tQ"
    )
    sizes = b"(" + b"".join(map(number, shape)) + b"t"
    strides = b"(" + number(stride) * len(shape) + b"t"
    body = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0" + sizes + strides + b"\x89NtR."
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", body)
        archive.writestr("archive/data/0", bytes(8))
    if stride == 0 and shape in ((3,), (2, 2)):
        assert loaded(stream.getvalue()).shape == shape
        return
    with pytest.raises(NotTensors, match=r"reaches beyond its storage|more than is stored"):
        loaded(stream.getvalue())


def test_an_archive_that_unpacks_to_much_more_than_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashmoe_sim.trace.source.SMALL_BYTES", 1 << 16)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10 << 20))
    with pytest.raises(TooLarge, match=r"'archive/data\.pkl' unpacks to more than 100 times the file's size"):
        read(tmp_path, stream.getvalue())


def test_damaged_archives(tmp_path: Path) -> None:
    content = torch_zip(recorder(made()))
    for damaged in (content[:-30], content[:200], content.replace(b"records", b"rEcords")):
        with pytest.raises(Malformed, match="damaged zip archive"):
            read(tmp_path, damaged)
