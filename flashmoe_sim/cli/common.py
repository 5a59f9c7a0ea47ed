"""What several verbs share: JSON and tables on stdout, messages on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
force_option = click.option("--force", is_flag=True, help="Overwrite what is already there.")
lenient_option = click.option(
    "--lenient", is_flag=True, help="Skip malformed lines and count them, instead of stopping."
)


def print_json(document: Any) -> None:
    """One JSON document on stdout, keys in the order given."""
    import orjson

    sys.stdout.write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode() + "\n")


def print_table(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], *, title: str = "", caption: str = ""
) -> None:
    """A table that fits 80 columns; `columns` are (heading, "left" or "right"), all headings empty for none."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title, "bold") if title else None,
        caption=caption or None,
        box=box.SIMPLE_HEAD if any(heading for heading, _ in columns) else None,
        show_header=any(heading for heading, _ in columns),
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )
    for heading, side in columns:
        table.add_column(heading, justify="left" if side == "left" else "right")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, soft_wrap=False)
    console.print(table)
    console.print()


def size(count_bytes: float | None) -> str:
    """Bytes for a person: three digits and the largest binary unit that leaves at least one."""
    if count_bytes is None:
        return "-"
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count_bytes >= 1 << power:
            scaled = count_bytes / (1 << power)
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f} {unit}"
    return f"{count_bytes:.0f} B"


def percent(share: float | None) -> str:
    """A share in per cent with one decimal, without the sign."""
    return "-" if share is None else f"{share * 100:.1f}"


def message(text: str) -> None:
    """One line on stderr."""
    click.echo(f"sim: {text}", err=True)
