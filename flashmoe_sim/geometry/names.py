"""What people write when they mean a model: a repository, a file that is not there, a tag, free text.

Only the text is read: no file, no network. A model is taken only if every word agrees with it; otherwise one line says
what to give instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from flashmoe_sim.geometry.mixes import BF16_SAFETENSORS, NATIVE_MXFP4
from flashmoe_sim.geometry.named import (
    F32_BITS,
    MOST_BITS,
    SAME_SIZE,
    NamedModel,
    file_weights_b,
    model_names,
    named_models,
    size_hint,
)
from flashmoe_sim.geometry.pruned import experts_left, families
from flashmoe_sim.geometry.quant_words import SaidQuant, quantizations_in
from flashmoe_sim.io.errors import BadInput, Malformed, UnknownName, shown
from flashmoe_sim.io.sizes import UNITS, parse_size

# Names of models with the dimensions of a known one, beside the aliases of the table, and other spellings.
_MORE = {
    "cogito-v2-671b": "deepseek-v3",
    "cogito-v2-llama-109b": "llama-4-scout",
    "cogito-v2-preview-deepseek-671b": "deepseek-v3",
    "cogito-v2-preview-llama-109b": "llama-4-scout",
    "cogito-v2.1-671b": "deepseek-v3",
    "deepseek-671b": "deepseek-v3",
    "deepseek-coder-v2-16b": "deepseek-v2-lite",
    "deepseek-lite": "deepseek-v2-lite",
    "deepseek-math-v2": "deepseek-v3.2",
    "deepseek-prover-v2-671b": "deepseek-v3",
    "deepseek-r1-zero": "deepseek-v3",
    "deepseek-r1t-chimera": "deepseek-v3",
    "deepseek-r1t2-chimera": "deepseek-v3",
    "deepseek-tng-r1t-chimera": "deepseek-v3",
    "deepseek-tng-r1t2-chimera": "deepseek-v3",
    "deepseek-v2-16b": "deepseek-v2-lite",
    "ds4": "deepseek-v4-flash",
    "ds4f": "deepseek-v4-flash",
    "glm-4.5v": "glm-4.5-air",
    "glm-4.6v": "glm-4.5-air",
    "glm-air": "glm-4.5-air",
    "granite-4-h-small": "granite-4.0-h-small",
    "granite-4-h-tiny": "granite-4.0-h-tiny",
    "granite4-32b-a9b-h": "granite-4.0-h-small",
    "granite4-7b-a1b-h": "granite-4.0-h-tiny",
    "granite4-small-h": "granite-4.0-h-small",
    "granite4-tiny-h": "granite-4.0-h-tiny",
    "kimi-vl-a3b": "moonlight-16b-a3b",
    "llama-4-maverick-17b": "llama-4-maverick",
    "llama-4-scout-17b": "llama-4-scout",
    "llama4-128x17b": "llama-4-maverick",
    "llama4-16x17b": "llama-4-scout",
    "llama4-17b-maverick-128e": "llama-4-maverick",
    "llama4-17b-scout-16e": "llama-4-scout",
    "mai-ds-r1": "deepseek-v3",
    "nemotron-3-nano": "nemotron-3-nano-30b-a3b",
    "nemotron-3-nano-omni": "nemotron-3-nano-30b-a3b",  # files of the same sizes; what sees and hears is beside them
    "nemotron-3-nano-omni-30b-a3b": "nemotron-3-nano-30b-a3b",
    "nemotron-3-super": "nemotron-3-super-120b-a12b",
    "olmoe": "olmoe-1b-7b",
    "openai-120b": "gpt-oss-120b",
    "openai-20b": "gpt-oss-20b",
    "oss-120b": "gpt-oss-120b",
    "oss-20b": "gpt-oss-20b",
    "qwen1.5-moe": "qwen1.5-moe-a2.7b",
    "qwen-235b": "qwen3-235b-a22b",
    "qwen-480b": "qwen3-coder-480b-a35b",
    "qwen3-coder-flash": "qwen3-30b-a3b",
    "r1-0528": "deepseek-v3",
    "r1-1776-671b": "deepseek-v3",
    "r1-671b": "deepseek-v3",
    "r1t2-chimera": "deepseek-v3",
    "tongyi-deepresearch-30b-a3b": "qwen3-30b-a3b",
    "v3-0324": "deepseek-v3",
    "v3-671b": "deepseek-v3",
    "wizardlm-2-8x22b": "mixtral-8x22b",
}
# What llama-bench and llama-server print of models: the architecture and the size.
_PRINTED = {
    "deepseek2-16b": "deepseek-v2-lite",
    "deepseek2-236b": "deepseek-v2",
    "deepseek2-671b": "deepseek-v3",
    "gemma4-26b-a4b": "gemma-4-26b-a4b",
    "glm-dsa-744b-a40b": "glm-5.2",
    "glm4moe-106b-a12b": "glm-4.5-air",
    "glm4moe-355b-a32b": "glm-4.6",
    "lfm2moe-8b-a1b": "lfm2-8b-a1b",
    "llama-8x22b": "mixtral-8x22b",
    "llama-8x7b": "mixtral-8x7b",
    "llama4-17bx128e": "llama-4-maverick",
    "llama4-17bx16e": "llama-4-scout",
    "nemotron-h-moe-120b-a12b": "nemotron-3-super-120b-a12b",
    "nemotron-h-moe-31b-a3.5b": "nemotron-3-nano-30b-a3b",
    "qwen35moe-122b-a10b": "qwen3.5-122b-a10b",
    "qwen35moe-35b-a3b": "qwen3.6-35b-a3b",
    "qwen35moe-397b-a17b": "qwen3.5-397b-a17b",
    "qwen3moe-235b-a22b": "qwen3-235b-a22b",
    "qwen3moe-30b-a3b": "qwen3-30b-a3b",
}
# What Ollama runs by a name without a size (ollama.com/library, tag `latest`).
OLLAMA = {
    "deepseek-coder-v2": "16b",
    "deepseek-r1": "8b",
    "deepseek-v2": "16b",
    "gpt-oss": "20b",
    "llama4": "16x17b",
    "mixtral": "8x7b",
    "nemotron-3-nano": "30b",
    "qwen3-coder": "30b",
    "qwen3.6": "35b",
}
# What people leave out of the name of an R1 by Unsloth, whose page calls its files by their bits.
_R1_BITS = {"1.58bit": "ud-iq1_s", "1.73bit": "ud-iq1_m", "2.22bit": "ud-iq2_xxs", "2.51bit": "ud-q2_k_xl"}
_BARE = {"q3": "q3_k_m", "q4": "q4_k_m", "q5": "q5_k_m"}  # of llama.cpp's, the mix that most people mean
_SITES = re.compile(
    r"^(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co|modelscope\.cn/models|ollama\.com(?:/library)?|"
    r"hub\.docker\.com/r|lmstudio\.ai/models)/|hf://|ollama://)",
    re.IGNORECASE,
)
_IN_SITE = re.compile(r"/(?:blob|resolve|tree|raw)/[^/]+(?=/|$)")
OF_TRACES = re.compile(
    r"\.(?:jsonl?|csv|tsv|npz|npy|parquet|pt|safetensors|bin|txt|log|md|sqlite|db)(?:\.(?:gz|xz|zst|bz2))?$",
    re.IGNORECASE,
)
_UPLOADERS = frozenset({"unsloth", "bartowski", "ubergarm", "mradermacher"})
# bartowski's files begin with who made the model.
_BARTOWSKIS = re.compile(
    r"(?:qwen|google|openai|zai-org|nvidia|baidu|ibm-granite|moonshotai|cerebras|mistralai)_", re.IGNORECASE
)
_COMMAND = re.compile(
    r"^(?:\./|\S*/)?(?:llama-\w+|ollama|vllm|lms|hf|huggingface-cli|mlx_lm\S*|sglang|python3?)\b", re.IGNORECASE
)
_GIVEN = (  # where a command names its model
    re.compile(r"\s(?:--model(?:-path)?|--hf-repo|-hfr?|--repo-id)[ =]+(\S+)"),
    re.compile(r"(?<!python)(?<!python3)\s-m[ =]+(\S+)"),
    re.compile(r"^(?:ollama|lms|vllm|hf|huggingface-cli)\s+(?:run|pull|show|serve|load|get|download)\s+(\S+)"),
)
_OLLAMAS = re.compile(r"([\w.-]+):latest")
_PROGRAMS = re.compile(r"\b(?:ik_)?llama\.cpp\b", re.IGNORECASE)
_OWNER = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
WORD = re.compile(r"[a-z0-9]+(?:(?<=\d)\.(?=\d)[a-z0-9]+)*")
_SPLIT = re.compile(r"\.gguf(?:\.part\d+of\d+|-split-[a-z])?$|\.safetensors$|-\d{5}-of-\d{5}(?=\.|$)", re.IGNORECASE)
_PARTS = re.compile(r"[/\\:]")
# What browsers and downloaders add to the name of a file.
_DOWNLOADED = re.compile(
    r"(?:\.(?:part|partial|download|crdownload|incomplete|aria2|tmp)|:zone\.identifier|[ _-]*\(\d{1,2}\)"
    r"|[ _-]+(?:copy|kopie|copie|copia)(?: \d)?)(?=(?:\.gguf)?$)",
    re.IGNORECASE,
)
_SHOWN_SIZE = re.compile(r"[\s(\[~]+(\d+(?:\.\d+)?)\s*([TGM]i?B)[)\]]?$", re.IGNORECASE)  # beside a file, on its page
MOST_LETTERS, QUOTES = 300, "`'\" \u2018\u2019\u201c\u201d"
# Words that change no dimension.
_NEUTRAL_WORDS = """
instruct instruction thinking reasoning chat base it hf gguf ggml mlx model models imat imatrix moe preview exp
terminus speciale pretrain pretrained mtp native merged original final fixed latest new from by the of weights full
file quant quants quantized text sft dpo rl pt ud i1 mix tng part ram vram release opensourcerelease unsloth bartowski
ubergarm mradermacher ds4 lmstudio community nvidia google zai org thudm ibm microsoft baidu cerebras inference only
meta mistralai openai experimental main and or at in with for to on cpu gpu cuda vulkan metal h6 h8 hb6 hb8 server
split vllm sglang moonshotai minimaxai xiaomimimo stepfun ai arcee poolside tencent rednote hilab liquidai allenai
inclusionai quantised quantization quantisation
"""
_NEUTRAL = frozenset(_NEUTRAL_WORDS.split())
# Words of fine-tunes that keep every dimension.
_ALIKE_WORDS = "abliterated abliteration uncensored heretic huihui derestricted chimera obliterated unrestricted"
_ALIKE = frozenset(_ALIKE_WORDS.split())
_PRUNED_WORDS = "reap reaped ream reamed pruned prune pruning thrift slim slice sliced shrunk"  # REAM merges experts
PRUNED = frozenset(_PRUNED_WORDS.split())
_DISTILLED = frozenset({"distill", "distilled", "distil", "distillation", "distillate"})
_TEACHERS = frozenset({"claude", "opus", "sonnet", "haiku", "fable", "mythos", "gemini", "chatgpt", "gpt", "grok"})
_STUDENTS = ("qwen", "qwq", "llama", "mistral", "ministral", "gemma", "phi", "granite", "smollm", "olmo", "yi")
_NO_MODEL = {  # what a file is instead of a model
    **dict.fromkeys(("mmproj", "clip"), "the file for images"),
    **dict.fromkeys(("lora", "qlora", "adapter", "dora"), "an adapter"),
    **dict.fromkeys(("eagle", "eagle3", "dflash", "draft", "drafter", "speculator"), "a draft model"),
    **dict.fromkeys(("embedding", "embed", "reranker", "tokenizer"), "no language model"),
    "cloud": "the copy on Ollama's servers",
}
_ADAPTERS, _MERGED = frozenset({"lora", "qlora", "adapter", "dora"}), frozenset({"merged", "merge", "fused", "baked"})
# Of another shape, or of one that no word says.
_OTHER_WORDS = """
omni audio tts asr tiny random dummy mini toy onnx nano micro small medium lite light half dense experts upscaled vs
"""
_OTHER = frozenset(_OTHER_WORDS.split())
_RESHAPED = re.compile(r"\d*layers?\d*|\d+l|x\d+|[a-z]*\d+x\d*")  # says other layers, or copies of experts
_MIXED = re.compile(r".*(?:quant|bit|bpw|optim|custom|dynamic|compress|special|recipe|lowram|max|mxfp|fp4|int4).*")
_STORED = re.compile(r".*(?:fp\d|int\d|\dbit|bpw|\dq|q\d).*|vq|optiq|quip|aqlm|vptq|turbo|ternary|eora|mixed")
_DATE = re.compile(r"\d{4,8}|0{3,}\d+")
_VERSION = re.compile(r"v\d+(?:\.\d+)*|r\d|\d+[km]|\d+gb|\d+of\d+|part\d+of\d+")
_TOTAL = re.compile(r"(\d+(?:\.\d+)?)([bt])")
_ACTIVE = re.compile(r"a(\d+(?:\.\d+)?)([bm]?)")
_BY_EXPERT = re.compile(r"(\d+)x(\d+(?:\.\d+)?)b")
_EXPERTS = re.compile(r"(\d+)e")
_USED = re.compile(r"top(\d+)")
_RESPELT = (  # what stands for what in a name
    (_SPLIT, ""),
    (_SPLIT, ""),  # the number of a part may stand before the suffix
    (re.compile(r"(?<=\w) - [\d.]+ bpw\b"), ""),  # of a type, as llama-bench prints it
    (re.compile(r"\b([1-9]\d*)[-_ ]?of[-_ ]?(1[6-9]|[2-9]\d|[1-9]\d\d)(?:[-_ ]?experts)?\b"), r"top\1 \2e"),
    (re.compile(r"\b(\d+)[-_ ]?(?:experts?|active)\b"), r"\1e"),
    (re.compile(r"\btop[-_ ]?k?[-_ ]?(\d+)\b"), r"top\1"),
    (re.compile(r"(reap|ream|pruned?)(?=\d)"), r"\1-"),
)
_DS4_MIX = "iq2xxsw2q2k"  # of antirez/ds4's files: gate and up in IQ2_XXS, down in Q2_K
_OLLAMA_INT4 = re.compile(r":\d+(?:\.\d+)?[bt]\W*int4")  # what people call Ollama's four bits, which are Q4_K_M
LEAST_BITS = 0.9  # of a weight, in a file
PRUNED_LEAST = 0.03  # of all weights: less than one twentieth of the experts
SAME_ACTIVE = 0.72  # of the weights of a token: published ones leave out embeddings, or are rounded
TO_GIVE = "give its config.json or a GGUF file of it (the header is enough), or a name from `sim model list`"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a text asks for.

    model: a name of the table. quant: a plain name, such as ud-q4_k_xl; empty if the text says none.
    size_bytes: of the whole file, if the text gives it. uploader: the owner of the repository, in small letters.
    repository: as written, without the quantization. said: what was taken for what, a sentence each. experts: of a
    layer, if some of the model's were removed; 0 for all. shown: whether the size stands beside the name of a file, as
    pages show it, rounded.
    """

    model: str
    quant: str = ""
    size_bytes: int | None = None
    uploader: str = ""
    repository: str = ""
    said: tuple[str, ...] = ()
    experts: int = 0
    shown: bool = False


