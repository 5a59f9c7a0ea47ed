"""Predict published speeds: `./dev report` writes the page; a file as argument gets its own predictions.

With `--pairs`, a file gets the probability that each of its caches is faster than the same machine without.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from flashmoe_sim.io.errors import BadInput
from reports.field.rows import read_rows

USAGE = "usage: python -m reports.field [FILE.csv [--given GIVEN.csv | --pairs] [--json] | --tune]"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; {USAGE}")


def main(arguments: Sequence[str]) -> int:
    """Write the page, tune, or predict the rows of a file; returns the exit code."""
    parser = _Parser(prog="python -m reports.field", add_help=False, allow_abbrev=False)
    parser.add_argument("file", nargs="?", type=Path)
    of_file = parser.add_mutually_exclusive_group()
    of_file.add_argument("--given", type=Path)
    of_file.add_argument("--pairs", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tune", action="store_true")
    try:
        asked = parser.parse_args(arguments)
        if asked.file is None and (asked.json or asked.given or asked.pairs):
            raise BadInput(f"give a file; {USAGE}")
        if asked.file is not None and asked.tune:
            raise BadInput(f"--tune: takes no file; {USAGE}")
        if asked.file is None:
            _write(tune=asked.tune)
        elif asked.pairs:
            _print_pairs(asked.file, as_json=asked.json)
        else:
            _predict(asked.file, asked.given, as_json=asked.json)
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _predict(path: Path, measured: Path | None, *, as_json: bool) -> None:
    from reports.field import given, prompt_fit
    from reports.field.outcome import outcomes, prompt_json
    from reports.field.tune import load

    rows, measurements = read_rows(path), [] if measured is None else read_rows(measured)
    tuned, fitted = load(), prompt_fit.load()
    known = outcomes(measurements, tuned)
    if unused := [f"{one.raw.row.where}: {why}" for one in known if (why := given.why_unused(one))]:
        print("\n".join(f"not used: {one}" for one in unused), file=sys.stderr)
    found = given.with_given(outcomes(rows, tuned), known, given.load())
    documents = [one.as_json() | prompt_json(one.raw, fitted) for one in found]
    if as_json:
        print(json.dumps(documents, indent=1))
        return
    for one in documents:
        speed = "no prediction"
        if one["tok_s"] is not None:
            speed = "{tok_s:.3g} tok/s ({lo:.3g} to {hi:.3g})".format_map(one)
            speed += ", prompts {prompt_tok_s:.3g} ({prompt_lo:.3g} to {prompt_hi:.3g})".format_map(one)
        print(f"{one['id']}: {speed}" + (f"; {one['why']}" if one["why"] else ""))


def _print_pairs(path: Path, *, as_json: bool) -> None:
    from flashmoe_sim.tune.pays import gains
    from reports.field import tune
    from reports.field.gains import chances
    from reports.field.outcome import outcomes

    found = chances(outcomes(read_rows(path), tune.load()), gains())
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=1))
        return
    print("\n".join(one.as_text() for one in found) or f"{path}: no pair of predicted rows with and without a cache")


def _write(*, tune: bool) -> None:
    from reports.field.report import write

    write(tune_again=tune)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
