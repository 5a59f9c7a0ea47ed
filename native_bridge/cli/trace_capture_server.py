"""`sim trace capture --server`: a trace from the answers of a running server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from flashmoe_sim.cli.common import Interrupted, message, print_json, print_table
from flashmoe_sim.cli.progress import capturing
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sections import Table
from flashmoe_sim.io.sizes import size


def capture_server(
    url: str,
    prompts: Sequence[str],
    out: Path,
    *,
    model: str | None,
    served_model: str | None,
    top_k: int | None,
    tokens: int,
    temperature: float,
    seed: int,
    chat: bool,
    api_key_env: str | None,
    timeout_s: float,
    force: bool,
    as_json: bool,
) -> None:
    """Ask a server every prompt that has no answer in `out` yet, and report the result."""
    from flashmoe_sim.geometry.hints import hints_of
    from flashmoe_sim.geometry.load import load_model
    from flashmoe_sim.trace.load import load_trace
    from native_bridge.capture.answers import Answers
    from native_bridge.capture.from_server import ask_all
    from native_bridge.capture.interrupts import sigterm_is_ctrl_c
    from native_bridge.capture.server import Asked, find_server, key_of

    if not tokens:
        raise BadInput("--tokens 0: a server generates at least one token; give 1 or more")
    geometry = None if model is None else load_model(model)
    hints = hints_of(geometry, **({} if top_k is None else {"top_k": top_k}))
    server = find_server(url, timeout_s=timeout_s, key=key_of(api_key_env))
    asked = Asked(server.model(served_model), tokens, temperature, seed, chat)
    if server.engine == "SGLang" and not hints.top_k:
        raise BadInput(f"{server.url}: SGLang does not send a token's number of experts; give --model or --top-k")
    begun = perf_counter()
    answers = Answers(out, asked, force=force)
    try:
        with sigterm_is_ctrl_c(), answers, capturing() as progress:
            done = ask_all(server, prompts, answers, hints=hints, progress=progress)
    except KeyboardInterrupt:
        count = answers.kept.total()
        kept = f"{out} has {count:,} answer{'s' if count > 1 else ''}, the same command goes on"
        raise Interrupted(f"interrupted; {kept if count else 'nothing was written'}") from None
    seconds = perf_counter() - begun
    trace = load_trace(out, hints=hints)
    report = {
        "out": str(out),
        "server": server.url,
        "engine": server.engine,
        "model": asked.model,
        "prompts": done.prompts,
        "kept_prompts": done.kept,
        "answers": answers.kept.total(),
        "layers": len(trace.layers),
        "top_k": trace.top_k,
        "tokens": trace.tokens,
        "steps": len(set(trace.steps.tolist())),
        "calls": trace.calls,
        "bytes": answers.written_bytes,
        "seconds": seconds,
    }
    if as_json:
        print_json(report)
    else:
        _print(report)
    for note in trace.notes:
        message(f"{out}: {note}")


def _print(report: dict[str, Any]) -> None:
    before = f", {report['kept_prompts']:,} before" if report["kept_prompts"] else ""
    rows = [
        ("model", f"{report['model']}, in {report['engine'] or 'a server'} at {report['server']}"),
        ("experts", f"{report['top_k']} a token in each of {report['layers']:,} layers"),
        ("prompts", f"{report['prompts']:,} answered now{before}"),
        ("tokens", f"{report['tokens']:,} in all, one request after another"),
        ("calls", f"{report['calls']:,} in {report['steps']:,} steps"),
        ("time", f"{report['seconds']:.1f} s"),
        ("trace", f"{report['out']}, {size(report['bytes'])}"),
    ]
    print_table(Table((("", "left"), ("", "left")), rows))
