"""Numbers as cells of tables show them."""

from __future__ import annotations

from flashmoe_sim.io.sections import decimals, signed


def test_zero_has_one_sign() -> None:
    assert [decimals(number) for number in (-0.004, -0.006, 0.0, None)] == ["0.00", "-0.01", "0.00", "-"]
    assert [signed(number) for number in (-0.04, -0.06, 0.04)] == ["+0.0", "-0.1", "+0.0"]