class _Match(NamedTuple):
    """A known model and the words that name it."""

    first: int
    end: int
    name: str
    model: str


def asked(text: str) -> Asked | None:
    """The model that a text means, with its quantization or size; None if it holds no name of a known model.

    Raises BadInput, saying what to give, if the text names several models or quantizations, one of other dimensions,
    or a size that cannot be.
    """
    if len(text) > MOST_LETTERS or "\0" in text:
        return None
    plain, at, size_text = _plain(_of_command(text))
    plain, shown_size = _beside(plain)
    where = _owner(plain)
    parts = [part for part in _PARTS.split(plain.lower()) if part.strip()]
    words, starts = _words(parts)
    matches = _matches(words) or _families(words)
    if not matches:
        return None
    chosen = _chosen(text, words, matches)
    if any(part.startswith(("mtp-", "mtp_")) and part.endswith(".gguf") for part in parts):
        raise _unsure(text, f"is a part that only drafts tokens of {chosen.name}; give the model itself")
    if matches[0].end <= starts.count(0):  # the first part names the model: a folder, no owner
        where = ""
    uploader = where.partition("/")[0].lower() or _uploader(plain, words)
    mlx = "mlx" in words or uploader.startswith("mlx")
    quants = _quantizations(words, starts, uploader=uploader, mlx=mlx)
    taken = {at for one in matches if one.model == chosen.model for at in range(one.first, one.end)}
    taken |= {at for one in quantizations_in(words) for at in range(one.first, one.end)}
    left = [at for at in range(_own_part(starts, chosen.first), len(words)) if at not in taken]
    quant = _quantization(text, chosen, words, quants, left)
    experts = _experts(text, chosen, words[_own_part(starts, chosen.first) :])
    lessons = _lessons(words, _own_part(starts, chosen.first), chosen)
    left = [at for at in left if at not in lessons]
    unknown = _checked(
        text,
        chosen,
        [words[at] for at in left],
        words,
        matrix=_is_matrix([word for word, part in zip(words, starts, strict=True) if part == starts[-1]]),
        taught=bool(lessons),
    )
    size_bytes = None
    if at:
        as_quant = quantizations_in(WORD.findall(size_text.lower()))
        if as_quant and not quant and not re.match(r"\s*[\d.]+\s*[kmgt]i?b", size_text.lower()):
            quant = as_quant[0].name  # LM Studio's model@quantization
        else:
            size_bytes = _size(text, size_text, chosen.model, quant)
    if shown_size and quant and not size_bytes:
        size_bytes = _size(text, shown_size, chosen.model, quant)
    if not quant and not size_bytes:
        _refuse_unsaid(text, chosen.model, unknown, mlx=mlx)
    unknown = [*unknown, *(words[at] for at in lessons)]
    said = _said(text, chosen, unknown, words[_own_part(starts, chosen.first) :], experts)
    if quant == "q4_k_m" and "int4" in words:
        said = (*said, "int4 of Ollama's is taken as q4_k_m")
    if quant in _BARE and f"ds4-{quant}" not in named_models()[chosen.model].quants:
        said, quant = (*said, f"{quant} is taken as {_BARE[quant]}"), _BARE[quant]
    if quant in ("bf16", "f16") and _is_repository(chosen, plain, words):
        said, quant = (*said, f"without GGUF in its name, {quant} is taken as that of safetensors"), BF16_SAFETENSORS
    return Asked(
        model=chosen.model,
        quant=quant,
        size_bytes=size_bytes,
        uploader=uploader,
        repository=where,
        said=said,
        experts=experts,
        shown=bool(shown_size),
    )


