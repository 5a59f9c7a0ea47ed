"""The command line of a llama.cpp program, as people paste it above its log."""

from __future__ import annotations

import shlex

FLAGS = {  # with a value; names in `Measured.settings`
    "n_cpu_moe": ("--n-cpu-moe", "-ncmoe"),
    "n_gpu_layers": ("-ngl", "--n-gpu-layers", "--gpu-layers"),
    "overrides": ("-ot", "--override-tensor"),
    "tensor_split": ("-ts", "--tensor-split"),
    "ubatch": ("-ub", "--ubatch-size"),
    "batch": ("-b", "--batch-size"),
    "threads": ("-t", "--threads"),
    "load_mode": ("-lm", "--load-mode"),
    "type_k": ("-ctk", "--cache-type-k"),
    "type_v": ("-ctv", "--cache-type-v"),
    "model": ("-m", "--model", "-hf", "--hf-repo"),
    "device": ("-dev", "--device"),
    "drafter": ("-md", "--model-draft", "--spec-type", "--spec-draft-model"),
}
WHOLE = ("n_cpu_moe", "n_gpu_layers", "ubatch", "batch", "threads")
_NAMES = {flag: name for name, flags in FLAGS.items() for flag in flags}


def settings_of_command(line: str) -> dict[str, str]:
    """The settings that its flags tell. A number of layers such as `all` or `auto` is left to the log."""
    try:
        words = shlex.split(line, comments=False)
    except ValueError:
        words = line.split()
    settings: dict[str, str] = {}
    for word, after in zip(words, [*words, ""][1:], strict=True):
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name := _NAMES.get(flag):
            _put(settings, name, value if equals else after)
        elif flag in ("-cmoe", "--cpu-moe"):
            settings["overrides"] = "exps=CPU"
        elif flag in ("--mmap", "--no-mmap"):
            settings["mmap"] = "off" if flag == "--no-mmap" else "on"
        elif flag in ("-nkvo", "--no-kv-offload"):
            settings["elsewhere"] = "has the context in RAM (--no-kv-offload), which no system does"
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
    if name == "overrides" and name in settings:
        value = f"{settings[name]},{value}"
    if value:
        settings[name] = value
