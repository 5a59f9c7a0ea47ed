"""Which of the systems a llama.cpp run was, from the settings that it printed, or from its command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from flashmoe_sim.io.errors import Malformed, Unsupported, shown
from flashmoe_sim.io.sizes import decimal

ALL_LAYERS = 99  # what people write for all layers; a smaller number may be all or a part
DEFAULT_UBATCH, DEFAULT_BATCH = "512", "2048"
IK = "ik_llama.cpp"
MAPPED = {"auto", "mmap", "mmap+mlock", "1", "true", "on"}  # load modes that map, and values of use_mmap
_NO_GPU = {"CPU", "BLAS", "ZenDNN"}
UNSURE = "which may be all layers or a part of them"

FLAGS = {  # with a value; names in `Measured.settings`
    "n_cpu_moe": ("--n-cpu-moe", "-ncmoe"),
    "n_gpu_layers": ("-ngl", "--n-gpu-layers", "--gpu-layers"),
    "overrides": ("-ot", "--override-tensor"),
    "tensor_split": ("-ts", "--tensor-split"),
    "ubatch": ("-ub", "--ubatch-size"),
    "batch": ("-b", "--batch-size"),
    "threads": ("-t", "--threads"),
    "load_mode": ("-lm", "--load-mode"),
    "split_mode": ("-sm", "--split-mode"),
    "type_k": ("-ctk", "--cache-type-k"),
    "type_v": ("-ctv", "--cache-type-v"),
    "model": ("-m", "--model", "-hf", "--hf-repo"),
    "device": ("-dev", "--device"),
    "drafter": ("-md", "--model-draft", "--spec-type", "--spec-draft-model"),
    "experts_used": ("--n-expert-used",),
    "experts_reduced": ("-ser", "--smart-expert-reduction"),
    "flash_attn": ("-fa", "--flash-attn"),
    "offload_policy": ("-op", "--offload-policy"),
}
SWITCHES = {  # without a value; names in `Measured.settings`, and what they set
    "--mmap": ("mmap", "on"),
    "--no-mmap": ("mmap", "off"),
    "-cmoe": ("overrides", "exps=CPU"),
    "--cpu-moe": ("overrides", "exps=CPU"),
    "-nopo": ("no_op_offload", "on"),
    "--no-op-offload": ("no_op_offload", "on"),
    "-rtr": ("repack", "on"),
    "--run-time-repack": ("repack", "on"),
    "-nkvo": ("elsewhere", "has the context in RAM (--no-kv-offload), which no system does"),
    "--no-kv-offload": ("elsewhere", "has the context in RAM (--no-kv-offload), which no system does"),
}
ON = {"1", "on", "true"}
WHOLE = ("n_cpu_moe", "n_gpu_layers", "ubatch", "batch", "threads", "experts_used")
_FILE = re.compile(r"\S+\.gguf", re.IGNORECASE)
_USED = re.compile(r"expert_used_count=int:(\d{1,4})\b")
_OFFLOADED_FROM = re.compile(r"\bGGML_OP_OFFLOAD_MIN_BATCH=(\d{1,9})\b")
_NO_NAME = re.compile(r"[$%<>{}\[\]]")  # of a variable or a placeholder
_NAMES = {flag: name for name, flags in FLAGS.items() for flag in flags}
_COMMAND = re.compile(
    r"(?:(?:\S*/)?((?:ik_)?llama(?:\.cpp|-server|-cli|-bench)?(?:\.exe)?)\s+)?(-{1,2}[a-z].*)", re.IGNORECASE
)
_ALL_ON_GPU = re.compile(r"(?<!\S)(-ngl|--n-gpu-layers|--gpu-layers)[ =](?:all|-1)(?!\S)")
_FLAG = re.compile(r"(?<!\S)--?[a-z][\w-]*", re.IGNORECASE)
_PLACES = ("n_cpu_moe", "n_gpu_layers", "overrides", "tensor_split", "ubatch", "batch")  # where experts are computed


def spec_of(text: str) -> str:
    """The system that flags of llama.cpp make, alone or behind its name: `llama.cpp --n-cpu-moe 24`; else empty.

    Raises BadInput for flags that no system has, or that are given in another way.
    """
    found = _COMMAND.fullmatch(text.strip())
    if found is None:
        return ""
    said = _ALL_ON_GPU.sub(rf"\1 {ALL_LAYERS}", found[2])
    flags, settings = _FLAG.findall(said), settings_of_command(said)
    usual = FLAGS["flash_attn"] if settings.pop("flash_attn", "") in (*ON, "auto") else ()
    known = {flag for name in _PLACES for flag in FLAGS[name]} | {"-cmoe", "--cpu-moe", *usual}
    if others := [flag for flag in flags if flag not in known]:
        raise Unsupported(
            f"{shown(text)}: {others[0]} does not say where experts are computed; leave it out here (--context, "
            "--kv-type and --draft are options of their own)"
        )
    unread = [flag for flag in flags if _NAMES.get(flag) in _PLACES and _NAMES[flag] not in settings]
    if unread or len(said.split()) > 2 * len(flags):
        raise Malformed(
            f"{shown(text)}: give one value behind {(unread or flags)[0]}, such as --n-cpu-moe 24 or -ot exps=CPU; "
            "another system is another --system"
        )
    ik = (found[1] or "").lower().startswith("ik_")
    layers = settings.setdefault("n_gpu_layers", str(ALL_LAYERS))
    if 0 < int(layers) < ALL_LAYERS and not ik and not {"n_cpu_moe", "overrides"} & set(settings):
        return f"whole-layers:gpu_layers={layers}"
    spec, why = system_of(settings, engine=IK if ik else "llama.cpp", prompt=False)
    if not spec:
        raise Unsupported(f"{shown(text)}: {why}; leave -ngl out if all layers are on the GPU")
    return spec


def system_of(settings: Mapping[str, str], *, engine: str, prompt: bool, layers: int | None = None) -> tuple[str, str]:
    """The spec of the system, and empty; or empty, and why there is none.

    settings: as `Measured.settings`: backend as llama-bench prints it, n_gpu_layers, n_cpu_moe, overrides separated by
    commas, tensor_split, ubatch, layers that the log counts with the output, and elsewhere: a sentence on another
    setting that no system has. layers: of the model, without its output.
    """
    backends = {name for name in settings.get("backend", "").split(",") if name}
    on_cpu = "cpu-ik" if engine == IK else "cpu"
    if "RPC" in "+".join(backends):
        return "", "ran on several machines (RPC), which no system does"
    if "elsewhere" in settings:
        return "", settings["elsewhere"]
    if backends and backends <= _NO_GPU:
        return on_cpu, ""
    if "n_gpu_layers" not in settings:
        return "", "does not say how many layers were on the GPU"
    on_gpu, of = int(settings["n_gpu_layers"]), int(settings.get("layers", 0)) or (layers + 1 if layers else 0)
    if on_gpu == 0:
        prompt = prompt and settings.get("no_op_offload") not in ON
        return ("", "has n_gpu_layers 0, with which a GPU still takes prompts") if prompt else (on_cpu, "")
    if 0 < on_gpu < (of or ALL_LAYERS):
        where = f"{on_gpu} of {of} layers on the GPU, and no system has whole layers on the CPU"
        return "", f"has {where}" if of else f"has n_gpu_layers {on_gpu}, {UNSURE}"
    return _with_experts(settings, ik=engine == IK, prompt=prompt)


def _with_experts(settings: Mapping[str, str], *, ik: bool, prompt: bool) -> tuple[str, str]:
    cpu_moe, overrides = settings.get("n_cpu_moe", "0"), settings.get("overrides", "").replace("(?:", "(")
    if cpu_moe != "0" and overrides:
        return "", "places experts by n_cpu_moe and by overrides of tensors"
    if ":" in overrides:
        return "", "has an override with a colon, which no system takes"
    if cpu_moe == "0" and not overrides:
        return "all-gpu", ""
    if prompt and settings.get("no_op_offload") in ON:
        return "", "computed the prompt's experts on the CPU where they are (no_op_offload), which no system does"
    if prompt and ik and settings.get("repack") in ON:
        return "", "repacked the experts (rtr), so that the CPU may have computed the prompt, which no system does"
    words = ["placed-ik" if ik else "placed", f"ot={overrides}" if overrides else f"cpu_layers={cpu_moe}"]
    shares = [decimal(share) for share in settings.get("tensor_split", "").split("/")]
    if None not in shares and len(shares) > 1:
        words.append("ts=" + "/".join(f"{share:g}" for share in shares))
    ubatch = min(settings.get("ubatch", DEFAULT_UBATCH), settings.get("batch", DEFAULT_BATCH), key=int)
    words += [f"ubatch={ubatch}"] if ubatch != DEFAULT_UBATCH else []
    if prompt:  # a file is mapped unless the settings say otherwise, as in llama.cpp
        mapped = settings.get("load_mode", settings.get("mmap", "on")) in MAPPED
        words.append(f"mmap={'yes' if mapped else 'no'}")
    return ":".join(words), ""


def settings_of_command(line: str) -> dict[str, str]:
    """The settings that the flags of a command line give, as people paste it above its log.

    A number of layers such as `all` or `auto` is left to the log.
    """
    line = _FILE.sub(lambda path: path[0].replace("\\", "/"), line)
    try:
        words = shlex.split(line, comments=False)
    except ValueError:
        words = line.split()
    settings: dict[str, str] = {}
    for word, after in zip(words, [*words, ""][1:], strict=True):
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name := _NAMES.get(flag):
            _put(settings, name, value if equals else after)
        elif flag in SWITCHES:
            name, value = SWITCHES[flag]
            settings[name] = value
    if used := _USED.search(line):
        settings["experts_used"] = used[1]
    from_tokens = _OFFLOADED_FROM.search(line)
    if ",0" in settings.pop("offload_policy", "") or (from_tokens and int(from_tokens[1]) > int(DEFAULT_UBATCH)):
        settings["no_op_offload"] = "on"
    if settings.pop("device", "") == "none":
        settings["backend"] = "CPU"
    if "drafter" in settings and settings["drafter"] != "none":
        settings["elsewhere"] = "was measured with drafts"
    settings.pop("drafter", None)
    if "tensor_split" in settings:
        settings["tensor_split"] = settings["tensor_split"].replace(",", "/")
    return settings


def _put(settings: dict[str, str], name: str, value: str) -> None:
    if name in WHOLE and not (value.isascii() and value.isdecimal() and len(value) < 9):
        return
    if name == "model" and _NO_NAME.search(value):
        return
    if name == "flash_attn" and (not value or value.startswith("-")):  # once a switch
        value = "on"
    if name == "overrides" and name in settings:
        value = f"{settings[name]},{value}"
    if value:
        settings[name] = value