def _is_repository(chosen: _Match, plain: str, words: list[str]) -> bool:
    """Whether a name in 16 bits is a repository of safetensors, whose experts have other bytes than in a GGUF file."""
    model = named_models()[chosen.model]
    said = re.search(r"[-_.](?:bf16|fp?16)(?=$|[-_./])", plain.lower().partition(":")[0])
    return model.arch in NATIVE_MXFP4 and bool(said) and "gguf" not in plain.lower() and "mlx" not in words


def _of_command(text: str) -> str:
    """The model that a command runs, as `llama-server -m FILE`; another text as it is."""
    text = text.strip()
    if _COMMAND.match(text) and " " in text:
        text = next((found[1] for pattern in _GIVEN if (found := pattern.search(text))), text)
    elif found := re.match(r"(?:-m|-hfr?|--model|--hf-repo)[ =]+(\S+)", text):
        text = found[1]
    if (tag := _OLLAMAS.fullmatch(text.lower())) and tag[1] in OLLAMA and not _spelt()[0].get(_letters(tag[1])):
        return f"{tag[1]}:{OLLAMA[tag[1]]}"
    return text


def _plain(text: str) -> tuple[str, str, str]:
    """A text without quotation marks and the site's address; `@` if a size follows, and that size."""
    plain, at, size_text = text.strip().strip(QUOTES).partition("@")
    size_text, colon, behind = size_text.partition(":")
    plain = _IN_SITE.sub("", _SITES.sub("", plain + colon + behind).partition("?")[0])
    return _PROGRAMS.sub(" ", plain), at, size_text


