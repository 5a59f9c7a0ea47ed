"""`sim trace capture`: a trace recorded from a model that runs here, or from a server that is already running."""

from __future__ import annotations

import hashlib
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from click.core import ParameterSource

from flashmoe_sim.cli.common import FiniteRange, Interrupted, force_option, json_option, print_json, print_table
from flashmoe_sim.cli.progress import capturing
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sections import Table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.io.version import program

MOST_BYTES = 256 << 20  # of a file of prompts
LOCAL = ("ubatch", "ctx", "gpu_layers", "threads", "weights")
SERVER = ("served_model", "top_k", "chat", "api_key_env", "timeout")


@click.command(
    short_help="Record what the routers of a model choose.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="A GGUF file (any one of a split model), or a folder of the transformers library. With --server: what it "
    "serves, as other verbs take it; its experts are checked, and SGLang needs its top-k.",
)
@click.option("--server", metavar="URL", help="Ask a running server of vLLM or SGLang instead: http://127.0.0.1:8000.")
@click.option("--prompt", metavar="TEXT", help="The text to begin with, as it is, without a chat template.")
@click.option(
    "--prompt-file",
    type=click.Path(path_type=Path),
    help="A file with that text; with --server also .jsonl, a prompt a line: a string, or an object with `prompt`.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The trace; its name ends in .jsonl, .jsonl.gz or .jsonl.zst; default: trace.jsonl.zst. With --server: a "
    ".jsonl file, default answers.jsonl; answers that are in it are not asked again.",
)
@click.option("--tokens", type=click.IntRange(0), default=128, show_default=True, help="Tokens to decode at most.")
@click.option(
    "--ubatch",
    type=click.IntRange(1, 1 << 16),
    default=512,
    show_default=True,
    metavar="N",
    help="Prompt tokens per micro-batch, which is one routed call.",
)
@click.option(
    "--ctx", type=click.IntRange(1), metavar="N", help="Context size in tokens; default: the prompt and --tokens."
)
@click.option("--gpu-layers", type=click.IntRange(-1), default=0, metavar="N", help="Layers on the GPU; -1: all.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads; the library's own default if not given.")
@click.option(
    "--temp",
    type=FiniteRange(0),
    default=0.0,
    metavar="T",
    help="0 takes the likeliest token, more draws from the likeliest 40.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="Seed of the random draws."
)
@click.option("--weights/--no-weights", default=True, help="Record gate weights, too.")
@click.option("--served-model", metavar="NAME", help="With --server: the model to ask, if it serves several.")
@click.option("--top-k", type=click.IntRange(1), metavar="K", help="With --server: experts per token, without --model.")
@click.option("--chat", is_flag=True, help="With --server: a prompt is a user's message, in the model's chat template.")
@click.option(
    "--api-key-env",
    metavar="NAME",
    help="With --server: the environment variable that holds its API key; default OPENAI_API_KEY, if set.",
)
@click.option(
    "--timeout",
    type=FiniteRange(0, 1_000_000, min_open=True),
    default=600.0,
    show_default=True,
    metavar="S",
    help="With --server: seconds for each whole answer.",
)
@force_option
@json_option
def capture(
    *,
    model: Path | None,
    server: str | None,
    prompt: str | None,
    prompt_file: Path | None,
    out: Path | None,
    tokens: int,
    ubatch: int,
    ctx: int | None,
    gpu_layers: int,
    threads: int | None,
    temp: float,
    seed: int,
    weights: bool,
    served_model: str | None,
    top_k: int | None,
    chat: bool,
    api_key_env: str | None,
    timeout: float,
    force: bool,
    as_json: bool,
) -> None:
    """Run a model over a prompt and its answer, and record every routed call.

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
    _check_options(of_server=server is not None)
    if server is not None:
        from native_bridge.cli.trace_capture_server import capture_server

        capture_server(
            server,
            prompts_of(prompt, prompt_file),
            out or Path("answers.jsonl"),
            model=None if model is None else str(model),
            served_model=served_model,
            top_k=top_k,
            tokens=tokens,
            temperature=temp,
            seed=seed,
            chat=chat,
            api_key_env=api_key_env,
            timeout_s=timeout,
            force=force,
            as_json=as_json,
        )
        return
    if model is None:
        raise click.UsageError("give --model for a model to run here, or --server for one that runs")
    out = out or Path("trace.jsonl.zst")
    from native_bridge.capture.interrupts import sigterm_is_ctrl_c
    from native_bridge.capture.opening import open_model
    from native_bridge.capture.record import TraceWriter
    from native_bridge.capture.session import Request
    from native_bridge.capture.session import capture as run

    request = Request(_prompt(prompt, prompt_file), tokens, ubatch, ctx or 0, temp, seed)
    origin: dict[str, Any] = {
        "program": program(),
        "model": model.name,
        "prompt_sha256": hashlib.sha256(request.prompt.encode()).hexdigest(),
        "ubatch": ubatch,
        "temperature": temp,
        "seed": seed,
    }
    begun = perf_counter()
    writer = TraceWriter(out, origin=origin, force=force)
    try:
        with (
            sigterm_is_ctrl_c(),
            writer,
            open_model(model, ubatch=ubatch, threads=threads or 0, gpu_layers=gpu_layers, weights=weights) as engine,
            capturing() as progress,
        ):
            origin |= {"library": engine.library, "architecture": engine.architecture}
            loaded = perf_counter()
            done = run(engine, request, writer, progress=progress)
            seconds = perf_counter() - loaded
    except KeyboardInterrupt:
        kept = f"{out} has the {writer.steps} steps up to there" if writer.steps else "nothing was written"
        raise Interrupted(f"interrupted; {kept}") from None
    report = {
        "out": str(out),
        "model": model.name,
        "architecture": engine.architecture,
        "library": origin["library"],
        "layers": len(engine.n_experts),
        "n_experts": max(engine.n_experts.values()),
        "prompt_tokens": done.prompt_tokens,
        "said_tokens": len(done.said),
        "steps": writer.steps,
        "calls": writer.calls,
        "bytes": writer.written_bytes,
        "load_seconds": loaded - begun,
        "seconds": seconds,
        "text": done.text,
    }
    if as_json:
        print_json(report)
    else:
        _print(report)


def _check_options(*, of_server: bool) -> None:
    """Raise UsageError for an option that applies only without --server, or only with it."""
    source = click.get_current_context().get_parameter_source
    idle = LOCAL if of_server else SERVER
    if given := [name for name in idle if source(name) is ParameterSource.COMMANDLINE]:
        option = f"--{given[0].replace('_', '-')}"
        raise click.UsageError(f"{option} is for models that run here" if of_server else f"{option} is of --server")


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
            raise BadInput(f"{file}: line {number} holds no prompt; expected a JSON string or an object with `prompt`")
        prompts.append(prompt)
    return prompts


def _prompt(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise click.UsageError("give the text to begin with: either --prompt or --prompt-file")
    if file is not None:
        try:
            with file.open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise BadInput(f"{file}: more than {MOST_BYTES >> 20} MiB; give a text, or fewer prompts at once")
            text = content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        except FileNotFoundError:
            raise BadInput(f"{file}: no such file; give a text file") from None
        except UnicodeDecodeError as error:
            raise BadInput(f"{file}: is not UTF-8 (byte {error.start}); give a text file") from None
        except OSError as error:
            raise BadInput(f"{file}: cannot be read ({error.strerror or error})") from None
    assert text is not None
    if not text.strip():
        raise BadInput("the prompt is empty; give a text")
    return text


def _print(report: dict[str, Any]) -> None:
    rows = [
        ("model", f"{report['model']} ({report['architecture']}), in {report['library']}"),
        ("experts", f"{report['n_experts']:,} in each of {report['layers']:,} layers"),
        ("tokens", f"{report['prompt_tokens']:,} of the prompt, {report['said_tokens']:,} generated"),
        ("calls", f"{report['calls']:,} in {report['steps']:,} steps"),
        ("time", f"{report['seconds']:.1f} s, after {report['load_seconds']:.1f} s of loading"),
        ("trace", f"{report['out']}, {size(report['bytes'])}"),
    ]
    print_table(Table((("", "left"), ("", "left")), rows))
