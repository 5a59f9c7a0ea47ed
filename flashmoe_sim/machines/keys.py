"""Every key of a machine's file: its section, meaning and range."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """One quantity of a section. Its name ends in the unit: GB/s of 1e9 bytes, GiB of 2**30, us of 1e-6 s.

    least, most: bounds of the value; above: it must be more than `least`. exact: a specification or a setting, so its
    interval is the value itself. whole: an integer.
    """

    name: str
    meaning: str
    required: bool = True
    least: float = 0.0
    above: bool = True
    most: float = float("inf")
    exact: bool = False
    whole: bool = False

    @property
    def range(self) -> str:
        """The valid values, for messages."""
        kind = "an integer" if self.whole else "a number"
        lower = f"above {self.least:g}" if self.above else f"from {self.least:g}"
        return f"{kind} {lower}" + (f" to {self.most:g}" if self.most < float("inf") else "")


def _time(name: str, meaning: str) -> Key:
    return Key(name, meaning, above=False)


_WEIGHTS = Key("weights_gb_s", "rate at which a decode streams weights through it", required=False)
_ATTENTION = Key(
    "attention_gb_s",
    "rate at which attention reads 16-bit keys and values of the context; default: a share of weights_gb_s",
    required=False,
)
_LAYER = _time("layer_us", "fixed time of a routed call: launches, and attention beside its weights and the context")
_KNEE = Key(
    "knee_tokens", "tokens of a batch from which arithmetic takes longer than reading weights", least=1, above=False
)
MOST_LANES = 4096  # a timeline has a place for each; drives keep queues of 1,024
LANES = Key(
    "lanes",
    "reads in flight that the engine keeps",
    least=1,
    above=False,
    most=MOST_LANES,
    exact=True,
    whole=True,
)

SECTIONS: dict[str, tuple[Key, ...]] = {
    "memory": (
        Key("ram_gib", "RAM", exact=True),
        Key("bandwidth_gb_s", "what the memory delivers at most"),
        Key("copy_gb_s", "from the page cache into a buffer, all reading threads together"),
        Key("reserve_gib", "taken by the system and other programs: neither bank nor page cache", above=False),
        Key("socket_link_gb_s", "what one of two sockets reads of the other's memory at most", required=False),
    ),
    "storage": (
        Key("read_gb_s", "reads of 4 MiB with `lanes` of them in flight, all together"),
        _time("request_us", "what a read costs beside its bytes; unused with `measured`"),
        LANES,
        Key("hot_share", "share of read_gb_s that is left when the device is hot", required=False, most=1),
        Key("fault_kib", "what a page fault of a mapped file reads; on Linux twice the read-ahead", required=False),
        Key("faults_in_flight", "page faults of a mapped file that are read at once", required=False),
        Key("faults_gb_s", "what page faults of a mapped file read, with what is around its pieces", required=False),
    ),
    "link": (
        Key("pinned_gb_s", "from pinned RAM into the GPU's memory"),
        Key("pageable_gb_s", "the same from RAM that is not pinned"),
        _time("request_us", "what a copy costs beside its bytes"),
    ),
    "network": (
        Key("rate_gb_s", "between two machines"),
        _time("hop_us", "what each machine after the first adds to a pass, beside its layers"),
    ),
    "gpu": (
        Key("memory_gib", "memory that weights and caches can take", required=False, exact=True),
        _WEIGHTS,
        _ATTENTION,
        _LAYER,
        _KNEE,
    ),
    "cpu": (_WEIGHTS, _ATTENTION, _LAYER, _KNEE),
    "host": (
        _time("call_us", "resolving the slots of a routed call"),
        _time("install_us", "bookkeeping of an install, beside reading and copying"),
        Key(
            "resume_us",
            "what a routed call that waited for reads takes longer, beside the reads; 0 if not given",
            required=False,
            above=False,
        ),
        Key(
            "first_touch_gb_s",
            "rate at which each read in flight gets memory that was never written; no time if not given",
            required=False,
        ),
    ),
}
REQUIRED_SECTIONS = ("storage", "host")
MEASURED_SPREAD, ESTIMATED_SPREAD = (0.9, 1.1), (1 / 1.6, 1.6)


def default_interval(key: Key, value: float, *, estimated: bool) -> tuple[float, float]:
    """lo and hi of a quantity without them: wider if it is estimated, of zero width if it is exact."""
    below, above = (1.0, 1.0) if key.exact else ESTIMATED_SPREAD if estimated else MEASURED_SPREAD
    return max(value * below, key.least), min(value * above, key.most)
