"""llama.cpp through llama-cpp-python's low-level functions: any mixture-of-experts GGUF, on CPU or GPU."""

from __future__ import annotations

import ctypes
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.io.errors import Missing, SimError, TooLarge, Unusable
from native_bridge.capture.record import RoutedCall
from native_bridge.capture.tensors import PREFIX, Ggml, RouterTap
from native_bridge.host import physical_cores

INSTALL = "CMAKE_ARGS=-DGGML_NATIVE=OFF pip install '.[capture]'"
ERROR_LEVEL = 4

_kept_for_c: list[object] = []  # C keeps no references to what it calls


class LlamaCpp:
    """A model and one sequence of tokens; an `Engine`.

    path: the GGUF file, or any file of a split model.
    ubatch: the most tokens in a micro-batch.
    threads: 0 for the number of cores.
    gpu_layers: layers on the GPU, -1 for all, if the library was built for one.
    weights: whether gate weights are recorded.

    Raises BadInput if the file is not a mixture-of-experts model (by its header), or the library is missing or cannot
    load it.
    """

    def __init__(
        self,
        path: Path,
        *,
        ubatch: int = 512,
        threads: int = 0,
        gpu_layers: int = 0,
        weights: bool = True,
    ) -> None:
        geometry = read_gguf(path)
        self.architecture = geometry.arch
        self.n_experts = {number: layer.n_experts for number, layer in geometry.layers.items()}
        self._lib, self._messages = _library()
        self._messages.clear()
        self._path = path.with_name(re.sub(r"-\d{5}(-of-\d{5}\.gguf)$", r"-00001\1", path.name))  # of a split model
        self._ubatch = ubatch
        self._threads = threads or physical_cores()
        self._context: Any = None
        self._stopped: BaseException | None = None
        self._tap = RouterTap(weights=weights)
        self._model = self._load(gpu_layers)
        self._vocabulary = self._lib.llama_model_get_vocab(self._model)
        self._ggml = Ggml(_ggml_library())
        self._name_offset = -1
        self._position = 0
        self._batch = self._lib.llama_batch_init(ubatch, 0, 1)
        self.trained_context = int(self._lib.llama_model_n_ctx_train(self._model))
        self.library = f"llama-cpp-python {self._lib.__version__}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.llama_batch_free(self._batch)
        if self._context:
            self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)

    def tokenize(self, text: str) -> list[int]:
        raw = text.encode()
        tokens = (ctypes.c_int32 * (len(raw) + 8))()
        count = self._lib.llama_tokenize(self._vocabulary, raw, len(raw), tokens, len(tokens), True, True)
        if count < 0:
            raise SimError(f"{self._path}: the prompt has more tokens than bytes; the vocabulary is damaged")
        return list(tokens[:count])

    def begin(self, context: int) -> None:
        parameters = self._lib.llama_context_default_params()
        parameters.n_ctx = context
        parameters.n_batch = parameters.n_ubatch = self._ubatch
        parameters.n_threads = parameters.n_threads_batch = self._threads
        parameters.no_perf = True
        self._callback = self._lib.ggml_backend_sched_eval_callback(self._see)
        parameters.cb_eval = self._callback
        self._context = self._lib.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise TooLarge(f"{self._path}: no context of {context} tokens for it{self._reason()}; give a smaller --ctx")

    def evaluate(self, tokens: Sequence[int], *, output: bool) -> list[RoutedCall]:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = self._position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = output and i == len(tokens) - 1
        with _interrupts_wait(self._stop):
            code = self._lib.llama_decode(self._context, batch)
        if self._stopped:
            raise self._stopped
        if code:
            raise SimError(f"{self._path}: llama.cpp could not evaluate {len(tokens)} tokens{self._reason()}")
        self._position += len(tokens)
        return self._tap.calls()

    def logits(self) -> NDArray[np.float32]:
        values = self._lib.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(values, (self._lib.llama_vocab_n_tokens(self._vocabulary),)).copy()

    def is_end(self, token: int) -> bool:
        return bool(self._lib.llama_vocab_is_eog(self._vocabulary, token))

    def text(self, tokens: Sequence[int]) -> str:
        piece = ctypes.create_string_buffer(1 << 10)
        length = ctypes.sizeof(piece)
        pieces = []
        for token in tokens:
            count = self._lib.llama_token_to_piece(self._vocabulary, token, piece, length, 0, False)
            pieces.append(piece.raw[: max(count, 0)])
        return b"".join(pieces).decode("utf-8", "replace")

    def _load(self, gpu_layers: int) -> Any:
        parameters = self._lib.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        goes_on = self._lib.llama_progress_callback(lambda share, _: self._stopped is None)
        parameters.progress_callback = goes_on
        with _interrupts_wait(self._stop):
            model = self._lib.llama_model_load_from_file(str(self._path).encode(), parameters)
        if self._stopped:
            raise self._stopped
        if not model:
            raise Unusable(f"{self._path}: llama.cpp cannot load it{self._reason()}")
        return model

    def _see(self, tensor: int, ask: bool, _: int) -> bool:
        """llama.cpp asks for each tensor whether its values are wanted, and passes those that are.

        An exception would be lost in C: it is stored, and the evaluation ends.
        """
        try:
            if self._stopped:
                return False
            name = self._name(tensor)
            if not name.startswith(PREFIX) or not self._tap.wants(name):
                return False
            if not ask:
                self._tap.take(name, self._ggml.values(tensor))
        except Exception as error:
            self._stop(error)
            return False
        return True

    def _name(self, tensor: int) -> bytes:
        if self._name_offset < 0:
            self._name_offset = self._ggml.name_at(tensor) - tensor
        return ctypes.string_at(tensor + self._name_offset)

    def _stop(self, why: BaseException) -> None:
        self._stopped = self._stopped or why

    def _reason(self) -> str:
        """llama.cpp's first error message."""
        return f" ({self._messages[0]})" if self._messages else ""


@contextmanager
def _interrupts_wait(stop: Callable[[BaseException], None]) -> Iterator[None]:
    """In the block, both pass a KeyboardInterrupt to `stop`, unless they are ignored, and raise nothing.

    An exception could occur in a function called from C, and be lost. Only the main thread gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: old for number, old in before.items() if old not in {signal.SIG_IGN, None}}
    for number in before:
        signal.signal(number, lambda *_: stop(KeyboardInterrupt()))
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@cache
def _library() -> tuple[Any, list[str]]:
    """The library, and the list that collects its messages instead of stderr."""
    try:
        import llama_cpp
    except ModuleNotFoundError:
        raise Missing(
            f"llama-cpp-python is not installed; to capture from GGUF files: {INSTALL} "
            "(compiles llama.cpp; in a container or virtual machine leave GGML_NATIVE off)"
        ) from None
    except (ImportError, OSError, RuntimeError) as error:
        raise Unusable(f"llama-cpp-python is installed, but broken ({error}); install it again: {INSTALL}") from None
    messages: list[str] = []

    def log(level: int, text: bytes, _: int) -> None:
        if level == ERROR_LEVEL and text.strip():
            messages.append(text.decode("utf-8", "replace").strip())

    callback = llama_cpp.llama_log_callback(log)
    llama_cpp.llama_log_set(callback, None)
    _kept_for_c.append(callback)
    llama_cpp.llama_backend_init()
    return llama_cpp, messages


def _ggml_library() -> ctypes.CDLL:
    from llama_cpp._ggml import libggml

    return cast(ctypes.CDLL, libggml)