def _beside(plain: str) -> tuple[str, str]:
    """A text without what a download adds to a file's name; and the size that is shown behind a quantization."""
    plain = _DOWNLOADED.sub("", _DOWNLOADED.sub("", plain))
    size = _SHOWN_SIZE.search(plain)
    if size is None or not says_quantization(plain[: size.start()]):
        return plain, ""
    return _DOWNLOADED.sub("", plain[: size.start()]), f"{size[1]}{size[2]}"


def means_model(text: str) -> bool:
    """Whether a text that names no file is about a model: it holds a known name, a quantization, or a model's file."""
    if text.lower().endswith((".gguf", "config.json", ".safetensors")):
        return True
    if OF_TRACES.search(text):
        return False
    try:
        return asked(text) is not None or says_quantization(text)
    except BadInput:
        return True


def of_these_sizes(text: str) -> list[str]:
    """The known models whose names have the sizes of a text, in all and of a token, as 35B-A3B; none without both."""
    words = WORD.findall(text.lower())
    given = {
        f"-{whole}-{part}" for whole, part in pairwise(words) if _TOTAL.fullmatch(whole) and _ACTIVE.fullmatch(part)
    }
    return sorted({model for name, model in model_names().items() if any(one in name for one in given)})


def _sizes_b(model: NamedModel) -> tuple[float, float]:
    """Billions of weights in all, and of a token."""
    dense_b, routed_b = model.dense_params_b, model.routed_params_b
    return dense_b + routed_b + model.table_params_b, dense_b + routed_b * model.top_k / model.experts


