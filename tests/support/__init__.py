"""What `sim` prints: a document, a table, or one line on whatever it refuses; and errors as Python raises them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flashmoe_sim.io.errors import BadInput
from native_bridge.cli.main import main


def document(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    """The document of a command, and nothing before it."""
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def printed_by(capsys: pytest.CaptureFixture[str], *arguments: object, quiet: bool = True) -> str:
    """What a command prints on stdout. quiet: it has nothing to say on stderr."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 0
    printed = capsys.readouterr()
    assert not (quiet and printed.err)
    return printed.out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 2) -> str:
    """The line on stderr with which a command is refused: it prints nothing else."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@contextmanager
def refused(kind: type[BadInput], *fragments: str, begins: str = "", match: str = "") -> Iterator[None]:
    """An error of this kind in one line, which begins so and has the fragments, and in which the pattern is found.

    A kind with a code is just that kind, or a narrower one with its code.
    """
    with pytest.raises(kind) as error:
        yield
    message = str(error.value)
    assert kind is BadInput or error.value.code == kind.code
    assert message.startswith(begins), message
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    assert re.search(match, message), message
    assert "\n" not in message
