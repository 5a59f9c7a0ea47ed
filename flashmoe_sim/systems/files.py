"""What a command line needs beside it: the files that it names, written, and what its other words stand for."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from flashmoe_sim.io.whole import atomic_writer, refuse_existing
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, Launch, System

MOST_VARIABLES = 2
# The words of command lines that stand for something a person has or makes.
PLACEHOLDERS = {
    "MODEL.gguf": "the model's GGUF file, the first one of a split model; give it as --model to have it here",
    "SIDECAR": "the folder that `sim model make-sidecar MODEL.gguf --out SIDECAR` writes",
    "PROFILE.json": "a profile of your own use: the file that the program writes with --moe-layer-perf-out, or that "
    "`sim trace profile TRACE PROFILE.json` makes of a trace",
    "PROFILE.csv": "a profile of your own use, as the program llama-moe-trace of the same repository writes it to the "
    "file in MOE_TRACE_OUT",
    "MODEL.gturbo": "the folder that TurboFieldfareRepack of the same repository makes of the model",
    "MODEL.nvmoe/resident.gguf": "what tools/repack_gguf.py of the same repository makes of MODEL.gguf",
    "PACKED_MODEL": "the folder with packed_experts/ that repack_experts.py of the same repository writes; the dense "
    "weights are made by metal_infer/extract_weights.py",
    "MODEL": "the folder of the model as its authors published it, in safetensors",
    "CPU_WEIGHTS": "the folder that kt-kernel/scripts/convert_cpu_weights.py of the same repository makes of MODEL; "
    "give --kt-method, too, with another format than AMXINT4",
    "CORES": "the number of the CPU's physical cores",
    "NUMA_NODES": "the number of NUMA nodes that `lscpu` counts, 1 on most desktops",
    "ACTIVATION.pt": "counts of activated experts that the program recorded of your own use, see "
    "doc/en/kt-kernel/experts-sched-Tutorial.md of the same repository",
}


def placeholders(launch: Launch) -> dict[str, str]:
    """The words of a command line that stand for something, and what it is or how to get it."""
    return {word: PLACEHOLDERS[word] for word in launch.words if word in PLACEHOLDERS}


def write_files(
    system: System, case: Case, workload: Workload | None, folder: Path, stem: str, *, force: bool = False
) -> Launch:
    """Write the files that a system's command line needs, and return the command line that names them.

    Files are named STEM.json, STEM.csv and, with more variables than two, STEM.env. workload: of this very model, as a
    profile counts its experts by number; None if the trace was made after another model's.
    Raises BadInput if a file exists without force, or cannot be written; if one exists, none is written.
    """
    launch = system.launch(case)
    named = {} if workload is None else system.files(workload)
    files = {word: (folder / (stem + Path(word).suffix), content) for word, content in named.items()}
    words = tuple(str(files[word][0]) if word in files else word for word in launch.words)
    contents = dict(files.values())
    launch = replace(launch, words=words)
    if len(launch.environment) > MOST_VARIABLES:
        path = folder / f"{stem}.env"
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in launch.environment.items()]
        contents[path] = "".join(lines).encode()
        launch = Launch(words, sourced=str(path) if path.is_absolute() else f"./{path}")
    for path in contents:
        refuse_existing(path, force=force)
    for path, content in contents.items():
        with atomic_writer(path, force=force) as stream:
            stream.write(content)
    return launch