def plain_quantization(text: str) -> str:
    """The plain name of a quantization as people write it: `ud-q4_k_xl` for `UD-Q4_K_XL`; another text as it is."""
    found = quantizations_in(WORD.findall(text.lower()))
    return found[0].name if len(found) == 1 else text.lower()


def says_quantization(text: str) -> bool:
    """Whether a word of a text is a quantization."""
    return bool(quantizations_in(WORD.findall(text.lower())))


def _owner(plain: str) -> str:
    """`owner/repository` at the start of a text, or empty."""
    found = _OWNER.match(plain)
    return "" if found is None or plain.count("\\") or found[0].endswith(".gguf") else found[0]


def _uploader(plain: str, words: list[str]) -> str:
    """Who made the files, if a text without a repository says it; or empty."""
    if named := _UPLOADERS & set(words):
        return min(named)
    return "mradermacher" if "i1" in words else "bartowski" if _BARTOWSKIS.match(plain) else ""


def _words(parts: list[str]) -> tuple[list[str], list[int]]:
    """The words of all parts, and the number of the part of each."""
    words: list[str] = []
    starts: list[int] = []
    for number, part in enumerate(parts):
        its = WORD.findall(_respelt(part))
        words += its
        starts += [number] * len(its)
    return words, starts


def _respelt(part: str) -> str:
    for pattern, meaning in _RESPELT:
        part = pattern.sub(meaning, part)
    return part


@cache
def _spelt() -> tuple[dict[str, tuple[str, str]], frozenset[str]]:
    """The name and the model of each spelling, letters and digits only, and all their beginnings."""
    given = {**_PRINTED, **_MORE, **model_names()}
    for name, model in list(given.items()):
        whole = re.sub(r"-a\d+(?:\.\d+)?b$", "", name)
        if any(map(_says_total, WORD.findall(whole))):
            given.setdefault(whole, model)
    spelt = {_letters(name): (name, model) for name, model in given.items()}
    for letters, (name, model) in list(spelt.items()):
        if _TOTAL.fullmatch(name.split("-")[-1]):
            spelt.setdefault(letters[:-1], (name, model))  # gpt oss 120
    for letters, meaning in list(spelt.items()):
        spelt.setdefault(letters.replace(".", ""), meaning)
    return spelt, frozenset(one[:end] for one in spelt for end in range(1, len(one) + 1))


def _letters(name: str) -> str:
    return "".join(WORD.findall(name))


