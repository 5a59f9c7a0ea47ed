"""`sim mcp` asked by the protocol's own client: its answers are those of the commands."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from flashmoe_sim.cli.mcp import made
from tests.support import document

pytestmark = pytest.mark.usefixtures("answered_once")

MACHINE = "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4"


def asked(tool: str, server: Any = None, **given: Any) -> Any:
    """The result of a tool."""

    async def ask() -> Any:
        async with Client(made() if server is None else server) as client:
            return await client.call_tool(tool, given)

    return asyncio.run(ask())


def content(result: Any) -> Any:
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


def test_tools_say_what_they_are_for() -> None:
    async def ask() -> Any:
        async with Client(made()) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in asyncio.run(ask())}
    assert set(tools) == {"recommend", "explain", "compare", "what_can_i_run"}
    assert all(tool.description for tool in tools.values())
    assert tools["recommend"].input_schema["required"] == ["model"]


def test_a_recommendation_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = content(asked("recommend", model="gpt-oss-120b", machine=MACHINE))
    best = document(capsys, "recommend", "gpt-oss-120b", "--machine", MACHINE)["best"]
    assert (found["tok_s"], found["tok_s_90"]) == (best["tok_s"], [best["tok_s_lo"], best["tok_s_hi"]])
    assert found["command"] == best["command"]
    assert "nine times in ten" in found["say"]
    assert found["measured_by_others"]


def test_a_comparison_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = content(asked("compare", model="gpt-oss-120b", machine=MACHINE, systems="placed,cpu,all-gpu"))
    rows = document(capsys, "compare", "gpt-oss-120b", "--machine", MACHINE, "--system", "placed,cpu,all-gpu")["rows"]
    assert [row["system"] for row in found["rows"]] == [row["system"] for row in rows]
    assert [row.get("tok_s") for row in found["rows"]] == [row["tok_s"] for row in rows]


def test_an_explanation_is_text() -> None:
    result = asked("explain", model="gpt-oss-20b", machine="m4-max-64")
    assert "What this rests on" in result.content[0].text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": "no-such-model"}, "no-such-model"),
        ({"model": "gpt-oss-20b", "machine": "rtx-30600"}, "did you mean"),
        ({"model": "gpt-oss-20b,gpt-oss-120b"}, "one of each"),
    ],
)
def test_bad_input_is_one_line(given: dict[str, str], says: str) -> None:
    result = asked("recommend", **{"machine": "rtx-3060 + 64GiB"} | given)
    assert result.is_error
    text = result.content[0].text
    assert says in text
    assert "\n" not in text
    assert "Traceback" not in text


def test_an_assistant_starts_it_by_itself() -> None:
    """On stdin and stdout of the console script."""
    words = ["-c", "from native_bridge.entry import entry; entry()", "mcp"]
    server = StdioServerParameters(command=sys.executable, args=words)
    found = content(asked("compare", server, model="gpt-oss-20b", machine="rtx-3060 + 64GiB", systems="cpu"))
    assert found["rows"][0]["system"] == "cpu"
