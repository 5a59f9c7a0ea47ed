"""Commands of verbs that say themselves what to print."""

from __future__ import annotations

from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import click

from flashmoe_sim.cli.common import (
    force_option,
    interruptible,
    json_option,
    lenient_option,
    message,
    print_json,
    print_sections,
    refuse_table,
    rows_option,
    write_table,
)
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import load_workload, with_trace


def command_of(
    name: str, verb: Any, *, short_help: str | None = None, reads: bool = True, writes: bool = False
) -> click.Command:
    """The command of a class with `help`, and the methods `run`, `document` and `sections`.

    What its method `notes` gives, if it has one, follows the sections on stderr. reads: whether TRACE is read with
    notes, before `run` or by its argument `read`. writes: whether the `table` of a result can go to a file.
    """
    options = [of_verb(verb), *(rows_option, force_option) * writes, *(lenient_option,) * reads, json_option]
    reads_several = "read" in signature(verb.run).parameters

    def command(
        asked: Any, *, as_json: bool, lenient: bool = False, out: Path | None = None, force: bool = False
    ) -> None:
        from flashmoe_sim.cli.progress import working

        if out is not None:
            refuse_table(out, force=force)
        if reads and not reads_several:
            asked = with_trace(asked, lenient=lenient)
        given = {"read": partial(load_workload, lenient=lenient)} if reads_several else {}
        with working("replaying") as progress:
            found = interruptible(partial(asked.run, **given), progress)
        if out is not None:
            write_table(found.table(), out, force=force)
        if as_json:
            print_json(asked.document(found))
            return
        print_sections(asked.sections(found))
        for note in asked.notes(found) if hasattr(asked, "notes") else ():
            message(note)

    made: Any = command
    for add in reversed(options):
        made = add(made)
    return click.command(name=name, help=verb.help, short_help=short_help)(made)
