"""Tables in a notebook: texts as they are."""

from __future__ import annotations

import re

import polars as pl
import pytest
from IPython.core.interactiveshell import InteractiveShell

import flashmoe_sim.api as sim
from flashmoe_sim.io.errors import BadInput


def test_texts_have_no_quotes_and_stand_on_the_left() -> None:
    with pytest.raises(BadInput, match="call it in a cell"):
        sim.plain_tables()
    table = pl.DataFrame({"a policy": ['lru "x" <b>', None], "hit %": [57.0, None]})
    with pl.Config():
        try:
            formatter = InteractiveShell.instance().display_formatter.formatters["text/html"]
            sim.plain_tables()
            html = formatter(table)
        finally:
            InteractiveShell.clear_instance()
    cells = re.findall(r"<t[hd]( style=\"text-align: left\")?>(.*?)</t[hd]>", html)
    assert [text for _, text in cells] == ["a policy", "hit %", "lru &quot;x&quot; &lt;b&gt;", "57.0", "-", "-"]
    assert [bool(left) for left, _ in cells] == [True, False, True, False, False, False]
