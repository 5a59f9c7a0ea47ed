"""The series of llama-bench on an H200: its models have the sizes of the real ones, and its page is of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.named import named_model

make_model = pytest.importorskip("reports.series.make_model", reason="needs gguf", exc_type=ImportError)


@pytest.mark.parametrize("name", ["gpt-oss-120b", "gpt-oss-20b", "qwen3-30b-a3b"])
def test_a_made_model_has_the_size_of_the_real_one(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gguf"
    make_model.write(path, make_model.SHAPES[name], header=True)
    made, real = load_model(str(path)), named_model(name)
    shapes = [([layer.n_experts for layer in one.layers.values()], one.top_k, one.width) for one in (made, real)]
    assert shapes[0] == shapes[1]
    if name != "qwen3-30b-a3b":  # whose quantization is another
        assert made.routed_bytes == real.routed_bytes
        assert made.dense_bytes is not None
        assert made.dense_bytes == pytest.approx(real.dense_bytes, rel=0.01)


def test_its_weights_follow_the_header(tmp_path: Path) -> None:
    shape = make_model.SHAPES["gpt-oss-20b"]._replace(
        layers=1, experts=2, top_k=1, width=64, expert_width=64, vocabulary=256, heads=2, kv_heads=1, head_width=32
    )
    make_model.write(tmp_path / "whole.gguf", shape)
    make_model.write(tmp_path / "header.gguf", shape, header=True)
    whole, header = (tmp_path / f"{name}.gguf" for name in ("whole", "header"))
    assert whole.read_bytes().startswith(header.read_bytes())
    assert read_gguf(whole).routed_bytes == 3 * 2 * 64 * 64 * 17 // 32


def test_the_page_is_of_today(tmp_path: Path) -> None:
    from reports.series.page import FOLDER, HEAD, PAGE, of_model, row_cells

    page, header = PAGE.read_text(), tmp_path / "gpt-oss-20b.gguf"
    assert page.startswith(HEAD), "run python -m reports.series"
    make_model.write(header, make_model.SHAPES["gpt-oss-20b"], header=True)
    rows = of_model(FOLDER / "h200-2" / "gpt-oss-20b.jsonl", load_model(str(header)))
    assert all(f"| {' | '.join(row_cells(row))} |" in page for row in rows), "run python -m reports.series"