def _families(words: list[str]) -> list[_Match]:
    """The model of which a name says that experts were removed, by its family and the weights of a token."""
    if not PRUNED & set(words):
        return []
    kept = [at for at, word in enumerate(words) if word not in PRUNED and not _TOTAL.fullmatch(word)]
    for first in range(len(kept)):
        for end in range(len(kept), first + 1, -1):
            if found := families().get("".join(words[at] for at in kept[first:end])):
                return [_Match(kept[first], kept[end - 1] + 1, *found)]
    return []


def _experts(text: str, chosen: _Match, words: list[str]) -> int:
    """How many experts are left, if a name says that some were removed; 0 if it does not.

    Raises BadInput if the name has no size, or if several numbers of experts fit it.
    """
    if not PRUNED & set(words):
        return 0
    model = named_models()[chosen.model]
    counts = {int(count[1]) for word in words if (count := _EXPERTS.fullmatch(word))}
    others = set(words) - set(WORD.findall(chosen.name))
    totals = {float(found[1]) * (1000 if found[2] == "t" else 1) for found in map(_TOTAL.fullmatch, others) if found}
    smaller = {total for total in totals if not _near(total, _sizes_b(model)[0], 1 - PRUNED_LEAST)}
    if len(counts) == 1 and not smaller and model.top_k <= min(counts) < model.experts:
        return counts.pop()
    if len(smaller) == 1 and not counts and (left := experts_left(model, smaller.pop())):
        return left
    raise _unsure(
        text,
        f"is {chosen.name} with fewer experts, so of another size; give its config.json or a GGUF file of it (the "
        "header is enough)",
    )


def _matches(words: list[str]) -> list[_Match]:
    """The known models that words name, the longest at each place; neutral words may stand inside."""
    spelt, begun = _spelt()
    found: list[_Match] = []
    at = 0
    while at < len(words):
        letters, best = "", None
        for end in range(at, len(words)):
            if letters + words[end] in begun:
                letters += words[end]
                if letters in spelt and words[end + 1 : end + 2] not in (["bit"], ["bits"]):  # GLM-5 2 bit
                    best = _Match(at, end + 1, *spelt[letters])
            elif not letters or words[end] not in _NEUTRAL | _ALIKE:  # gpt-oss-abliterated:20b
                break
        if best is not None:
            found.append(best)
        at = at + 1 if best is None else best.end
    return [one for one in found if one.name != "ds4"] or found  # whose program runs other models too


def _chosen(text: str, words: list[str], matches: list[_Match]) -> _Match:
    """The one model that is meant: of several, the first if only it says its size as people write it, 35B-A3B."""
    longest = {
        model: max((one for one in matches if one.model == model), key=lambda one: len(one.name))
        for model in dict.fromkeys(one.model for one in matches)
    }
    if len(longest) == 1:
        return next(iter(longest.values()))
    whole = [one for one in longest.values() if _ACTIVE.fullmatch(words[one.end - 1])]
    one_name = " " not in text.strip() or _DISTILLED & set(words)
    if one_name and len(whole) == 1 and whole[0].first == matches[0].first:
        return whole[0]
    raise _unsure(text, f"names several models, {' and '.join(longest)}; give the one whose dimensions it has")


def _own_part(starts: list[int], first: int) -> int:
    """The first word of the part in which the model is named: folders and owners say nothing of it."""
    return starts.index(starts[first])


def _quantizations(words: list[str], starts: list[int], *, uploader: str, mlx: bool) -> list[SaidQuant]:
    """The quantizations of the last part that has any: of a tag, else a file, else a folder."""
    for number in sorted(set(starts), reverse=True):
        first = starts.index(number)
        own = words[first : first + starts.count(number)]
        if found := quantizations_in(own, mlx=mlx, uploader=uploader):
            return [one._replace(first=one.first + first, end=one.end + first) for one in found]
    return []


def _is_matrix(words: list[str]) -> bool:
    """Whether the words of a file's name say that it is an importance matrix."""
    ends = [word for word in words if word not in ("gguf", "dat", "file")]
    return "imatrix" in (*ends[:1], *ends[-1:]) and words[-1:] != ["gguf"] and not quantizations_in(words)


def _lessons(words: list[str], first: int, chosen: _Match) -> range:
    """The words that say from which other model's text a model was distilled, if it is named first itself.

    Only models that nobody can download are teachers alone: in DeepSeek-R1-Distill-Qwen, the student follows.
    """
    behind = words[chosen.end :]
    distilled = [at for at, word in enumerate(behind) if word in _DISTILLED]
    teachers = [at for at, word in enumerate(behind) if word in _TEACHERS]
    students = [word for word in behind if _TOTAL.fullmatch(word) or word.startswith(_STUDENTS)]
    if not distilled or not teachers or students or not all(map(_says_little, words[first : chosen.first])):
        return range(0)
    if teachers[0] > distilled[0] and behind[distilled[0] + 1] not in ("from", "of", "by"):
        return range(0)
    last = max(distilled[-1], teachers[-1])
    while last + 1 < len(behind) and re.fullmatch(r"v?\d+(\.\d+)?", behind[last + 1]):
        last += 1
    return range(chosen.end, chosen.end + last + 1)


