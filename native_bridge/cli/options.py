"""Options shared by several verbs of the bridge."""

from __future__ import annotations

from pathlib import Path

import click

from flashmoe_sim.io.errors import BadInput

MAX_PROMPT_BYTES = 1 << 20

runtime_option = click.option(
    "--runtime", metavar="FILE", help="The patched llama-cli; default: FLASHMOE_RUNTIME, or the one on the PATH."
)


def read_prompt(file: Path) -> str:
    """The text of a file. Raises BadInput for one that cannot be read, is too large or is not UTF-8."""
    from flashmoe_sim.io.files import regular_file_bytes, unreadable

    if regular_file_bytes(file, kind="a text") > MAX_PROMPT_BYTES:
        raise BadInput(f"{file}: more than 1 MiB; expected a prompt as text")
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise unreadable(file, error) from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: byte {error.start} is not UTF-8; expected a prompt as text") from None
