import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.trace import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.write_jsonl import lost_in_jsonl, write_jsonl
from tests.trace.strategies import random_traces, trace_of

EXACT = (
    b'{"seq":0,"layer":0,"n_expert_used":2,"n_tokens":1,"experts":[7,58],"slots":[0,1]}\n'
    b'{"seq":1,"layer":1,"n_expert_used":2,"n_tokens":2,"experts":[57,53,7,1],"slots":[4,5,0,1]}\n'
)


def example() -> RoutingTrace:
    return trace_of((0, [7, 58]), (1, [57, 53, 7, 1]), n_tokens=[1, 2], slots=[[0, 1], [4, 5, 0, 1]])


def test_exactly_the_runtimes_layout(tmp_path: Path) -> None:
    write_jsonl(example(), tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == EXACT


def test_slots_are_left_out_where_unknown(tmp_path: Path) -> None:
    write_jsonl(example().with_(slot=None), tmp_path / "a.jsonl")
    assert b"slots" not in (tmp_path / "a.jsonl").read_bytes()


IDLE = b'{"seq":2,"layer":1,"n_expert_used":2,"n_tokens":0,"experts":[],"slots":[]}\n'


def test_a_call_without_tokens(tmp_path: Path) -> None:
    trace = trace_of((0, [7, 58]), (1, [57, 53, 7, 1]), (1, []), n_tokens=[1, 2, 0], slots=[[0, 1], [4, 5, 0, 1], []])
    for one in (trace, trace.with_(top_k=2)):
        write_jsonl(one, tmp_path / "a.jsonl", force=True)
        assert (tmp_path / "a.jsonl").read_bytes() == EXACT + IDLE
    again = load_trace(tmp_path / "a.jsonl")
    assert (again.content_id, again.top_k) == (trace.with_(top_k=2).content_id, 2)


def test_compressed_by_suffix(tmp_path: Path) -> None:
    import zstandard

    write_jsonl(example(), tmp_path / "a.jsonl.gz")
    write_jsonl(example(), tmp_path / "a.jsonl.zst")
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == EXACT
    with zstandard.open(tmp_path / "a.jsonl.zst") as stream:
        assert stream.read() == EXACT


@given(random_traces(plain=True))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reads_back_as_it_was(tmp_path: Path, trace: RoutingTrace) -> None:
    write_jsonl(trace, tmp_path / "a.jsonl", force=True)
    again = load_trace(tmp_path / "a.jsonl")
    assert again.content_id == trace.content_id
    assert (again.slot is None) == (trace.slot is None)
    if trace.slot is not None:
        np.testing.assert_array_equal(again.slot, trace.slot)


def test_unknown_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="call 1 has 4 references of 0 tokens"):
        write_jsonl(example().with_(n_tokens=np.array([1, 0], dtype=np.int32)), tmp_path / "a.jsonl")
    assert not list(tmp_path.iterdir())


def test_what_the_layout_has_no_place_for() -> None:
    assert lost_in_jsonl(example()) == ()
    assert lost_in_jsonl(example().with_(step=np.zeros(2, dtype=np.int32))) == ()
    rich = example().with_(step=np.arange(2, dtype=np.int32), phase=np.ones(2, dtype=np.uint8), n_experts_known=True)
    assert lost_in_jsonl(rich) == ("phase", "step", "n_experts")
