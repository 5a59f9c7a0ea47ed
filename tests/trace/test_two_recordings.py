"""Two recordings in one file: their tokens are never mixed, and steps go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import Incomplete, Malformed
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.requests import Hints, ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.table import read_table
from flashmoe_sim.trace.table_columns import Columns

STEPS, LAYERS = 3, 24


def recording(*, first: int = 0, layers: int = LAYERS, seq: int | None = None) -> list[str]:
    """Lines of three decoded tokens."""
    lines = []
    for step in range(STEPS):
        for layer in range(layers):
            line = {"step": step, "layer": layer, "n_tokens": 1, "phase": 2}
            if seq is not None:
                line |= {"seq": seq + step * layers + layer}
            lines.append(json.dumps({**line, "experts": [(first + step + layer + 3 * rank) % 32 for rank in range(4)]}))
    return lines


def read(tmp_path: Path, lines: list[str]) -> RoutingTrace:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return load_trace(path)


def test_steps_that_start_again_go_on(tmp_path: Path) -> None:
    trace = read(tmp_path, recording() + recording(first=8))
    assert (trace.calls, trace.tokens, trace.top_k) == (144, 6, 4)
    assert trace.steps[::LAYERS].tolist() == [0, 1, 2, 3, 4, 5]
    assert [note for note in trace.notes if "start again 1 time, first in line 73" in note]


def test_seq_that_starts_again_within_a_step_begins_one(tmp_path: Path) -> None:
    one_step = [line for line in recording(layers=2, seq=0) if '"step": 0' in line]
    assert read(tmp_path, one_step + one_step).steps.tolist() == [0, 0, 1, 1]
    without = [line for line in recording(layers=2) if '"step": 0' in line]
    assert read(tmp_path, without + without).steps.tolist() == [0, 0, 0, 0]  # two passes in one step


def test_lines_in_the_order_of_layers_are_refused(tmp_path: Path) -> None:
    lines = sorted(recording(layers=3), key=lambda line: int(json.loads(line)["layer"]))
    with pytest.raises(Malformed, match=r"a\.jsonl:4: step goes back from 2 to 0 while the layer goes on from 0 to 1"):
        read(tmp_path, lines)


FROM_REQUESTS = [
    (r, t, layer, [8 * r + t + rank for rank in range(4)]) for r in (0, 1) for t in range(3) for layer in (0, 1)
]


def table(tmp_path: Path, rows: list[dict[str, Any]], columns: str, *more: Path) -> RoutingTrace:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    given = dict(pair.split("=") for pair in columns.split(","))
    return read_table([path, *more], Columns(columns=given), ReadOptions(hints=Hints(phase="decode")))


def as_lists(rows: list[Any]) -> list[dict[str, Any]]:
    return [{"req": "r1", "tok": token, "layer": layer, "ids": ids} for _, token, layer, ids in rows]


def one_expert_a_row(rows: list[Any], *, rank: bool) -> list[dict[str, Any]]:
    return [
        {"req": "r1", "tok": token, "layer": layer, "id": expert} | ({"rank": place} if rank else {})
        for _, token, layer, ids in rows
        for place, expert in enumerate(ids)
    ]


LIST = "layer=layer,expert=ids,position=tok,request=req"
EACH = "layer=layer,expert=id,position=tok,request=req"


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("kind", "columns"), [("list", LIST), ("each", EACH), ("ranked", EACH + ",rank=rank")])
@pytest.mark.parametrize("sorted_by", ["time", "layer"])
def test_positions_that_start_again_are_another_request(
    tmp_path: Path, kind: str, columns: str, sorted_by: str, *, overlap: bool
) -> None:
    """Never tokens of twice as many experts."""
    rows = [(r, t, layer, [e % 8 for e in ids] if overlap else ids) for r, t, layer, ids in FROM_REQUESTS]
    if sorted_by == "layer":
        rows = sorted(rows, key=lambda row: row[2])
    given = as_lists(rows) if kind == "list" else one_expert_a_row(rows, rank=kind == "ranked")
    trace = table(tmp_path, given, columns)
    assert (trace.tokens, trace.top_k, trace.calls) == (6, 4, 12)
    assert trace.expert.reshape(6, 2, 4)[:, 0].tolist() == [ids for _, _, layer, ids in sorted(rows) if not layer]


def test_requests_of_unequal_lengths(tmp_path: Path) -> None:
    lengths = [5, 2, 7, 1]
    rows = [(r, t, layer, [r, 8 + t]) for r, length in enumerate(lengths) for t in range(length) for layer in (3, 4)]
    trace = table(tmp_path, as_lists(rows), LIST)
    assert trace.sequence is not None
    assert np.bincount(trace.sequence).tolist() == [2 * length for length in lengths]
    assert trace.expert[::4].tolist() == [r for r, length in enumerate(lengths) for _ in range(length)]


@pytest.mark.parametrize("suffix", ["header", "bare"])
def test_tracers_of_llama_cpp(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "a.csv"
    if suffix == "header":
        lines = ["phase,token,layer,rank,expert"]
        lines += [f"decode,{t},{layer},{k},{e}" for _, t, layer, ids in FROM_REQUESTS for k, e in enumerate(ids)]
    else:
        lines = [f"{t},{layer},{','.join(map(str, ids))}" for _, t, layer, ids in FROM_REQUESTS]
    path.write_text("\n".join(lines) + "\n")
    trace = load_trace(path)
    assert (trace.tokens, trace.top_k) == (6, 4)


@pytest.mark.parametrize("lenient", [False, True])
def test_a_token_that_may_be_there_twice_is_refused(tmp_path: Path, *, lenient: bool) -> None:
    """Rows in an order that does not say so; nothing is left out for it."""
    rows = one_expert_a_row([(*row[:3], row[3][:1]) for row in FROM_REQUESTS], rank=False)
    rows = [row | {"id": 5} for row in rows]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    given = dict(pair.split("=") for pair in EACH.split(","))
    with pytest.raises(
        Malformed, match=r"token 0 names an expert twice in layer 0: \[5, 5\]; is the token there twice"
    ):
        read_table([path], Columns(columns=given), ReadOptions(lenient=lenient, hints=Hints(phase="decode")))


def test_a_step_of_two_requests_has_two_tokens(tmp_path: Path) -> None:
    rows = [(0, step, layer, [8 * r + k for k in range(4)]) for step in (0, 1) for layer in (0, 1) for r in (0, 1)]
    each = [
        {"req": ids[0], "step": step, "layer": layer, "id": expert} for _, step, layer, ids in rows for expert in ids
    ]
    trace = table(tmp_path, each, "layer=layer,expert=id,step=step,request=req")
    assert (trace.n_tokens.tolist(), trace.top_k, trace.calls) == ([2, 2, 2, 2], 4, 4)


# --------------------------------------------------------------------------------------------------- a single layer


def test_a_row_of_a_list_is_a_token(tmp_path: Path) -> None:
    rows = [{"layer": 0, "topk_ids": [(5 * row + 3 * k) % 16 for k in range(4)]} for row in range(6)]
    trace = table(tmp_path, rows, "layer=layer,expert=topk_ids")
    assert (trace.calls, trace.n_tokens.tolist(), trace.top_k) == (6, [1] * 6, 4)
    assert "a single layer and no step or call column: each token is taken as a pass of its own" in trace.notes


@pytest.mark.parametrize("columns", ["layer,expert,rank", "layer,expert"])
def test_rows_of_one_layer(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "a.csv"
    ranked = columns.endswith("rank")
    path.write_text(
        "\n".join([columns, *(f"0,{row + 3 * k}{f',{k}' if ranked else ''}" for row in range(6) for k in range(4))])
    )
    if ranked:
        assert load_trace(path).n_tokens.tolist() == [1] * 6
        return
    with pytest.raises(Incomplete, match="nothing says where a token ends; give --top-k K"):
        load_trace(path)
    assert load_trace(path, hints=Hints(top_k=4)).n_tokens.tolist() == [1] * 6
