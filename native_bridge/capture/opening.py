"""A model of any supported kind, ready to run."""

from __future__ import annotations

from pathlib import Path

from flashmoe_sim.io.errors import BadInput
from native_bridge.capture.session import Engine


def open_model(path: Path, *, ubatch: int, threads: int, gpu_layers: int, weights: bool, lookahead: int = 0) -> Engine:
    """The loaded model of a GGUF file or of a transformers folder; a context manager.

    Raises BadInput for a path that is neither, a model without routed experts, and if the library is missing.
    """
    if not path.is_dir():
        if lookahead:
            raise BadInput(f"{path}: --lookahead is for folders of the transformers library, not for GGUF files")
        from native_bridge.capture.llama_cpp import LlamaCpp

        return LlamaCpp(path, ubatch=ubatch, threads=threads, gpu_layers=gpu_layers, weights=weights)
    if not (path / "config.json").is_file():
        raise BadInput(
            f"{path}: a folder without config.json; give a GGUF file, or a folder of the transformers library"
        )
    if gpu_layers:
        raise BadInput(f"{path}: --gpu-layers is for GGUF files; models of transformers are run on the CPU")
    from native_bridge.capture.transformers import Transformers

    return Transformers(path, threads=threads, weights=weights, lookahead=lookahead)
