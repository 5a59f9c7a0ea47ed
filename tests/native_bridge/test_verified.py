"""Whether a prediction held, by the speeds of rounds."""

from __future__ import annotations

import pytest

from flashmoe_sim.systems.slot_bank import SlotBank
from native_bridge.verified import Claim, MeasuredSetting, Verified, as_json, clearly_faster


def measured(
    slots: int, predicted: float, *tok_s: float | None, counted: int = 10, differ: str = ""
) -> MeasuredSetting:
    """A setting whose interval is a tenth to both sides."""
    claim = Claim(SlotBank(slots=slots), predicted, 0.9 * predicted, 1.1 * predicted)
    failed = tuple(f"slots {slots} failed" for each in tok_s if each is None)
    return MeasuredSetting(claim, tok_s, 0.5, counted, (differ,) if differ else (), failed)


def verified(*settings: MeasuredSetting) -> Verified:
    return Verified(settings, "model", "warm", len(settings[0].tok_s))


@pytest.mark.parametrize(
    ("rounds", "won", "clear"),
    [
        *((3, 3, True), (3, 2, False)),  # 1 of 8 ways, 4 of 8
        *((4, 4, True), (4, 3, False)),  # 1 of 16, 5 of 16
        *((6, 5, True), (6, 4, False)),  # 7 of 64, 22 of 64
        *((2, 2, False), (1, 1, False), (0, 0, False)),
    ],
)
def test_faster_in_so_many_rounds_that_chance_rarely_does_it(rounds: int, won: int, clear: bool) -> None:
    one = measured(16, 10, *[11.0] * won, *[9.0] * (rounds - won))
    assert clearly_faster(one, measured(32, 10, *[10.0] * rounds)) is clear


def test_rounds_are_compared_with_each_other_and_those_that_failed_are_not() -> None:
    one, other = measured(16, 10, 11, 21, None, 6, 8), measured(32, 10, 10, 20, 99, 5, None)
    assert clearly_faster(one, other)
    assert not clearly_faster(other, one)
    assert not clearly_faster(one, one)


def test_all_of_it_held() -> None:
    found = verified(measured(32, 12, 12, 13, 11), measured(16, 10, 9.5, 10, 10.4), measured(24, 11, 10, 11, 9))
    assert (found.lost, found.within_noise, found.out_of_order) == (0, True, [])
    assert [one.held for one in found.settings] == [True, True, True]
    assert found.in_short() == (
        "slot-bank:slots=32 was the fastest, as recommended; the predicted order held; 3 of 3 speeds were within their "
        "90% interval; all counts were equal."
    )


def test_the_order_did_not_hold_in_any_round() -> None:
    found = verified(measured(32, 12, 8, 9, 10), measured(16, 10, 9, 12, 11))
    assert found.fastest is found.settings[1]
    assert found.lost == pytest.approx(2 / 11)
    assert found.within_noise is False
    assert found.contradicted == [(found.settings[1], found.settings[0])]
    assert found.in_short() == (
        "slot-bank:slots=32, the recommended one, was 18.2% slower than slot-bank:slots=16; against the prediction, "
        "slot-bank:slots=16 was faster than slot-bank:slots=32; 1 of 2 speeds were within their 90% interval; "
        "all counts were equal."
    )


def test_another_order_within_the_noise() -> None:
    found = verified(measured(32, 12, 8, 13, 10), measured(16, 10, 9, 12, 11))
    assert (found.within_noise, found.contradicted) == (True, [])
    assert found.in_short().startswith(
        "slot-bank:slots=32, the recommended one, was 9.1% slower than slot-bank:slots=16, within the noise of 3 "
        "rounds; no pair was clearly in another order; "
    )


def test_a_slower_one_that_is_recommended_as_predicted() -> None:
    """Speed is lost by the choice, and nothing of the prediction is wrong."""
    found = verified(measured(16, 10, 10, 10, 10), measured(32, 12, 12, 12, 12))
    assert found.lost == pytest.approx(1 / 6)
    assert found.within_noise is False
    assert "16.7% slower than slot-bank:slots=32; the predicted order held" in found.in_short()


def test_the_ends_of_an_interval_are_within() -> None:
    assert measured(16, 10, 9.0).held
    assert measured(16, 10, 11.0).held
    assert measured(16, 10, 8.99).held is False
    assert measured(16, 10, 1, 10, 99).held


def test_counts_and_failures() -> None:
    found = verified(measured(16, 10, None, None, None), measured(32, 12, 12, 12, None, differ="a slot"))
    assert (found.lost, found.within_noise, found.recommended.held) == (None, None, None)
    assert found.failed == ["slots 16 failed"] * 3 + ["slots 32 failed"]
    assert found.in_short() == (
        "slot-bank:slots=16, the recommended one, has no speed: its runs failed; 1 of 1 speeds were within their 90% "
        "interval; the counts of slot-bank:slots=32 differ."
    )
    assert verified(measured(16, 10, None, None, None)).fastest is None
    assert measured(16, 10, 10, counted=0).counts == "-"


def test_the_document() -> None:
    found = verified(measured(32, 12, 8, None, 10), measured(16, 10, 9, 12, 11))
    document = as_json(found)
    assert (document["recommended"], document["fastest"]) == ("slot-bank:slots=32", "slot-bank:slots=16")
    first = document["settings"][0]
    assert (first["tok_s"], first["measured_tok_s"], first["measured"]) == (12, 9, [8, None, 10])
    assert (first["within_interval"], first["counts"], first["failed"]) == (False, "equal", ["slots 32 failed"])
