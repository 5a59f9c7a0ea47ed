"""What a command line needs: the files that it names, and the meaning of its other placeholders."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, Launch, System

MOST_VARIABLES = 2
ENDINGS = ("-profile.json", "-profile.csv", ".env")
# The placeholders of command lines, for things that the user has or makes.
PLACEHOLDERS = {
    "MODEL.gguf": "the model's GGUF file, the first one of a split model; given as --model, it has its name here",
    "-hf": "downloads the file from Hugging Face at the first start",
    "DRAFT.gguf": "the GGUF file of the draft model, or of the model's drafting layer",
    "SIDECAR": "the folder that `sim model make-sidecar MODEL.gguf --out SIDECAR` writes",
    "PROFILE.json": "a profile of your own use, which the program writes at its first start; `sim trace profile TRACE "
    "PROFILE.json` makes it of a trace",
    "PROFILE.csv": "a profile of your own use, as the program llama-moe-trace of the same repository writes it to the "
    "file in MOE_TRACE_OUT",
    "MODEL.gturbo": "the folder that TurboFieldfareRepack of the same repository makes of the model",
    "MODEL.nvmoe/resident.gguf": "what tools/repack_gguf.py of the same repository makes of MODEL.gguf",
    "PACKED_MODEL": "the folder with packed_experts/ that repack_experts.py of the same repository writes; the dense "
    "weights are made by metal_infer/extract_weights.py",
    "PACK": "the folder that tools/iq_pack.py of the same repository makes of the model",
    "MTP": "the folder of the model's drafting layer that the program's setup writes",
    "MODEL": "the folder of the model as its authors published it, in safetensors",
    "COLI_MODEL": "the folder of the model: what `coli convert` writes, or as its authors published it for DeepSeek V4",
    "MLX_MODEL": "the model in MLX's format: a folder, or a name of Hugging Face such as "
    "mlx-community/Qwen3-30B-A3B-4bit; `mlx_lm.convert -q` makes it of the model that its authors published",
    "MLX_DRAFT": "the draft model in MLX's format",
    "CORES": "the number of the CPU's physical cores, of unequal ones the fast ones; llama.cpp counts them itself",
    "PROMPT": "your question, in quotes",
    "RPC_HOSTS": "the other machines as HOST:PORT, with commas between them; each runs the same version's "
    "`rpc-server -H 0.0.0.0 -p PORT`, which anybody in its network can use",
    "NUMA_NODES": "the number of NUMA nodes that `lscpu` counts, 1 on most desktops",
    "ACTIVATION.pt": "counts of activated experts that the program recorded of your own use, see "
    "doc/en/kt-kernel/experts-sched-Tutorial.md of the same repository",
}


def placeholders(launch: Launch) -> dict[str, str]:
    """The placeholders in a command line, and what they are or how to get them."""
    return {word: PLACEHOLDERS[word] for word in (*launch.words, *launch.first_start) if word in PLACEHOLDERS}


def possible_files(folder: Path, stem: str) -> list[Path]:
    """The files that `with_files` may name."""
    return [folder / f"{stem}{ending}" for ending in ENDINGS]


def with_files(
    system: System, case: Case, workload: Workload | None, folder: Path, stem: str
) -> tuple[Launch, dict[Path, bytes]]:
    """A system's command line with the names of the files that it needs, and the content of each file.

    Files are named STEM-profile.json, STEM-profile.csv and, with more than two variables for a POSIX shell, STEM.env.
    workload: of this very model, since a profile counts experts by number; None if the trace was made from another
        model's.
    """
    launch = system.started(case)
    named = {} if workload is None else system.files(workload)
    paths = {word: folder / f"{stem}-{word.lower()}" for word in named}
    files = {paths[word]: content for word, content in named.items()}
    launch = replace(launch, words=tuple(str(paths.get(word, word)) for word in launch.words))
    if files:
        launch = replace(launch, first_start=())
    if len(launch.environment) > MOST_VARIABLES and not launch.powershell:
        path = folder / f"{stem}.env"
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in launch.environment.items()]
        files[path] = "".join(lines).encode()
        launch = Launch(
            launch.words, first_start=launch.first_start, sourced=str(path) if path.is_absolute() else f"./{path}"
        )
    return launch, files


def write_together(files: Mapping[Path, bytes], *, force: bool = False) -> None:
    """Write all files, or none; one that is there already, with the same content, stays.

    Raises BadInput if one of them exists without force, or cannot be written.
    """
    with ExitStack() as stack:
        for path, content in files.items():
            if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
                continue
            stream = stack.enter_context(atomic_writer(path, force=force))
            stream.write(content)
            stream.flush()  # a full disk is met here, before any file has its name
