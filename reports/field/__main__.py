"""Published speeds beside the commands' answers: `./dev report` writes the page; a file gets its own answers.

With `--pairs`, a file gets the probability that each of its caches is faster than the same machine without.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from flashmoe_sim.cli.progress import working
from flashmoe_sim.field.rows import read_rows
from flashmoe_sim.io.errors import BadInput

USAGE = "usage: python -m reports.field [FILE.csv [--given GIVEN.csv | --pairs] [--json]]"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; {USAGE}")


def main(arguments: Sequence[str]) -> int:
    """Write the page, or answer the rows of a file; returns the exit code."""
    parser = _Parser(prog="python -m reports.field", add_help=False, allow_abbrev=False)
    parser.add_argument("file", nargs="?", type=Path)
    of_file = parser.add_mutually_exclusive_group()
    of_file.add_argument("--given", type=Path)
    of_file.add_argument("--pairs", action="store_true")
    parser.add_argument("--json", action="store_true")
    try:
        asked = parser.parse_args(arguments)
        if asked.file is None and (asked.json or asked.given or asked.pairs):
            raise BadInput(f"give a file; {USAGE}")
        if asked.file is None:
            from reports.field.report import write

            write()
        elif asked.pairs:
            _print_pairs(asked.file, as_json=asked.json)
        else:
            _answer(asked.file, asked.given, as_json=asked.json)
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _answer(path: Path, measured: Path | None, *, as_json: bool) -> None:
    from reports.field.answers import answers

    rows, given = read_rows(path), [] if measured is None else read_rows(measured)
    with working("asking") as progress:
        found = answers(rows, given, note=lambda line: print(line, file=sys.stderr), progress=progress)
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=1))
    else:
        print("\n".join(one.as_text() for one in found))


def _print_pairs(path: Path, *, as_json: bool) -> None:
    from flashmoe_sim.tune.pays import gains
    from reports.field.answers import answers
    from reports.field.gains import chances

    rows = read_rows(path)
    with working("asking") as progress:
        found = chances(rows, answers(rows, progress=progress, prompts=False), gains())
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=1))
        return
    print("\n".join(one.as_text() for one in found) or f"{path}: no pair of predicted rows with and without a cache")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
