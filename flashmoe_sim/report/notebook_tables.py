"""polars' tables in a notebook, as the program's pages have tables."""

from __future__ import annotations

import re
import sys
from html import escape

import polars as pl

from flashmoe_sim.io.errors import Missing

LEFT = 'style="text-align: left"'
TEXT = re.compile(r"<td>&quot;(.*?)&quot;</td>", re.DOTALL)
ROWS, COLUMNS, LETTERS = 40, 12, 100  # shown: of a table, and of a text


def plain_tables() -> None:
    """Show tables in this notebook without quotes, kinds of columns and sizes: texts on the left, numbers on the right.

    A table shows its first and last rows beyond 40, and a text 100 letters. Raises BadInput outside of a notebook.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        raise Missing("plain_tables: works in a notebook; call it in a cell")
    pl.Config(
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        tbl_rows=ROWS,
        tbl_cols=COLUMNS,
        fmt_str_lengths=LETTERS,
    )
    shell.display_formatter.formatters["text/html"].for_type(pl.DataFrame, _html)


def _html(table: pl.DataFrame) -> str:
    """polars' own, with texts as they are."""
    html = TEXT.sub(rf"<td {LEFT}>\1</td>", table._repr_html_())
    for name in table.select(pl.selectors.string()).columns:
        html = html.replace(f"<th>{escape(name)}</th>", f"<th {LEFT}>{escape(name)}</th>")
    return html.replace("<td>null</td>", "<td>-</td>")
