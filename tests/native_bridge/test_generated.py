"""How many tokens a run generated, by the calls of recorded runs."""

import gzip
import json
from pathlib import Path

import pytest

from flashmoe_sim.trace.load import load_trace
from native_bridge.engines.runs import generated, generated_by
from tests.native_bridge.conftest import RECORDED
from tests.native_bridge.recorded_runs import ALL

SHORT = {"python-topk4-bank32": 9, "prose-ub4-bank16-overflow": 1}
TRACED = [run for run in ALL if (run / "trace.jsonl.gz").exists()]
OTHERS = [Path(__file__).with_name("recorded") / name for name in ("next-bank16", "next-ub2-predict-prev-bank29")]


@pytest.mark.parametrize("run", [*TRACED, *OTHERS], ids=lambda run: f"{run.parent.name}/{run.name}")
def test_every_recorded_run(run: Path, tmp_path: Path) -> None:
    wanted = SHORT.get(run.name, json.loads((run / "run.json").read_text())["n_predict"])
    plain = tmp_path / "trace.jsonl"
    plain.write_bytes(gzip.decompress((run / "trace.jsonl.gz").read_bytes()))
    assert generated_by(plain, None) == wanted
    assert generated(load_trace(plain)) == wanted


def test_a_part_of_a_trace(tmp_path: Path) -> None:
    plain = tmp_path / "trace.jsonl"
    plain.write_bytes(gzip.decompress((RECORDED / "prose-bank24" / "trace.jsonl.gz").read_bytes()))
    assert generated_by(plain, 3374 - 8 * 20) == 280
    assert generated_by(plain, 0) is None
