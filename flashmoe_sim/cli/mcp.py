"""`sim mcp`: the answers as tools of an assistant, by the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.io.errors import BadInput, Conflict, Missing
from flashmoe_sim.io.provenance import program, version

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from flashmoe_sim.tune.recommend import Recommendation

INSTALL = "pip install '.[mcp]'"
SAY = "Speeds are predicted: pass one on only with its range, which holds nine times in ten."
INSTRUCTIONS = f"""How fast a mixture-of-experts model runs on a computer, with which engine and which flags.
A model is written as people write it: a Hugging Face repository with or without :QUANTIZATION, the name of a GGUF file,
gpt-oss-120b. A computer is its parts, joined by +: "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4 + linux"; a
Mac is "m4-max-128"; "this" is the one that the server runs on. {SAY}"""
MOST = 12  # rows of a comparison


@click.command(name="mcp")
def command() -> None:
    """Answer an assistant: an MCP server on stdin and stdout, with recommend, explain, compare and what_can_i_run.

    \b
    An assistant starts it by itself; its settings name the command:
      {"mcpServers": {"flashmoe-sim": {"command": "sim", "args": ["mcp"]}}}
    """
    made().run()


def made() -> MCPServer:
    """The server. Raises BadInput if the package mcp is not installed."""
    try:
        from mcp.server import MCPServer
    except ImportError:
        raise Missing(f"the server needs the package mcp: {INSTALL}") from None
    server: MCPServer = MCPServer("flashmoe-sim", instructions=INSTRUCTIONS, version=version())
    for tool in (recommend, explain, compare, what_can_i_run):
        server.tool()(_in_one_line(tool))
    return server


def recommend(model: str, machine: str = "this", context: int | None = None) -> dict[str, Any]:
    """What to run for a model on a computer: engine, command line, speed with its range, and what would help.

    context: tokens of the context, 4096 if none is given.
    """
    from flashmoe_sim.report.first_screen import document_of

    found = _advised(model, machine, context)
    return {**document_of(found), "say": SAY, "program": program()}


def explain(model: str, machine: str = "this", context: int | None = None) -> str:
    """Why: all sizes and settings, what holds it back, other engines, and what the prediction rests on, as Markdown."""
    from flashmoe_sim.io.sections import markdown
    from flashmoe_sim.report.advice import sections

    return markdown(sections(_advised(model, machine, context)))


def compare(model: str, machine: str = "this", systems: str = "all") -> dict[str, Any]:
    """Every engine on one computer, the fastest first, and why others do not run. systems: names, with commas."""
    from flashmoe_sim.verbs.compare import Compare

    found = Compare(model=model, machine=machine, systems=systems).run()
    kept = ("system", "tok_s", "tok_s_lo", "tok_s_hi", "command", "why_not")
    rows = [
        {name: row[name] for name in kept if row[name] not in (None, "")}
        for row in (one.as_row() for one in found.rows)
    ]
    return {"rows": rows[:MOST], "left_out": max(len(rows) - MOST, 0), "say": SAY, "program": program()}


def what_can_i_run(machine: str = "this", at_least_tok_s: float = 10.0) -> dict[str, Any]:
    """The models that a computer likely runs at a speed, the most weights first, each in the largest usual file."""
    from flashmoe_sim.tune.runs_here import WELL, WhatRuns
    from flashmoe_sim.verbs.recommend import Recommend

    found = Recommend(machine=machine, at_least=at_least_tok_s).run()
    assert isinstance(found, WhatRuns)
    kept = ("model", "quantization", "file_bytes", "tok_s", "tok_s_lo", "tok_s_hi", "system", "command")
    rows = [{name: one.as_row()[name] for name in kept} for one in found.of(WELL)]
    return {"rows": rows, "say": SAY, "program": program()}


def _advised(model: str, machine: str, context: int | None) -> Recommendation:
    from flashmoe_sim.tune.recommend import Recommendation
    from flashmoe_sim.verbs.recommend import Recommend

    asked = Recommend(model=model, machine=machine, context=context)
    asked.check()
    found = asked.run()
    if not isinstance(found, Recommendation):
        raise Conflict("several machines or models; ask about one of each")
    return found


def _in_one_line(tool: Callable[..., Any]) -> Callable[..., Any]:
    """The tool, which answers bad input with one line."""
    from functools import wraps

    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def asked(**given: Any) -> Any:
        try:
            return tool(**given)
        except BadInput as error:
            raise ToolError(str(error)) from None

    return asked
