"""Every text is also read as UTF-16, which PowerShell's `>` writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.write import toml
from flashmoe_sim.measured import read_measured
from flashmoe_sim.trace.load import load_trace, open_long
from flashmoe_sim.trace.requests import Hints
from tests.trace.test_chunk import put_together

TEXTS = {
    "runtime.jsonl": "".join(
        json.dumps({"seq": 3 * at + layer, "layer": layer, "experts": [at % 7, 9]}) + "\r\n"
        for at in range(900)
        for layer in range(3)
    ),
    "plain.csv": "step,layer,expert\r\n0,0,1\r\n0,1,4\r\n1,0,3\r\n1,1,2\r\n",
    "tracer.csv": "phase,token,layer,rank,expert\ndecode,0,0,0,1\ndecode,0,0,1,2\n",
    "imp.json": '{"top_k":2,"trace":[[1,3,0],[2,1,2]]}\n',
    "pairs.jsonl": "[[0, 1], [0, 2], [1, 4], [1, 5]]\n[[0, 1], [0, 3], [1, 4], [1, 6]]\n",
}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_traces(tmp_path: Path, name: str, encoding: str, *, packed: bool) -> None:
    plain, other = tmp_path / name, tmp_path / "other" / name
    other.parent.mkdir()
    plain.write_text(TEXTS[name], newline="")
    content = ("\ufeff" + TEXTS[name]).encode(encoding)
    other.write_bytes(gzip.compress(content) if packed else content)
    assert load_trace(other, hints=Hints()).equals(load_trace(plain))
    with open_long(other) as long:
        assert put_together(long.head, long.read()).equals(load_trace(plain))


def test_models_machines_and_speeds(tmp_path: Path) -> None:
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_hidden_layers": 48,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "hidden_size": 2048,
        "moe_intermediate_size": 768,
    }
    (tmp_path / "config.json").write_bytes(json.dumps(config).encode("utf-16"))
    assert load_model(tmp_path / "config.json").name.startswith("qwen3-30b-a3b")
    machine = load_machine("rtx-3060")
    (tmp_path / "m.toml").write_bytes(toml(machine).encode("utf-16"))
    assert load_machine(tmp_path / "m.toml").gpu == machine.gpu
    (tmp_path / "speed.txt").write_bytes("45.12 tok/sec • 512 tokens • 0.61s to first token".encode("utf-16"))
    assert [one.tok_s for one in read_measured(tmp_path / "speed.txt")] == [45.12]
