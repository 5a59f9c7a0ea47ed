"""`sim trace capture`: a trace recorded from a model that runs here, or from a server that is already running."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

from flashmoe_sim.cli.common import message, stoppable
from flashmoe_sim.cli.progress import working
from flashmoe_sim.io.errors import Conflict, Incomplete, Interrupted, Malformed, OutOfRange
from flashmoe_sim.io.provenance import program
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.options import FORCE, option_field
from flashmoe_sim.verbs.base import Verb
from native_bridge.verbs.base import read_prompt, refuse_given

MOST_BYTES = 256 << 20  # of a file of prompts
LOCAL = ("ubatch", "ctx", "gpu_layers", "threads", "weights", "lookahead")
SERVER = ("served_model", "top_k", "chat", "api_key_env", "timeout")


@dataclass(frozen=True, kw_only=True)
class Capture(Verb[dict[str, Any]]):
    """Record what the routers of a model choose; the result is the document of --json."""

    help: ClassVar[str] = """Run a model over a prompt and its answer, and record every routed call.

    GGUF files of any mixture-of-experts architecture run in llama.cpp, unpatched, through llama-cpp-python; folders of
    the transformers library in torch. All experts are computed with their own weights, so the trace does not depend on
    any bank. It is written while the model runs: after an interruption, what was written is usable.

    --server asks a server of vLLM or SGLang that returns routed experts (docs/guides/capture.md has its flags), one
    prompt after another. Each answer is stored unchanged; the same command resumes if it was stopped.

    \b
    Examples:  sim trace capture --model model.gguf --prompt-file text.txt \\
               --tokens 500
               sim trace capture --server http://127.0.0.1:8000 \\
               --prompt-file prompts.jsonl
    """

    model: Path | None = option_field(
        None,
        "FILE",
        "A GGUF file (any one of a split model), or a folder of the transformers library. With --server: what it "
        "serves, as other verbs take it; its experts are checked, and SGLang needs its top-k.",
    )
    server: str | None = option_field(
        None, "URL", "Ask a running server of vLLM or SGLang instead: http://127.0.0.1:8000."
    )
    prompt: str | None = option_field(None, "TEXT", "The text to begin with, as it is, without a chat template.")
    prompt_file: Path | None = option_field(
        None,
        "FILE",
        "A file with that text; with --server also .jsonl, a prompt a line: a string, or an object with `prompt`.",
    )
    out: Path | None = option_field(
        None,
        "FILE",
        "The trace; its name ends in .jsonl, .jsonl.gz or .jsonl.zst; default: trace.jsonl.zst. With --server: a "
        ".jsonl file, default answers.jsonl; answers that are in it are not asked again.",
    )
    tokens: int = option_field(128, "N", "Tokens to decode at most.", least=0)
    ubatch: int | None = option_field(
        None, "N", "Prompt tokens per micro-batch, which is one routed call; default: 512.", least=1, most=1 << 16
    )
    ctx: int | None = option_field(None, "N", "Context size in tokens; default: the prompt and --tokens.", least=1)
    gpu_layers: int | None = option_field(None, "N", "Layers on the GPU; -1: all; default: 0.", least=-1)
    threads: int | None = option_field(None, "N", "Threads; the library's own default if not given.", least=1)
    temp: float = option_field(0.0, "T", "0 takes the likeliest token, more draws from the likeliest 40.", least=0)
    seed: int = option_field(1, "N", "Seed of the random draws.", least=0)
    weights: bool | None = option_field(
        None, "", "Record gate weights, too; default: yes.", flag="--weights/--no-weights"
    )
    lookahead: int | None = option_field(
        None,
        "N",
        "Also record what the gates of the next N layers choose for the state of this one, for the predictor "
        "`recorded`; for folders of transformers.",
        least=1,
    )
    served_model: str | None = option_field(None, "NAME", "With --server: the model to ask, if it serves several.")
    top_k: int | None = option_field(None, "K", "With --server: experts per token, without --model.", least=1)
    chat: bool = option_field(False, "", "With --server: a prompt is a user's message, in the model's chat template.")
    api_key_env: str | None = option_field(
        None, "NAME", "With --server: the environment variable that holds its API key; default OPENAI_API_KEY, if set."
    )
    timeout: float | None = option_field(
        None, "S", "With --server: seconds for each whole answer; default: 600.", above=0, most=1_000_000
    )
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> dict[str, Any]:
        if self.server is not None:
            refuse_given(self, LOCAL, "is for models that run here")
            return self._ask(self.server)
        refuse_given(self, SERVER, "is of --server")
        if self.model is None:
            raise Incomplete("give --model for a model to run here, or --server for one that runs")
        return self._run(self.model)

    def _run(self, model: Path) -> dict[str, Any]:
        from native_bridge.capture.record import TraceWriter
        from native_bridge.capture.session import CaptureRequest, capture, open_model

        out, ubatch = self.out or Path("trace.jsonl.zst"), self.ubatch or 512
        request = CaptureRequest(
            _prompt(self.prompt, self.prompt_file), self.tokens, ubatch, self.ctx or 0, self.temp, self.seed
        )
        origin: dict[str, Any] = {
            "program": program(),
            "model": model.name,
            "prompt_sha256": hashlib.sha256(request.prompt.encode()).hexdigest(),
            "ubatch": ubatch,
            "temperature": self.temp,
            "seed": self.seed,
        } | ({} if self.lookahead is None else {"lookahead": self.lookahead})
        begun = perf_counter()
        writer = TraceWriter(out, origin=origin, force=self.force)
        try:
            with (
                stoppable(),
                writer,
                open_model(
                    model,
                    ubatch=ubatch,
                    threads=self.threads or 0,
                    gpu_layers=self.gpu_layers or 0,
                    weights=self.weights is not False,
                    lookahead=self.lookahead or 0,
                ) as engine,
                working("capturing") as progress,
            ):
                origin |= {"library": engine.library, "architecture": engine.architecture}
                loaded = perf_counter()
                done = capture(engine, request, writer, progress=progress)
                seconds = perf_counter() - loaded
        except KeyboardInterrupt:
            kept = f"{out} has the {writer.steps} steps up to there" if writer.steps else "nothing was written"
            raise Interrupted(f"interrupted; {kept}") from None
        return {
            "out": str(out),
            "model": model.name,
            "architecture": engine.architecture,
            "library": origin["library"],
            "layers": len(engine.n_experts),
            "n_experts": max(engine.n_experts.values()),
            "prompt_tokens": done.prompt_tokens,
            "said_tokens": len(done.generated),
            "steps": writer.steps,
            "calls": writer.calls,
            "bytes": writer.written_bytes,
            "load_seconds": loaded - begun,
            "seconds": seconds,
            "text": done.text,
        }

    def _ask(self, url: str) -> dict[str, Any]:
        """Ask a server every prompt that has no answer in the file yet."""
        from flashmoe_sim.geometry.load import load_model
        from flashmoe_sim.geometry.recordings import hints_of
        from flashmoe_sim.trace.load import load_trace
        from native_bridge.capture.answers import Answers, ask_all
        from native_bridge.capture.server import AnswerOptions, find_server, key_of

        prompts, out = prompts_of(self.prompt, self.prompt_file), self.out or Path("answers.jsonl")
        if not self.tokens:
            raise OutOfRange("--tokens 0: a server generates at least one token; give 1 or more")
        geometry = None if self.model is None else load_model(str(self.model))
        hints = hints_of(geometry, **({} if self.top_k is None else {"top_k": self.top_k}))
        server = find_server(url, timeout_s=self.timeout or 600.0, key=key_of(self.api_key_env))
        options = AnswerOptions(server.model(self.served_model), self.tokens, self.temp, self.seed, self.chat)
        if server.engine == "SGLang" and not hints.top_k:
            raise Incomplete(f"{server.url}: SGLang does not send a token's number of experts; give --model or --top-k")
        begun = perf_counter()
        answers = Answers(out, options, force=self.force)
        try:
            with stoppable(), answers, working("capturing") as progress:
                now, before = ask_all(server, prompts, answers, hints=hints, progress=progress)
        except KeyboardInterrupt:
            count = answers.kept.total()
            kept = f"{out} has {count:,} answer{'s' if count > 1 else ''}, the same command goes on"
            raise Interrupted(f"interrupted; {kept if count else 'nothing was written'}") from None
        seconds = perf_counter() - begun
        trace = load_trace(out, hints=hints)
        for note in trace.notes:
            message(f"{out}: {note}")
        return {
            "out": str(out),
            "server": server.url,
            "engine": server.engine,
            "model": options.model,
            "prompts": now,
            "kept_prompts": before,
            "answers": answers.kept.total(),
            "layers": len(trace.layers),
            "top_k": trace.top_k,
            "tokens": trace.tokens,
            "steps": len(set(trace.steps.tolist())),
            "calls": trace.calls,
            "bytes": answers.written_bytes,
            "seconds": seconds,
        }

    def document(self, found: dict[str, Any]) -> dict[str, Any]:
        return found

    def sections(self, found: dict[str, Any]) -> list[Section]:
        rows = [
            *(_of_model(found) if self.server is None else _of_server(found)),
            ("calls", f"{found['calls']:,} in {found['steps']:,} steps"),
            ("time", _time(found)),
            ("trace", f"{found['out']}, {size(found['bytes'])}"),
        ]
        return [Section("", (Table((("", "left"), ("", "left")), rows),))]


def _of_model(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("model", f"{found['model']} ({found['architecture']}), in {found['library']}"),
        ("experts", f"{found['n_experts']:,} in each of {found['layers']:,} layers"),
        ("tokens", f"{found['prompt_tokens']:,} of the prompt, {found['said_tokens']:,} generated"),
    ]


def _of_server(found: dict[str, Any]) -> list[tuple[str, str]]:
    before = f", {found['kept_prompts']:,} before" if found["kept_prompts"] else ""
    return [
        ("model", f"{found['model']}, in {found['engine'] or 'a server'} at {found['server']}"),
        ("experts", f"{found['top_k']} a token in each of {found['layers']:,} layers"),
        ("prompts", f"{found['prompts']:,} answered now{before}"),
        ("tokens", f"{found['tokens']:,} in all, one request after another"),
    ]


def _time(found: dict[str, Any]) -> str:
    loading = f", after {found['load_seconds']:.1f} s of loading" if "load_seconds" in found else ""
    return f"{found['seconds']:.1f} s{loading}"


def prompts_of(text: str | None, file: Path | None) -> list[str]:
    """The prompts for a server: a text, a file that is one, or the lines of a .jsonl file."""
    if file is None or file.suffix != ".jsonl":
        return [_prompt(text, file)]
    import orjson

    prompts = []
    for number, line in enumerate(_prompt(text, file).split("\n"), 1):
        if not line.strip():
            continue
        try:
            given = orjson.loads(line)
        except orjson.JSONDecodeError:
            given = None
        prompt = given.get("prompt") if isinstance(given, dict) else given
        if not isinstance(prompt, str) or not prompt.strip():
            raise Malformed(f"{file}: line {number} holds no prompt; expected a JSON string or an object with `prompt`")
        prompts.append(prompt)
    return prompts


def _prompt(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise Conflict("give the text to begin with: either --prompt or --prompt-file")
    if file is not None:
        text = read_prompt(file, most_bytes=MOST_BYTES).replace("\r\n", "\n").replace("\r", "\n")
    assert text is not None
    if not text.strip():
        raise Incomplete("the prompt is empty; give a text")
    return text
