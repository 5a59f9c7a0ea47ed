"""Storage as page faults of a mapped file read it."""

from __future__ import annotations

from dataclasses import replace

from flashmoe_sim.machines.estimates import Estimated, estimate
from flashmoe_sim.machines.machine import Quantity, Storage


def read_by_faults(storage: Storage, os: str) -> Storage:
    """The storage, read by page faults and not by an engine itself.

    What one fault reads, and how many are read at once, are its own numbers or those of the operating system, whose
    interval is of what such reads reached, with what a request costs. An engine reads less than a probe that only
    touches pages.
    """
    window, at_once = (_quantity(estimate(name, os)) for name in ("faults.window_kib", "faults.in_flight"))
    around = estimate("faults.around", os)
    if (rate := storage.faults_gb_s) is not None:
        engine = estimate("faults.of_an_engine")
        rate = replace(rate, value=rate.value * engine.value, lo=rate.lo * engine.lo, hi=rate.hi * engine.hi)
    return replace(
        storage,
        request_us=replace(storage.request_us, lo=storage.request_us.value, hi=storage.request_us.value),
        fault_kib=storage.fault_kib or window,
        faults_in_flight=storage.faults_in_flight or at_once,
        faults_gb_s=rate,
        around_windows=around.value,
        by_faults=True,
    )


def _quantity(of: Estimated) -> Quantity:
    return Quantity(of.value, of.lo, of.hi, of.source, of.condition, True)
