"""Notes with a code, so that nobody has to parse their text."""

from __future__ import annotations

SKIPPED, TORN, GAP, DROPPED, MISREAD = CODES = ("skipped-lines", "torn-last-line", "seq-gap", "dropped", "misread-ids")
CUT_OFF = "weights-cut-off"  # of a model
TAKEN = "taken-as"  # of a model: what its name was taken for


class Note(str):
    """A text and its code, such as one of CODES for what a recording lacks, as `lint` reports it."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, text: str) -> Note:
        note = super().__new__(cls, text)
        note.code = code
        return note

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.code, str(self)


def code_of(note: str) -> str | None:
    """The code of a note that has one."""
    return note.code if isinstance(note, Note) else None


def with_code(code: str | None, text: str) -> str:
    """A note, with a code unless that is None."""
    return text if code is None else Note(code, text)
