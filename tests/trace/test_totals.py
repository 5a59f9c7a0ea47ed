"""Counts, loads and sums of weights of experts are no traces; what only looks like them is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.requests import Hints, ReadOptions
from flashmoe_sim.trace.table import read_table
from flashmoe_sim.trace.table_columns import Columns
from tests.support import refused

RIGHT = "counts hold no order of tokens: record the experts of each token"
LOADS = "90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86", "20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27"


def by_expert(header: str, *, layers: int = 2, experts: int = 6, before: str = "") -> str:
    rows = (f"{before}{layer},{e},{1 + 13 * e + 7 * layer}" for layer in range(layers) for e in range(experts))
    return "\n".join([header, *rows]) + "\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("count.csv", by_expert("layer,expert,count")),
        ("again.csv", by_expert("layer,expert,count") + by_expert("layer,expert,count").partition("\n")[2]),
        *((f"{name}.csv", by_expert(f"layer,expert,{name}")) for name in ("load", "freq", "hits", "weight", "sum_w")),
        *((f"{name}.csv", by_expert(f"layer,expert,{name}")) for name in ("selected", "n_tokens", "tokenCount")),
        ("of-a-step.csv", by_expert("step,layer,expert,count", before="0,")),
        ("all-of-a-step.csv", by_expert("step,layer,expert,tokens", experts=12, before="0,")),
        ("matrix.json", f"[[{LOADS[0]}],\n [{LOADS[1]}]]"),
        ("ascending.json", f"[[{LOADS[1]}],\n [{LOADS[0]}]]"),
        ("key.json", f'{{"data": [[{LOADS[0]}], [{LOADS[1]}]]}}'),
        ("matrix.csv", "\n".join(LOADS).replace(" ", "") + "\n"),
    ],
)
def test_counts_are_refused(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with refused(Malformed, RIGHT, begins=f"{path}: "):
        load_trace(path)


@pytest.mark.parametrize(
    ("content", "expert"),
    [
        (by_expert("layer,expert_id,count"), "expert_id"),
        (by_expert("layer\texpert\thits").replace(",", "\t"), "expert"),
        ('{"layer": 0, "loads": [90, 132, 40]}\n{"layer": 1, "loads": [20, 107, 104]}\n', "loads"),
        ("layer," + ",".join(f"e{e}" for e in range(32)) + f"\n0,{','.join(map(str, range(9, 41)))}\n" * 1
         + f"1,{','.join(map(str, range(5, 37)))}\n", "e*"),
    ],
)  # fmt: skip
def test_counts_in_named_columns_are_refused(tmp_path: Path, content: str, expert: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(content)
    with pytest.raises(Malformed, match=RIGHT):
        read_table([path], Columns(columns={"layer": "layer", "expert": expert}), ReadOptions(hints=Hints()))


@pytest.mark.parametrize(
    "content",
    [
        "step,layer,expert,count\n0,0,3,1\n0,0,1,1\n0,1,2,1\n0,1,0,1\n",
        "step,layer,expert,load_ms\n0,0,3,9\n0,0,1,8\n0,1,2,7\n0,1,0,7\n",
        "layer,expert,weight\n0,3,0.6\n0,1,0.4\n1,2,0.7\n1,0,0.3\n",
        "[[1,3,0],[2,1,2]]",
    ],
)
def test_tokens_are_read(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    assert load_trace(path).tokens == 1
