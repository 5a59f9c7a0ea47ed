"""What is refused, and how it is said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flashmoe_sim.io.errors import BadInput


@contextmanager
def refused(kind: type[BadInput], *fragments: str, begins: str = "", match: str = "") -> Iterator[None]:
    """An error of this kind in one line, which begins so and has the fragments, and in which the pattern is found."""
    with pytest.raises(kind) as error:
        yield
    message = str(error.value)
    assert message.startswith(begins), message
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    assert re.search(match, message), message
    assert "\n" not in message
