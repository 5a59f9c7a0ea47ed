"""The reading before the replay: its temporary file, and what it refuses."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency import next_uses
from flashmoe_sim.residency.long import begin, each_chunk, fit_head, replay_chunks
from flashmoe_sim.residency.next_uses import NextUses, scratch_file
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.trace.chunk import LongTrace, cut_up
from flashmoe_sim.trace.routing import RoutingTrace
from tests.residency.builders import one_layer, trace_of

TRACE = trace_of([*one_layer([[0, 1], [2], [0], [3, 0]]), (1, [2, 2], 1), (0, [2], 1)], 4)
MIN = Setup(Bank(slots=2), parse_policy("min"), "atomic")


def test_next_uses_by_hand() -> None:
    """Layer 0 has the references 0 1 | 2 0 | 3 0 2, layer 1 has 2 2 in the last chunk; each layer counts its own."""
    long = cut_up(TRACE, [1, 3])
    head = fit_head(long.head)
    with scratch_file() as file:
        uses = NextUses(head, "layer", each_chunk(long, head), file)
        found = [[pool.next_call.tolist() for pool in calls.layer_pools] for calls in each_chunk(long, head, [uses])]
    assert found == [[[3, NEVER], []], [[6, 5], []], [[NEVER, NEVER, NEVER], [NEVER, NEVER]]]


@pytest.mark.parametrize(
    "again",
    [
        TRACE.with_(expert=np.flip(TRACE.expert)),
        TRACE.with_(
            layer=TRACE.layer[:1], n_tokens=TRACE.n_tokens[:1], offset=TRACE.offset[:2], expert=TRACE.expert[:2]
        ),
    ],
)
def test_a_trace_that_changes_between_the_readings_is_refused(again: RoutingTrace) -> None:
    first, second = cut_up(TRACE, [1, 3]), cut_up(again, [1] if again.calls == 1 else [1, 3])
    readings = iter([first, second])
    with pytest.raises(BadInput, match="changed while it was read"):
        replay_chunks(LongTrace(first.head, lambda: next(readings).read()), [MIN])


def test_nothing_is_left_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHMOE_CACHE", str(tmp_path / "made"))
    with scratch_file() as file:
        file.write(b"x")
        assert not list((tmp_path / "made").iterdir())
    assert not list((tmp_path / "made").iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLASHMOE_CACHE", str(tmp_path / "file"))
    with pytest.raises(BadInput, match="name another folder with FLASHMOE_CACHE"), scratch_file():
        pass


class Full:
    """A file on a full disk."""

    def write(self, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk() -> None:
    long = cut_up(TRACE, [])
    head = fit_head(long.head)
    with pytest.raises(BadInput, match="No space left on device"):
        NextUses(head, "layer", each_chunk(long, head), Full())  # type: ignore[arg-type]


def test_more_references_than_min_can_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_uses, "MOST_REFERENCES", TRACE.refs - 3)
    with pytest.raises(BadInput, match="at most 6 references of one bank"):
        replay_chunks(cut_up(TRACE, [2]), [MIN])
    with pytest.raises(BadInput, match="use replay_chunks"):
        begin(fit_head(cut_up(TRACE, []).head), MIN)
