"""A line of a log without its colours and its prefix, and the `key=value` in it."""

from __future__ import annotations

import re

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.io.sizes import decimal

WHOLE = r"(\d{1,15})"
NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TAKEN_BACK = re.compile(r"[^\x08]?\x08")
# Possible prefixes: the loading animation, minutes.seconds.milli.micro, and the level.
_BEFORE = re.compile(r"^(?:Loading model\.\.\. )?[|/\\-]?(?:\d+\.\d{2}\.\d{3}\.\d{3} )?(?:[IWED] )?")
_VALUE = re.compile(r"(?<![\w/-])([\w/-]+)=(\S+)")
_LONGEST = 4096  # longer lines are text, with at most a line of the log at the end

# Older versions' names for the same numbers.
_OLDER = {
    "unique": "uniq",
    "misses": "miss",
    "misses/call": "miss/call",
    "slot-write": "slotwr",
    "pread_ops": "pread",
    "resident_copy_ops": "rcopy",
    "io-split": "iosplit",
    "parallel-reads": "preads",
    "cold-loads": "cold",
    "evict-loads": "evict",
    "resident-peak": "peak",
}


def bare(line: str) -> str:
    """The runtime's own text of a line, without terminal colours, animation, time and level."""
    return _BEFORE.sub("", _TAKEN_BACK.sub("", _COLOUR.sub("", line.removesuffix("\r")[-_LONGEST:])), count=1)


def _number(text: str) -> float | None:
    value = decimal(text)
    return value if value is not None and 0 <= value < 1e18 else None


class Fields:
    """The `key=value` pairs of one line. If a key occurs twice, the last one counts.

    Each method raises BadInput, naming the line, for a value of another kind; unknown keys are ignored.
    """

    def __init__(self, place: str, line: str) -> None:
        self.place = place
        self.values = {_OLDER.get(key, key): value for key, value in _VALUE.findall(line)}

    def number(self, key: str) -> float:
        text = self.values.get(key)
        if text is None:
            raise Malformed(f"{self.place}: no `{key}=`; expected the log of the patched runtime; run it again")
        value = _number(text.removesuffix("%"))
        if value is None:
            raise Malformed(f"{self.place}: {key}={text}; expected a number from 0; run it again")
        return value

    def count(self, key: str) -> int:
        value = self.number(key)
        if value != int(value):
            raise Malformed(f"{self.place}: {key}={self.values[key]}; expected a whole number; run it again")
        return int(value)

    def printed(self, *keys: str) -> dict[str, str]:
        """Values as printed, without `%`: each a number, or two with `/` between them."""
        found = {}
        for key in keys:
            text = self.values.get(key, "").removesuffix("%")
            if any(_number(part) is None for part in text.split("/")):
                raise Malformed(f"{self.place}: {key}={text}; expected a number; run it again")
            found[key] = text
        return found

    def switch(self, key: str) -> bool | None:
        """A switch, None if the log does not say."""
        return {"on": True, "off": False}.get(self.values.get(key, ""))
