"""`sim recommend --verify`: the recommended setting and its neighbours, run by the real runtime."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli import recommend
from flashmoe_sim.cli.commands import of_verb
from flashmoe_sim.cli.common import message, print_sections
from flashmoe_sim.cli.workload import trace_and_model
from flashmoe_sim.io.errors import SimError
from native_bridge.verbs.base import read_prompt, refuse_given
from native_bridge.verbs.verify import Verify, file_of, sections

if TYPE_CHECKING:
    from flashmoe_sim.systems.base import System


def attach(command: click.Command) -> click.Command:
    """A copy of the command with --verify and its options.

    command: its callback accepts `verified`, a function or None. It calls the function with the claims of `Verify.run`
    after printing its own table, and adds the returned dictionary to its JSON document as `verified`. `model`, `force`
    and `as_json` are read from its options, if it has them.
    """
    callback = command.callback
    assert callback is not None

    @click.command()
    @of_verb(Verify)
    def with_verify(question: Verify, **given: Any) -> None:
        if not question.verify:
            names = [item.name for item in fields(question)]
            refuse_given(question, names, "without --verify: nothing is run; add --verify")
            callback(**given)
            return
        if "trace" in given:
            given["trace"], given["model"] = trace_and_model(given["trace"], given["model"])
        question = replace(question, gguf=file_of(question.gguf, given.get("model")))
        if question.prompt_file is not None:
            read_prompt(question.prompt_file)  # refused before anything is computed
        failed: list[str] = []

        def verified(claims: Sequence[tuple[System, float, float, float]]) -> dict[str, Any]:
            from native_bridge.verified import as_json

            found = question.run(claims, force=given.get("force", False))
            if not given.get("as_json"):
                print_sections(sections(found))
            failed.extend(found.failed)
            return as_json(found)

        callback(**given, verified=verified)
        for line in failed[1:]:
            message(line)
        if failed:
            raise SimError(failed[0])

    with_options = copy(command)
    with_options.callback = with_verify.callback
    last = [option for option in command.params if option.name in ("force", "as_json")]
    with_options.params = [
        *(option for option in command.params if option not in last),
        *sorted(with_verify.params, key=lambda option: option.name != "verify"),
        *last,
    ]
    return with_options


command = attach(recommend.command)
