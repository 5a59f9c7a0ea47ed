"""What people write when they mean a model: the right one is taken, or one line asks; never a wrong one."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from flashmoe_sim.geometry.load import load_model, quantization_said
from flashmoe_sim.geometry.named import file_bytes, file_weights_b, named_model, named_models, size_hint
from flashmoe_sim.geometry.names import Asked, asked, means_model
from flashmoe_sim.io.errors import BadInput, Malformed, Missing, UnknownName
from flashmoe_sim.residency.workload import means_model_not_trace, names_model
from tests.support import refused

# Names as people wrote them in public threads, catalogues and file lists: `source_url` says where, and `model` and
# `quant` what a reader took each for; below them ways that were once mistaken. `taken`: what it is here, or `ask`.
NAMES = list(csv.DictReader((Path(__file__).parent / "names.csv").read_text("utf-8").splitlines()))


def taken(text: str) -> str:
    """The model and quantization that a text is taken for, or `ask`."""
    try:
        found = asked(text)
    except BadInput:
        return "ask"
    if found is None:
        return "ask"
    pruned = f"-{found.experts}e" if found.experts else ""
    return f"{found.model}{pruned}:{found.quant}".removesuffix(":")


# More of them. model and quant: what a reader took each for before the program did, by the table's names; no model if
# something has to be asked, as of dense ones. origin: where it stands, empty for one made up in the same manner.
PEOPLE = list(csv.DictReader((Path(__file__).parent / "people.csv").read_text("utf-8").splitlines()))


def verdict(row: dict[str, str]) -> str:
    """Whether people are understood, asked, or taken for meaning something else."""
    try:
        model = load_model(row["as_written"])
    except BadInput:
        return "asked"
    said = row["quant"] in ("", model.name.partition(":")[2])
    return "right" if model.base_name == row["model"] and said else "wrong"


def test_people_are_understood() -> None:
    outcomes = Counter(map(verdict, PEOPLE))
    assert [row["as_written"] for row in PEOPLE if verdict(row) == "wrong"] == []
    assert outcomes["right"] >= 207
    assert len(PEOPLE) == 312


@pytest.mark.parametrize("row", NAMES, ids=[row["as_written"] for row in NAMES])
def test_a_name_as_people_write_it(row: dict[str, str]) -> None:
    assert taken(row["as_written"]) == row["taken"]


@pytest.mark.parametrize("name", named_models())
def test_every_name_and_quantization_of_the_table_means_itself(name: str) -> None:
    model = named_models()[name]
    for known in (name, *model.aliases):
        assert taken(known) == name
    for quant in model.quants:
        assert load_model(f"{name}:{quant}") == named_model(f"{name}:{quant}")
        if quant != "vq3r":
            assert taken(f"someone/{name}-GGUF:{quant}") == f"{name}:{quant}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("deepseek-r1:8b", "8b is not the size of deepseek-r1, which has 671b"),
        ("deepseek-v2:latest", "16b is not the size of deepseek-v2, which has 236b"),
        ("glm-4.7:cloud", "is the copy on Ollama's servers of glm-4.7; give the model itself"),
        ("DeepSeek-R1-Distill-Llama-70B-Q4_K_M.gguf", "70b is not the size"),
        ("DeepSeek-R1-Distill-Q4_K_M.gguf", "is distilled from deepseek-r1"),
        ("NVIDIA-Nemotron-3-Nano-4B-BF16.gguf", "4b is not the size of nemotron-3-nano, which has 32b"),
        ("Qwen3-30B-A22B", "a22b does not belong to qwen3-30b-a3b"),
        ("mradermacher/gpt-oss-20b-REAP-i1-GGUF", "fewer experts, so of another size; give its config.json or a GGUF"),
        ("unsloth/gemma-4-26B-A4B-it-GGUF:mtp-gemma-4-26B-A4B-it.gguf", "is a part that only drafts tokens"),
        ("Ornith-1.5-35B-A3B-OptiQ-4bit-REAP-19B", "'optiq' beside mlx-4bit says that it is a mix of its own"),
        ("DeepSeek-V3-Medical-COT", "'medical cot' may say another than deepseek-v3"),
        ("GLM-4.6-Air", "'air' may say another"),
        ("mmproj-Qwen3.6-35B-A3B-F16.gguf", "is the file for images of qwen3.6-35b-a3b"),
        ("gpt-oss-20b-eagle3", "is a draft model"),
        ("Qwen_Qwen3.6-35B-A3B-imatrix.gguf", "is the importance matrix"),
        ("qwen3-30b-a3b or glm-4.6", "names several models, qwen3-30b-a3b and glm-4.6; give the one"),
        ("GLM-4.5-Q6_K-Q2_K-Q3_K.gguf", "names several quantizations, q6_k, q2_k, q3_k"),
        (
            "Qwen3.8-Flash-Next-Q4_K_XL-DN4.gguf",
            "'dn4' beside ud-q4_k_xl says that it is a mix of its own; give its size",
        ),
        ("x/Qwen3.5-397B-A17B-VQ-2.2bpw", "'vq' beside exl3-2.2bpw says that it is a mix of its own"),
        (
            "Kimi-K2.6-SmartQuant-V2.gguf",
            "'smartquant' is no known quantization; give its size, such as kimi-k2.5@578GB",
        ),
        ("MiniMax-M2-mini", "'mini' may say another than minimax-m2.1"),
        ("unsloth/Qwen3-30B-A3B-GGUF/imatrix_unsloth.gguf_file", "is the importance matrix of qwen3-30b-a3b"),
        ("glm-4.6-lora-q5_k_m.gguf", "is an adapter of glm-4.6"),
        ("GLM-4.7-Flash-Distill-Qwen", "is distilled from glm-4.7-flash"),
        ("Qwen2.5-GLM-4.7-Flash-Claude-Distill", "is distilled from glm-4.7-flash"),
        (
            "Qwen3-30B-A3B-Q4_K_M 24 GB",
            "has 18.6 GB, not 24GB; give qwen3-30b-a3b:q4_k_m, or qwen3-30b-a3b:q4_k_m@24GB",
        ),
        ("mlx-community/GLM-5.1", "of bits that its name does not say; give them, such as glm-5.1:mlx-4bit"),
    ],
)
def test_what_is_asked_for(text: str, line: str) -> None:
    with refused(UnknownName, line):
        load_model(text)


NO_FILE = "no such file, and no known model is named so; give its config.json or a GGUF file of it"
NOT_KNOWN = "no known model is named so: dense, or a mixture of experts that is not known here"
LIST = ": dense, or a mixture of experts that is not known here; `sim model list` lists all that are known"


@pytest.mark.parametrize(
    ("kind", "line", "texts"),
    [
        (Missing, NO_FILE, "Llama-3.3-70B-Instruct-Q4_K_M.gguf test.gguf Jamba-Mini-1.7-Q8_0.gguf /models/phi-4 ./a/b"),
        (UnknownName, NOT_KNOWN, "unsloth/Qwen3-8B-GGUF:Q4_K_M a/b microsoft/phi-4 Qwen/QwQ-32B"),
        (
            UnknownName,
            LIST,
            "phi-4 QwQ-32B Hermes-4-405B Seed-OSS-36B llama3 gemma-3-27b-it glm-4.8 granite-4.0-h-micro",
        ),
        (UnknownName, LIST, "phi-3.5-mini trinity-nano NVIDIA-Nemotron-Nano-9B-v2 GLM-4-9B Qwen3.5-9B-abliterated"),
        (UnknownName, LIST, "Qwen3.5-4B gemma-4-E2B-it gemma-4-12b gpt-oss-240b"),
    ],
)
def test_a_dense_or_unknown_model_is_not_taken_for_a_likely_one(kind: type[BadInput], line: str, texts: str) -> None:
    for text in texts.split():
        assert asked(text) is None or line == LIST
        with refused(kind, line, f"unknown model {text.lower()!r}" if line == LIST else text):
            load_model(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "qwen3",
            "did you mean 'qwen3-235b-a22b', 'qwen3-30b-a3b', 'qwen3-coder-480b-a35b', 'qwen3-next-80b-a3b', ",
        ),
        ("llama4", "did you mean 'llama-4-maverick' or 'llama-4-scout'? `sim model list` lists all"),
        ("kimi", "did you mean 'kimi-k2', 'kimi-k2.5' or 'kimi-k3'?"),
        ("deepsek-v3", "did you mean 'deepseek-v3'?"),
    ],
)
def test_the_known_models_that_begin_so(text: str, line: str) -> None:
    with refused(UnknownName, f"unknown model {text!r}; {line}"):
        load_model(text)


def test_sizes_alone_are_a_hint() -> None:
    line = "if it is a fine-tune of qwen3.5-35b-a3b or qwen3.6-35b-a3b, give that name"
    with refused(UnknownName, "unknown model 'KAT-Coder-35B-A3B-Q4_K_M.gguf'; give its config.json", line):
        load_model("KAT-Coder-35B-A3B-Q4_K_M.gguf")


@pytest.mark.parametrize(
    ("size", "size_bytes"),
    [
        ("103GB", 103 * 10**9),
        ("103 gb", 103 * 10**9),
        ("103GiB", 103 * 2**30),
        ("0.1TB", 10**11),
        ("130000MB", 13 * 10**10),
    ],
)
def test_a_size_is_that_of_the_whole_file(size: str, size_bytes: int) -> None:
    model = load_model(f"qwen3-235b-a22b@{size}")
    assert file_bytes(model) == size_bytes
    assert model.base_name == "qwen3-235b-a22b"
    assert any("the size is given" in note for note in model.notes)


@pytest.mark.parametrize(
    "text",
    [
        "Qwen3-30B-A3B-Q4_K_M 18.6 GB",
        "Qwen3-30B-A3B-Q4_K_M.gguf (18.6 GB)",
        "unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M\t17.3 GiB",
        "Qwen3-30B-A3B-Q4_K_M (1).gguf 18.63GB",
    ],
)
def test_the_size_that_a_page_shows_beside_a_file(text: str) -> None:
    assert load_model(text).layers == named_model("qwen3-30b-a3b:q4_k_m").layers


def test_a_size_beside_a_file_that_is_a_mix_of_its_own() -> None:
    model = load_model("Qwen3-30B-A3B-Q4_K_M 20.1 GB")
    assert (model.name, file_bytes(model)) == ("qwen3-30b-a3b@20.1GB", 20_100_000_000)


def test_what_stands_for_a_quantization_of_a_repository_is_none() -> None:
    with refused(
        UnknownName, "foo is no quantization that is known here; give one, such as unsloth/Qwen3-30B-A3B-GGUF"
    ):
        load_model("unsloth/Qwen3-30B-A3B-GGUF:foo")
    assert load_model("unsloth/Qwen3-30B-A3B-GGUF:latest").quant == "q4_k_m"


def test_a_repository_in_16_bits_has_experts_in_16_bits() -> None:
    """21 billion weights: no GGUF file of gpt-oss has them so."""
    assert file_bytes(load_model("huihui-ai/Huihui-gpt-oss-20b-BF16-abliterated")) == pytest.approx(41.8e9, rel=0.01)
    assert file_bytes(load_model("unsloth/gpt-oss-20b-GGUF:BF16")) == pytest.approx(13.8e9, rel=0.01)


@pytest.mark.parametrize("name", named_models())
def test_the_size_in_a_hint_is_one_of_the_model(name: str) -> None:
    size = size_hint(named_models()[name])
    assert file_bytes(load_model(f"{name}@{size}")) == int(size.removesuffix("GB")) * 10**9
    most = round(2 * file_weights_b(named_models()[name]))
    assert file_bytes(load_model(f"{name}@{most}GB")) == most * 10**9
    with refused(Malformed, "bits for each of"):
        load_model(f"{name}@{most * 1.1:.1f}GB")


def test_32_bits_have_twice_the_size() -> None:
    assert file_bytes(load_model("qwen3-30b-a3b:f32@122GB")) == 122 * 10**9


def test_a_size_with_a_quantization_keeps_its_proportions() -> None:
    scaled, own = load_model("qwen3-30b-a3b:q8_0@40GB"), named_model("qwen3-30b-a3b:q8_0")
    assert scaled == load_model("qwen3-30b-a3b@40GB:q8_0")
    assert scaled.routed_bytes / file_bytes(scaled) == pytest.approx(own.routed_bytes / file_bytes(own), rel=1e-6)


@pytest.mark.parametrize(
    ("size", "line"),
    [
        ("103", "'103' is no size; give it with its unit, such as qwen3-235b-a22b@132GB"),
        ("", "'' is no size"),
        ("many GB", "'many GB' is no size"),
        ("103MB", "103MB would be 0.0035 bits for each of 235 billion weights of qwen3-235b-a22b; is the unit right?"),
        ("103TB", "bits for each"),
        ("500GB", "500GB would be 17 bits for each of 235 billion weights"),
        ("1.2.3TB", "'1.2.3TB' is no size"),
        ("1TB", "1TB would be 34 bits"),
        ("1TB:q4_k_m", "1TB would be 34 bits"),
    ],
)
def test_a_size_that_cannot_be(size: str, line: str) -> None:
    with refused(Malformed, line):
        load_model(f"qwen3-235b-a22b@{size}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Ornith-1.5-35B", "ornith-1.5-35b is of the shape of qwen3.6-35b-a3b"),
        ("deepseek-r1:671b(int4)", "int4 of Ollama's is taken as q4_k_m"),
        ("glm-5", "glm-5 is of the shape of glm-5.2"),
        ("deepseek-v3.1:q4_k_m", "deepseek-v3.1 is of the shape of deepseek-v3"),
        ("Smoothie-Qwen3-235B-A22B.IQ4_XS.gguf", "is taken as of the shape of qwen3-235b-a22b (smoothie)"),
        ("unsloth/Qwen3.6-35B-A3B-MTP-GGUF", "names no quantization: taken as q4_k_m; give MODEL:QUANT for another"),
    ],
)
def test_what_was_taken_for_what_is_told(text: str, said: str) -> None:
    assert any(said in note for note in load_model(text).notes)


@pytest.mark.parametrize(
    ("text", "name", "experts"),
    [
        ("cerebras/GLM-4.5-Air-REAP-82B-A12B", "glm-4.5-air-96e:q4_k_m", 96),
        ("cerebras_Qwen3-Coder-REAP-25B-A3B-Q6_K.gguf", "qwen3-30b-a3b-103e:q6_k", 103),
        ("DeepSeek-V4.1-Flash-REAP-256E", "deepseek-v4.1-flash-256e:mxfp4", 256),
        ("MiniMax-M2-REAP-162B-A10B@60GB", "minimax-m2.1-180e@60GB", 180),
    ],
)
def test_experts_that_were_removed(text: str, name: str, experts: int) -> None:
    """As many as the size in the name leaves."""
    model = load_model(text)
    assert model.name == name
    assert {layer.n_experts for layer in model.layers.values()} == {experts}
    assert any(f"with {experts} of" in note for note in model.notes)


def test_a_command_names_its_model() -> None:
    for command in (
        "llama-server -m /models/GLM-4.5-Air-Q4_K_M-00001-of-00002.gguf -ngl 99 -c 32768",
        "./build/bin/llama-server --model GLM-4.5-Air-Q4_K_M.gguf --n-cpu-moe 40",
        "llama-cli -hf unsloth/GLM-4.5-Air-GGUF:Q4_K_M -c 8192",
        "python -m llama_cpp.server --model GLM-4.5-Air-Q4_K_M.gguf",
        "lms load glm-4.5-air@q4_k_m --gpu max",
    ):
        assert taken(command) == "glm-4.5-air:q4_k_m"


def test_a_plain_name_says_nothing_more() -> None:
    for name in ("qwen3-30b-a3b", "Qwen3-30B-A3B-Instruct-2507:q8_0"):
        assert load_model(name) == named_model(name)


def test_who_made_the_files_and_where() -> None:
    assert asked("unsloth/Qwen3.6-35B-A3B-GGUF:UD-Q4_K_XL") == Asked(
        model="qwen3.6-35b-a3b",
        quant="ud-q4_k_xl",
        uploader="unsloth",
        repository="unsloth/Qwen3.6-35B-A3B-GGUF",
    )


@pytest.mark.parametrize(
    ("text", "repository"),
    [
        ("unsloth/Qwen3.6-35B-A3B-GGUF:Q6_K", "unsloth/Qwen3.6-35B-A3B-GGUF:Q6_K"),
        ("https://huggingface.co/unsloth/GLM-4.6-GGUF", "unsloth/GLM-4.6-GGUF"),
        ("ai/qwen3:30B-A3B-Q4_K_M", ""),
        ("mlx-community/Qwen3.6-35B-A3B-4bit", "mlx-community/Qwen3.6-35B-A3B-4bit"),
        ("qwen3.6-35b-a3b:mlx-4bit", ""),
        ("Qwen3-30B-A3B-Q8_0.gguf", ""),
        ("unsloth/Qwen3.6-35B-A3B-GGUF@22GB", ""),
    ],
)
def test_the_repository_that_a_command_names(text: str, repository: str) -> None:
    assert load_model(text).repository == repository


def test_whether_a_quantization_is_said() -> None:
    assert not quantization_said("qwen3-30b-a3b")
    assert not quantization_said("Qwen3 30B A3B 4-bit")
    assert quantization_said("Qwen3 30B A3B MLX 4-bit")
    assert not quantization_said("unsloth/Qwen3-30B-A3B-GGUF")
    for text in ("Qwen3-30B-A3B-128K-UD-Q4_K_XL.gguf", "qwen3-30b-a3b:q8_0", "qwen3-30b-a3b@18GB"):
        assert quantization_said(text)


def test_a_trace_is_no_model() -> None:
    assert means_model("unsloth/Qwen3.6-35B-A3B-GGUF")
    assert means_model("nothing.gguf")
    for text in ("runs/qwen3-30b-a3b/route.csv", "qwen3-30b-a3b.jsonl.gz", "python-256", "my-run"):
        assert not means_model(text)


def test_a_model_is_likelier_than_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where either may stand: only paths, files and slips of their names and of bundled traces speak of traces."""
    (tmp_path / "good").write_text("")
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    for text in ("qwen3", "llama3", "gpt-oss-120", "foo/bar", "phi-4", "Qwen3.5-9B-abliterated"):
        assert means_model_not_trace(text)
    traces = ("good", "goood", "pyton-256", "gpt-oss-120b", "qwen3-30b-phne", "runs/none", "none.jsonl")
    for other in (*traces, "-", "", "./x"):
        assert not means_model_not_trace(other)


def test_in_the_place_of_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's name or file is the model; what is there is otherwise a trace, and so are slips of a bundled name."""
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF")
    for given in ("unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M", "deepseek-r1:8b", "qwen3-30b-a3b@20GB", str(file), "b.gguf"):
        assert names_model(given)
    trace = tmp_path / "qwen3-30b-a3b"
    trace.write_text("")
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert names_model("runs/Qwen3-30B-A3B-Q4_K_M.gguf")
    assert not names_model("runs/qwen3-30b-a3b")
    for other in ("gpt-oss-120b", "qwen3-30b-phne", str(trace), "runs/none.jsonl", trace):
        assert not names_model(other)


@pytest.mark.parametrize(
    "text", ["", " ", "@", ":", "\0", "x" * 5000, "qwen3-30b-a3b" * 100, "💥", "@103GB", "/", "..."]
)
def test_odd_texts(text: str) -> None:
    assert asked(text) is None
