"""`--online`: models of repositories that nothing here knows, from a double of Hugging Face's hub; and nothing else."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry import load
from flashmoe_sim.geometry.load import load_model, may_be_online
from flashmoe_sim.geometry.no_model import Place, place_of
from flashmoe_sim.io import fetch
from flashmoe_sim.io.errors import BadInput, Incomplete, Malformed, Missing, SimError, TooLarge, UnknownName, Unusable
from native_bridge.cli.main import main
from tests.geometry.conftest import gguf, key, tensor, text
from tests.geometry.hub_double import Hub, serving
from tests.geometry.test_transformers_config import LLAMA, QWEN3
from tests.support import document, printed_by, refusal, refused

PC = "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + nvme-gen4 + linux"
Q4_K, Q6_K, F32 = 12, 14, 0
NEW = {**QWEN3, "hidden_size": 1792, "num_hidden_layers": 40}  # no known model's


def model_file(*, tokens: int = 50, layers: int = 24, type_number: int = Q4_K, **split: int) -> bytes:
    """The header of a model's GGUF file, as its download begins: 64 experts, 8 a token; weights are not there.

    tokens: of the vocabulary, of 1,000 letters each, which decide how long the header is.
    """
    numbers = {
        "block_count": layers,
        "embedding_length": 2048,
        "expert_count": 64,
        "expert_used_count": 8,
        "attention.head_count": 16,
        "attention.head_count_kv": 4,
        "attention.key_length": 128,
        "attention.value_length": 128,
    }
    keys = [
        key("general.architecture", 8, text("qwen3moe")),
        key("general.name", 8, text("Wonder")),
        *(key(f"qwen3moe.{name}", 4, struct.pack("<I", value)) for name, value in numbers.items()),
        *(key(f"split.{name.replace('_', '.')}", 4, struct.pack("<I", value)) for name, value in split.items()),
        key("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, tokens) + text("x" * 1000) * tokens),
    ]
    return gguf(keys, tensors_of(range(layers), type_number))


def tensors_of(layers: range, type_number: int = Q4_K) -> list[bytes]:
    """The experts of some layers, and the embedding and the output with the first."""
    sizes = {"ffn_gate_exps": (2048, 768, 64), "ffn_up_exps": (2048, 768, 64), "ffn_down_exps": (768, 2048, 64)}
    found = [(f"blk.{layer}.{family}.weight", ne) for layer in layers for family, ne in sizes.items()]
    if layers.start == 0:
        found += [("token_embd.weight", (2048, 32000)), ("output.weight", (2048, 32000))]
    listed, offset = [], 0
    block_bytes = {Q4_K: 144, Q6_K: 210}[type_number]
    for name, ne in found:
        listed.append(tensor(name, ne, type_number, offset))
        weights = 1
        for length in ne:
            weights *= length
        offset += -(-weights // 256 * block_bytes // 32) * 32
    return listed


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(load, "read_online", {})
    monkeypatch.setenv("no_proxy", "*")
    with serving(Hub()) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def two_files(layers: int = 24) -> dict[str, bytes]:
    return {
        "README.md": b"#",
        "mmproj-F16.gguf": b"GGUF",
        "imatrix.gguf": b"GGUF",
        "Wonder-Q4_K_M.gguf": model_file(layers=layers),
        "Wonder-Q6_K.gguf": model_file(type_number=Q6_K),
    }


def test_a_file_by_its_quantization_is_read_as_if_it_were_here(hub: Hub, tmp_path: Path) -> None:
    hub.files["someone/Wonder-GGUF"] = two_files()
    local = tmp_path / "Wonder-Q6_K.gguf"
    local.write_bytes(two_files()["Wonder-Q6_K.gguf"])
    here, found = load_model(local), load_model("someone/Wonder-GGUF:q6_k", online=True)
    for name in ("name", "layers", "top_k", "arch", "quant", "dense_bytes", "attention", "widths", "graph", "width"):
        assert getattr(found, name) == getattr(here, name)
    assert found.source == f"GGUF header {hub.url}/someone/Wonder-GGUF/resolve/main/Wonder-Q6_K.gguf"
    assert (found.repository, found.gguf, found.notes) == ("someone/Wonder-GGUF:Q6_K", "", ())
    assert [path for path, _ in hub.asked] == [
        "/api/models/someone/Wonder-GGUF/tree/main",
        "/someone/Wonder-GGUF/resolve/main/Wonder-Q6_K.gguf",
    ]


def test_only_as_much_of_a_file_as_its_header_takes(hub: Hub) -> None:
    header = model_file(tokens=2_000)  # 2 MB
    hub.files["someone/Wonder-GGUF"] = {"Wonder-Q4_K_M.gguf": header + bytes(20 << 20)}
    found = load_model("someone/Wonder-GGUF", online=True)
    assert found.routed_bytes == 24 * 64 * 3 * 2048 * 768 // 256 * 144
    assert [part for _, part in hub.asked] == ["", "bytes=0-262143", "bytes=262144-1310719", "bytes=1310720-5505023"]
    assert hub.sent_bytes < 6 << 20


def test_all_headers_of_a_split_model_in_a_folder(hub: Hub) -> None:
    name = "UD-Q4_K_XL/Wonder-UD-Q4_K_XL-{:05}-of-00002.gguf"
    counts = {"count": 2, "tensors_count": 74}
    first = gguf_of_split(model_file(no=0, **counts), range(12))
    second = gguf(
        [key(f"split.{n}", 4, struct.pack("<I", v)) for n, v in (("no", 1), ("count", 2), ("tensors.count", 74))],
        tensors_of(range(12, 24)),
    )
    hub.files["unsloth/Wonder-GGUF"] = {
        name.format(1): first,
        name.format(2): second,
        "BF16/Wonder-BF16-00001-of-00001.gguf": b"",
    }
    for spec in (
        "unsloth/Wonder-GGUF:UD-Q4_K_XL",
        "unsloth/Wonder-GGUF:Q4_K_XL",  # Unsloth's
        f"https://huggingface.co/unsloth/Wonder-GGUF/blob/main/{name.format(2)}",
        f"unsloth/Wonder-GGUF/{name.format(1)}",
        "https://huggingface.co/unsloth/Wonder-GGUF/tree/main/UD-Q4_K_XL",
    ):
        found = load_model(spec, online=True)
        assert len(found.layers) == 24
        assert found.repository == "unsloth/Wonder-GGUF:UD-Q4_K_XL"


def gguf_of_split(whole: bytes, layers: range) -> bytes:
    """The file with the tensors of these layers only."""
    listed = b"".join(tensors_of(range(24)))
    own = tensors_of(layers)
    at = whole.index(listed)
    head = whole[:8] + struct.pack("<Q", len(own)) + whole[16:at] + b"".join(own)
    return head + bytes(-len(head) % 32)


def test_a_config_with_the_bytes_of_its_weights(hub: Hub) -> None:
    mlx = {**NEW, "quantization": {"bits": 4, "group_size": 64}}
    weights = {"model-00001-of-00002.safetensors": b"", "model-00002-of-00002.safetensors": b""}
    hub.sizes |= {"model-00001-of-00002.safetensors": 5_000_000_000, "model-00002-of-00002.safetensors": 4_000_000_000}
    hub.files["someone/Wonder"] = {"config.json": json.dumps(NEW).encode()}
    hub.files["someone/Wonder-4bit"] = {"config.json": json.dumps(mlx).encode(), **weights}
    plain, packed = (load_model(f"someone/{name}", online=True) for name in ("Wonder:q4_k_m", "Wonder-4bit"))
    assert (plain.name, plain.quant, len(plain.layers)) == ("someone/Wonder/config.json:q4_k_m", "q4_k_m", 40)
    assert f"{hub.url}/someone/Wonder/resolve/main/config.json is of no known model" in plain.notes[-1]
    assert "/tmp" not in " ".join((plain.source, *plain.notes, packed.source, *packed.notes))
    assert (packed.format, packed.repository) == ("mlx", "someone/Wonder-4bit")
    assert packed.routed_bytes + (packed.dense_bytes or 0) + packed.unread_bytes == pytest.approx(9e9, rel=0.001)
    assert load_model("someone/Wonder@9GB", online=True).name == "someone/Wonder/config.json@9GB"


def test_what_is_known_is_not_looked_for(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for spec in ("unsloth/Qwen3-30B-A3B-GGUF:UD-Q4_K_XL", "gpt-oss-120b", "Qwen/Qwen3-30B-A3B"):
        assert load_model(spec, online=True) == load_model(spec)
        printed_by(capsys, "model", "show", spec, "--online")
    assert hub.asked == []


def test_no_network_without_being_asked(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.files["someone/Wonder-GGUF"] = two_files()

    def connect(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for arguments in (
        ["recommend", "someone/Wonder-GGUF:Q4_K_M", "--machine", PC],
        ["compare", "someone/Wonder-GGUF:Q4_K_M", "--machine", PC],
        ["model", "show", "someone/Wonder-GGUF:Q4_K_M"],
        ["predict", "--model", "someone/Wonder-GGUF:Q4_K_M", "--machine", PC, "--hit-rate", "50%"],
    ):
        assert "--online reads its header on Hugging Face" in refusal(capsys, *arguments)
    with refused(UnknownName, "--online reads its header"):
        load_model("someone/Wonder-GGUF:Q4_K_M")
    assert hub.asked == []


def test_commands_go_on_with_it(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files["someone/Wonder-GGUF"] = two_files(layers=4)
    spec = "someone/Wonder-GGUF:Q4_K_M"
    assert main(["recommend", spec, "--machine", PC, "--online"]) == 0
    screen = capsys.readouterr()
    assert screen.err.startswith(f"sim: {spec}: read ")
    assert f"llama-server -hf {spec} -c 4096" in screen.out
    assert "-hf: downloads " in screen.out
    found = document(capsys, "compare", spec, "--machine", PC, "--system", "placed", "--online")
    assert found["rows"]
    assert document(capsys, "model", "show", spec, "--online")["identity"]["source"].endswith("Wonder-Q4_K_M.gguf")
    assert len(hub.asked) == 2  # once a process
    both = f"{spec},gpt-oss-20b"
    table = document(capsys, "recommend", "--model", both, "--system", "placed", "--machine", PC, "--online")
    assert [row["model"] for row in table["rows"]] == ["Wonder", "gpt-oss-20b:mxfp4"]


def test_which_files_there_are(hub: Hub) -> None:
    hub.files["someone/Wonder-GGUF"] = {**two_files(), "odd.gguf": b"GGUF"}
    hub.sizes |= {"Wonder-Q4_K_M.gguf": 21_200_000_000, "Wonder-Q6_K.gguf": 28_400_000_000, "odd.gguf": 10**9}
    has = "Q4_K_M (21.2 GB), Q6_K (28.4 GB), odd.gguf (1.0 GB); name one, such as someone/Wonder-GGUF:Q4_K_M"
    with refused(Incomplete, begins=f"someone/Wonder-GGUF: has {has}"):
        load_model("someone/Wonder-GGUF", online=True)
    with refused(UnknownName, f"no file is named so; someone/Wonder-GGUF has {has}"):
        load_model("someone/Wonder-GGUF:Q5_K_M", online=True)
    with refused(Incomplete, "has Q4_K_M"):
        load_model("someone/Wonder-GGUF@21.2GB", online=True)


@pytest.mark.parametrize(
    ("files", "kind", "message"),
    [
        ({}, BadInput, "has neither a GGUF file nor a config.json"),
        ({"config.json": json.dumps(LLAMA).encode()}, BadInput, "not a mixture-of-experts model"),
        ({"config.json": b"{"}, Malformed, "/resolve/main/config.json: not JSON"),
        ({"config.json": b'{"do_sample": true}'}, BadInput, "is settings of generation"),
        ({"config.json": b" " * (5 << 20)}, TooLarge, "has more than 4 MiB"),
        ({"a.gguf": b"<html>"}, Malformed, "/resolve/main/a.gguf"),
        ({"a.gguf": model_file()[:9000]}, Malformed, "/resolve/main/a.gguf: at byte"),
        ({"a-00001-of-00002.gguf": model_file(no=0, count=2)}, Missing, "1 of the model's 2 files are missing"),
    ],
)
def test_repositories_without_a_model(files: dict[str, bytes], kind: type[BadInput], message: str, hub: Hub) -> None:
    hub.files["a/b"] = files
    with refused(kind, message):
        load_model("a/b", online=True)


LIST, FILE = "/api/models/a/b/tree/main", "/a/b/resolve/main/a-Q4_K_M.gguf"


@pytest.mark.parametrize("at", [LIST, FILE])
@pytest.mark.parametrize(
    ("status", "word", "kind", "message"),
    [
        (401, "GatedRepo", Unusable, "its owner shows it only to whom he lets in"),
        (403, "GatedRepo", Unusable, "its owner shows it only to whom he lets in"),
        (401, "RepoNotFound", Missing, "is not there, or not public (401)"),
        (404, "EntryNotFound", Missing, "is not there (404)"),
        (429, "", SimError, "wants fewer questions (429)"),
        (500, "", SimError, "the server answers 500 Internal Server Error"),
    ],
)
def test_what_the_hub_refuses(at: str, status: int, word: str, kind: type[SimError], message: str, hub: Hub) -> None:
    hub.files["a/b"] = {"a-Q4_K_M.gguf": model_file()}
    hub.refuses[at] = status, word
    with pytest.raises(kind) as error:
        load_model("a/b", online=True)
    assert str(error.value).startswith(f"{hub.url}{at}")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_redirects(hub: Hub) -> None:
    hub.files["a/b"] = {"a-Q4_K_M.gguf": model_file()}
    hub.files["cdn/x"] = {"blob": model_file()}
    hub.moved[FILE] = "/cdn/x/resolve/main/blob"
    assert load_model("a/b", online=True).name == "Wonder"
    assert hub.asked[-1] == ("/cdn/x/resolve/main/blob", "bytes=0-262143")
    load.read_online.clear()
    hub.moved[FILE] = FILE
    with refused(Unusable, "leads from address to address without end"):
        load_model("a/b", online=True)
    hub.moved |= {FILE: "/1"} | {f"/{number}": f"/{number + 1}" for number in range(1, 20)}
    with refused(Unusable, "leads from address to address without end"):
        load_model("a/b", online=True)
    hub.moved[FILE] = "file:///etc/passwd"
    with refused(Unusable, "or to one that is not HTTP"):
        load_model("a/b", online=True)


def test_an_encrypted_address_does_not_lead_to_a_plain_one() -> None:
    from urllib.request import Request

    with refused(Unusable, "leads to an address without encryption"):
        fetch._SecureRedirects().redirect_request(Request("https://a/b"), None, 302, "", {}, "http://a/c")


def test_a_server_that_does_not_answer_in_time(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files["a/b"] = {"a-Q4_K_M.gguf": model_file()}
    hub.drips_s = 0.05
    monkeypatch.setattr(fetch, "WHOLE_S", 0.3)
    with pytest.raises(SimError, match="did not answer in time"):
        load_model("a/b", online=True)
    monkeypatch.setattr(fetch, "WHOLE_S", 60.0)
    monkeypatch.setattr(fetch, "SILENT_S", 0.2)
    hub.drips_s = 0.6
    with pytest.raises(SimError, match="did not answer in time"):
        load_model("a/b", online=True)


def test_a_server_that_sends_whole_files_only(hub: Hub) -> None:
    hub.ranged = False
    hub.files["a/b"] = {"a-Q4_K_M.gguf": model_file() + bytes(1 << 20)}
    assert load_model("a/b", online=True).name == "Wonder"  # of which the beginning is enough
    hub.files["a/c"] = {"a-Q4_K_M.gguf": model_file(tokens=500) + bytes(1 << 20)}
    with refused(Unusable, "sends whole files only"):
        load_model("a/c", online=True)


def test_never_more_than_a_bounded_number_of_bytes(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashmoe_sim.geometry.online.PARTS_BYTES", (1 << 10, 1 << 10))
    hub.files["a/b"] = {"a-Q4_K_M.gguf": model_file() + bytes(1 << 20)}
    with refused(TooLarge, "its header has more than"):
        load_model("a/b", online=True)
    assert hub.sent_bytes < 4 << 10
    monkeypatch.setattr(fetch, "MOST_BYTES", 3 << 10)
    monkeypatch.setattr("flashmoe_sim.geometry.online.MOST_LIST_BYTES", 1 << 10)
    monkeypatch.setattr("flashmoe_sim.geometry.online.PARTS_BYTES", (1 << 10,) * 9)
    with refused(TooLarge, "were read, and its header is not complete"):
        load_model("a/b", online=True)


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(SimError, match=r"cannot be reached \(Connection refused\)"):
            load_model("a/b", online=True)
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    with refused(Malformed, "is no address of a server"):
        load_model("a/b", online=True)


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("a/b", {}),
        (" hf.co/a/b ", {}),
        ("hf://a/b:Q4_K_M", {"tag": "Q4_K_M"}),
        ("a/b@12GB", {"size": "12GB"}),
        ("https://huggingface.co/a/b?show_file_info=x.gguf", {}),
        ("https://huggingface.co/a/b/resolve/main/x/y.gguf?download=true", {"file": "x/y.gguf"}),
        ("huggingface.co/a/b/tree/refs", {"revision": "refs"}),
        ("a/b/x.gguf", {"file": "x.gguf"}),
    ],
)
def test_texts_that_name_a_repository(spec: str, place: dict[str, Any]) -> None:
    assert place_of(spec) == Place("a/b", **place)


@pytest.mark.parametrize(
    "spec",
    [
        *(
            "a",
            "./a/b",
            "../a/b",
            "/a/b",
            "a/../b",
            "a/b/../c",
            "C:\\a\\b",
            "a/b.gguf",
            "a/t.jsonl",
            "models/x",
            "a\0/b",
        ),
        *("https://ollama.com/library/x", "ai/gpt-oss", "https://modelscope.cn/models/a/b", "a/.b", "~/a", "a/b c"),
    ],
)
def test_texts_that_name_none(spec: str) -> None:
    assert place_of(spec) is None
    assert not may_be_online(spec)


def test_a_file_that_is_here_is_no_repository(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    Path("a/b").write_bytes(b"{")
    assert "--online" not in refusal(capsys, "model", "show", "a/b", "--online")
    assert hub.asked == []