def _checked(text: str, chosen: _Match, left: list[str], words: list[str], *, matrix: bool, taught: bool) -> list[str]:
    """The words that say nothing known. Raises BadInput for words of other dimensions.

    matrix: whether the file is an importance matrix. taught: whether the model was trained on another one's text.
    """
    model = named_models()[chosen.model]
    for word in words:
        if word in _NO_MODEL and not (word in _ADAPTERS and _MERGED & set(words)):
            raise _unsure(text, f"is {_NO_MODEL[word]} of {chosen.name}; give the model itself")
    if "latest" in words:
        left = [*left, *filter(None, [OLLAMA.get(chosen.name)])]
    sized = any(_says_total(word) for word in WORD.findall(chosen.name))
    weights_b, active_b = _sizes_b(model)
    unknown = []
    pruned = PRUNED & set(words)
    for word in left:
        if total := _TOTAL.fullmatch(word):
            given = float(total[1]) * (1000 if total[2] == "t" else 1)
            own_active = word.removesuffix("b") in chosen.name.split("-")[-1] or _near(given, active_b, SAME_ACTIVE)
            same = _near(given, weights_b, SAME_SIZE) or _near(given, weights_b - model.table_params_b, SAME_SIZE)
            if not same and not (sized and own_active) and not pruned:
                raise _unsure(
                    text,
                    f"{word} is not the size of {chosen.name}, which has {weights_b:,.0f}b: it is another model, often "
                    f"a dense one, which has no experts; {TO_GIVE}",
                )
            sized = True
        elif active := _ACTIVE.fullmatch(word):
            own = {one.removesuffix("b") for one in _named(chosen) if _ACTIVE.fullmatch(one) and active[1].isdigit()}
            given = float(active[1]) / (1000 if active[2] == "m" else 1)
            if not _near(given, active_b, SAME_ACTIVE) or (own and word.removesuffix("b") not in own):
                raise _unsure(
                    text,
                    f"{word} does not belong to {chosen.model}, of which a token uses {active_b:.0f} billion weights; "
                    f"give {chosen.model} if that is it, or the whole name of another",
                )
        elif count := _BY_EXPERT.fullmatch(word) or _EXPERTS.fullmatch(word):
            if int(count[1]) != model.experts and not pruned:
                raise _unsure(
                    text, f"{word} does not belong to {chosen.model}, which has {model.experts} experts; {TO_GIVE}"
                )
        elif used := _USED.fullmatch(word):
            if int(used[1]) != model.top_k:
                raise _unsure(
                    text, f"{word} does not belong to {chosen.model}, which uses {model.top_k} experts; {TO_GIVE}"
                )
        elif _says_little(word) or _begins(word, chosen.name) or word in _named(chosen) or word in PRUNED:
            continue  # Qwen_Qwen3.6-35B-A3B, GLM-4.6-GGUF/GLM-160x19B-4.6
        else:
            unknown.append(word)
    if matrix:
        raise _unsure(text, f"is the importance matrix of {chosen.name}; give the model itself")
    whole = any(_ACTIVE.fullmatch(word) for word in words)
    if _DISTILLED & set(words) and not (sized and whole) and not taught:
        raise _unsure(
            text, f"is distilled from {chosen.name} into a model of other dimensions, most are dense; {TO_GIVE}"
        )
    odd = [word for word in unknown if word in _OTHER or (_RESHAPED.fullmatch(word) and " " not in text.strip())]
    if odd or (unknown and not sized and not all(map(_MIXED.fullmatch, unknown))):
        what = f"unknown model, {' '.join(odd or unknown)!r} may say another than {chosen.model}"
        raise _unsure(text, f"{what}; {TO_GIVE}")
    return unknown


def _named(chosen: _Match) -> set[str]:
    """The words of a model's own name, and of the table's."""
    return {*chosen.name.split("-"), *chosen.model.split("-")}


def _sized(model: str) -> str:
    """A model at a size that a file of it has, as an example: qwen3-30b-a3b@17GB."""
    return f"{model}@{size_hint(named_models()[model])}"


def _near(one: float, other: float, share: float) -> bool:
    return min(one, other) >= share * max(one, other)


def _begins(word: str, name: str) -> bool:
    """Whether a name begins with a whole word: `glm` of glm-4.6, `qwen` of qwen3, but not `mini` of minimax."""
    return name.startswith(word) and not name[len(word) : len(word) + 1].isalpha()


def _says_total(word: str) -> bool:
    return bool(_TOTAL.fullmatch(word) or _BY_EXPERT.fullmatch(word))


