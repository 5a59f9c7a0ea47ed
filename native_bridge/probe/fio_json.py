"""fio's output with --output-format=json, as far as it concerns reads."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from flashmoe_sim.io.errors import SimError


class FioReads(NamedTuple):
    """The reads of one group of jobs together."""

    read_bytes: int
    seconds: float

    @property
    def gb_s(self) -> float:
        return self.read_bytes / self.seconds / 1e9


def parse_fio(text: str) -> FioReads:
    """The first group of a fio report, which --group_reporting makes the sum of its jobs.

    Lines before the document are notes of fio's. Raises SimError if there is no report, or it reports an error or no
    reads.
    """
    start = 0 if text.startswith("{") else text.find("\n{") + 1
    try:
        document, _ = json.JSONDecoder().raw_decode(text, start)
        job: dict[str, Any] = document["jobs"][0]
        error, read = job["error"], job["read"]
        found = FioReads(int(read["io_bytes"]), int(read["runtime"]) / 1e3)
    except (json.JSONDecodeError, RecursionError):
        raise SimError("fio printed no JSON; expected its report; try --no-fio") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        raise SimError("fio printed a report of another form than fio 3; try --no-fio") from None
    if error:
        raise SimError(f"fio reports error {error}; try --no-fio")
    if found.read_bytes <= 0 or found.seconds <= 0:
        raise SimError("fio reports no reads; give more --seconds, or try --no-fio")
    return found
