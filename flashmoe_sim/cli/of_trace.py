"""Commands of verbs that replay one trace and say themselves what to print."""

from __future__ import annotations

from typing import Any

import click

from flashmoe_sim.cli.common import interruptible, json_option, lenient_option, print_json, print_sections
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import with_trace


def command_of(name: str, verb: Any) -> click.Command:
    """The command of a class with the fields `trace` and `model`, `help`, and the methods `run`, `document` and
    `sections`."""

    @click.command(name=name, help=verb.help, context_settings={"help_option_names": ["-h", "--help"]})
    @of_verb(verb)
    @lenient_option
    @json_option
    def command(asked: Any, *, lenient: bool, as_json: bool) -> None:
        from flashmoe_sim.cli.progress import replaying

        asked = with_trace(asked, lenient=lenient)
        with replaying() as progress:
            found = interruptible(asked.run, progress)
        if as_json:
            print_json(asked.document(found))
        else:
            print_sections(asked.sections(found))

    return command
