"""The model of a recorded run."""

from __future__ import annotations

import json
from pathlib import Path

from flashmoe_sim.geometry.recordings import source_of_run
from flashmoe_sim.residency.workload import find_geometry
from tests.geometry.conftest import gguf

RUN = Path("data/runs-timed/cold-bank12")


def test_a_run_is_its_model() -> None:
    found = find_geometry(RUN, None)
    assert (found.layers[0].n_experts, found.layers[0].expert_bytes) == (64, 3 * 557_056)
    other = find_geometry(RUN, "gpt-oss-120b")
    assert other.name == "gpt-oss-120b:mxfp4"


def test_the_file_that_the_run_names_comes_first_as_long_as_it_is_a_model(tmp_path: Path) -> None:
    run, weights = tmp_path / "run", tmp_path / "weights.gguf"
    run.mkdir()
    assert source_of_run(run) is None
    (tmp_path / "manifest.json").write_bytes(b"{}")
    for other in (b"{", b"[]", b"{}", b'{"model": 1}', b'{"model": {"path": 1}}'):
        (run / "run.json").write_bytes(other)
        assert source_of_run(run) == tmp_path / "manifest.json"
    (run / "run.json").write_text(json.dumps({"model": {"path": str(weights)}}))
    assert source_of_run(run) == tmp_path / "manifest.json"
    weights.write_bytes(b"no model")
    assert source_of_run(run) == tmp_path / "manifest.json"
    weights.write_bytes(gguf([], [], data_bytes=0))
    assert source_of_run(run) == weights
