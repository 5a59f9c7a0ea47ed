"""Published speeds with drafts, predicted: whether drafts pay, and what a pass costs."""

from __future__ import annotations

import statistics

from reports.field.drafts import pairs, passes


def test_whether_drafts_pay_is_predicted_in_85_of_100() -> None:
    found = pairs()
    assert len(found) >= 10
    assert sum(one.right for one in found) >= 0.85 * len(found)
    assert statistics.median(abs(one.error) for one in found) <= 0.15


def test_the_cost_of_a_pass() -> None:
    found = passes()
    assert len(found) >= 19
    assert statistics.median(abs(one.error) for one in found) <= 0.2
    assert all(abs(one.error) <= 0.4 for one in found)
