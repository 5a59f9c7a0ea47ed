"""Tables of pages, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[int] = (0,)) -> str:
    """A table without a bar in its cells. left: the columns that are aligned to the left."""
    rule = "|".join("---" if column in left else "---:" for column in range(len(head)))
    first, *rest = (f"| {' | '.join(map(str, line))} |" for line in (head, *rows))
    return "\n".join((first, f"|{rule}|", *rest))
