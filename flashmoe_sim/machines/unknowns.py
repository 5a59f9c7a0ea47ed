"""What can be fitted: the numbers of a machine that runs can determine, and which runs do."""

from __future__ import annotations

from typing import NamedTuple


class Unknown(NamedTuple):
    """One number to fit.

    name: its key in a machine's file. The fit finds the time per unit: for `us` the value itself, for a rate in `gb_s`
    the seconds per GB. needs: the runs that determine it, for messages.
    """

    name: str
    needs: str

    @property
    def is_rate(self) -> bool:
        return self.name.endswith("_gb_s")


_ALL = (
    Unknown("layer_us", "an all-hit run (--moe-mode oracle-all-hit) or a stock one"),
    Unknown("read_gb_s", "a streamed run: mode slot-bank, fewer slots than experts"),
    Unknown(
        "first_touch_gb_s",
        "an all-hit run (--moe-mode oracle-all-hit), whose log gives the time that its empty bank took to fill, or "
        "streamed runs with few and with many slots",
    ),
    Unknown("resume_us", "a streamed run and one without misses (--moe-mode oracle-all-hit, or stock)"),
    Unknown("request_us", "runs with two different chunk sizes: another --moe-cache-io-split"),
    Unknown("pinned_gb_s", "a run with uploads: a GPU build"),
    Unknown("weights_gb_s", "runs with two different --moe-topk"),
)
UNKNOWNS = {unknown.name: unknown for unknown in _ALL}
