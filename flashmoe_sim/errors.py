"""The errors a user can cause; `sim` prints each as one line and exits with its `exit_code`."""

from __future__ import annotations

from collections.abc import Iterable


class SimError(Exception):
    """Something went wrong that one line can explain."""

    exit_code = 1


class BadInput(SimError):
    """A file or an option is not usable: says where, what was found, what was expected and what to do."""

    exit_code = 2


def unknown_name(kind: str, given: str, known: Iterable[str]) -> BadInput:
    """An error for a name that is in no table, listing those that are."""
    return BadInput(f"unknown {kind} {given!r}; known: {', '.join(sorted(known))}")
