"""Results in a notebook: a heading and a table, instead of every field in one line."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars

_TEXT = re.compile(r"<td>&quot;(.*?)(?:&quot;)?</td>")  # a long one is cut, with its last quote


class InNotebook(ABC):
    """A result that a notebook shows as its heading and its table. A dataclass of this kind sets `repr=False`."""

    @property
    @abstractmethod
    def heading(self) -> str:
        """One line that says what the result is about."""

    @abstractmethod
    def table(self) -> polars.DataFrame:
        """The result as a table."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.heading}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.heading)}</p>{unquoted(self.table()._repr_html_())}"


def unquoted(table: str) -> str:
    """The HTML of a table of polars with texts on the left and without the quotes around them."""
    return _TEXT.sub(r'<td style="text-align: left">\1</td>', table)