def _quantization(text: str, chosen: _Match, words: list[str], quants: list[SaidQuant], left: list[int]) -> str:
    """The one quantization that is meant; empty if none is said. Raises BadInput for several, and for a mix of them."""
    model, names = chosen.model, list(dict.fromkeys(one.name for one in quants))
    if len(names) > 1:
        names = [name for name in names if name not in ("bf16", "f16")] or names[:1]
    if _DS4_MIX in "".join(words) and "ds4-q2" in named_models()[model].quants:
        for at in [at for at in left if re.search(r"q\d", words[at])]:
            left.remove(at)
        return "ds4-q2"
    if any(word.startswith("ds4") for word in words) and names in (["q2"], ["q4"]):
        return f"ds4-{names[0]}"
    if "r1" in words and names and names[0].removeprefix("mlx-") in _R1_BITS:
        return _R1_BITS[names[0].removeprefix("mlx-")]
    if names == ["fp8"]:
        for at in [at for at in left if words[at] in ("dynamic", "block")]:  # of the scales
            left.remove(at)
    if names == ["int4"] and _OLLAMA_INT4.search(text.lower()):
        return "q4_k_m"
    if len(names) > 1:
        raise _unsure(
            text, f"names several quantizations, {', '.join(names)}: give one, or the size of a mix: {_sized(model)}"
        )
    if not names:
        return ""
    if names[0].startswith("exl3-") and "gguf" in words and "exl3" not in words:
        rate = names[0].removeprefix("exl3-")
        raise _unsure(text, f"{rate} says no quantization of a GGUF file; give its size, such as {_sized(model)}")
    behind = max(one.end for one in quants)
    odd = [words[at] for at in left if _STORED.fullmatch(words[at])]
    if behind in left and not _says_little(words[behind]):
        odd.insert(0, words[behind])
    if odd:
        raise _unsure(
            text,
            f"{odd[0]!r} beside {names[0]} says that it is a mix of its own; give its size, such as {_sized(model)}, "
            f"or {model}:{names[0]}",
        )
    return names[0]


def _says_little(word: str) -> bool:
    if word in _NEUTRAL or word in _ALIKE or word in PRUNED or word in _ADAPTERS or word in _MERGED:
        return True
    return bool(_DATE.fullmatch(word) or _VERSION.fullmatch(word))


def _refuse_unsaid(text: str, model: str, unknown: list[str], *, mlx: bool) -> None:
    """Raise BadInput for a quantization that is meant, but not by a known name."""
    if mixed := [word for word in unknown if _MIXED.fullmatch(word)]:
        raise _unsure(text, f"{mixed[0]!r} is no known quantization; give its size, such as {_sized(model)}")
    if mlx and "mlx-4bit" in named_models()[model].quants:
        raise _unsure(
            text, f"is MLX's, of bits that its name does not say; give them, such as {model}:mlx-4bit, or its size"
        )


def _size(text: str, given: str, model: str, quant: str) -> int:
    """The bytes behind the `@`. Raises BadInput for anything that cannot be the size of the model's file."""
    plain = re.sub(r"\s+", "", given)
    units = {unit.lower(): unit for unit in UNITS}
    number = re.fullmatch(r"([\d.]+)([A-Za-z]*)", plain)
    size = parse_size(number[1] + units.get(number[2].lower(), "")) if number else None
    if number and number[2].lower() in ("tb", "tib") and re.fullmatch(r"\d+(\.\d+)?", number[1]):
        size = parse_size(f"{float(number[1]) * (1000 if len(number[2]) == 2 else 1024):g}G{number[2][1:]}")
    if size is None:
        raise Malformed(f"{shown(text)}: {given.strip()!r} is no size; give it with its unit, such as {_sized(model)}")
    weights = file_weights_b(named_models()[model]) * 1e9
    bits = 8 * size / weights
    if not LEAST_BITS <= bits <= (F32_BITS if quant == "f32" else MOST_BITS):
        raise Malformed(
            f"{shown(text)}: {given.strip()} would be {bits:.2g} bits for each of {weights / 1e9:,.0f} billion weights "
            f"of {model}; is the unit right? Its files have {weights * 1.5 / 8e9:,.0f} to {weights * 16 / 8e9:,.0f} GB"
        )
    return size


def _said(text: str, chosen: _Match, unknown: list[str], own: list[str], experts: int) -> tuple[str, ...]:
    """What the text was taken for, if it names another model than the one whose dimensions are used."""
    name, model = chosen.name, chosen.model
    if experts:
        all_of = named_models()[model].experts
        return (f"{text.strip()} is taken as of the shape of {name}, with {experts} of {all_of} experts",)
    tuned = [*unknown, *(word for word in own if word in _ALIKE)]
    if tuned:
        return (f"{text.strip()} is taken as of the shape of {name} ({', '.join(tuned)})",)
    if name != model and not model.startswith(f"{name}-") and not name.startswith(f"{model}-"):
        return (f"{name} is of the shape of {model}",)
    return ()


def _unsure(text: str, why: str) -> UnknownName:
    return UnknownName(f"{shown(text.strip(), 90)}: {why}")
