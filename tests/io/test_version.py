"""Everything that is written says which version wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashmoe_sim.cli.common import print_json
from flashmoe_sim.io.provenance import program, version
from flashmoe_sim.io.sections import Section, markdown
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.write import write_machine
from flashmoe_sim.report.page import html
from flashmoe_sim.trace.store import write_store
from tests.trace.strategies import trace_of


def test_documents_and_pages(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1, "version": version()}
    page = [Section("Title", ("Text.",))]
    for text in (markdown(page), html("Title", page)):
        assert f"Written by {program()}." in text


def test_machines_and_traces(tmp_path: Path) -> None:
    machine = load_machine("m2-16")
    write_machine(machine, tmp_path / "m.toml")
    assert (tmp_path / "m.toml").read_text().startswith(f"# Written by {program()}.\n")
    write_store(trace_of((0, [1])), tmp_path / "t.parquet")
    assert program().encode() in (tmp_path / "t.parquet").read_bytes()
