"""Predict published speeds: `./dev report` writes the page; a file as argument gets its own predictions.

With `--pairs`, a file gets the probability that each of its caches is faster than the same machine without.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from flashmoe_sim.io.errors import BadInput
from reports.field.rows import read_rows

USAGE = "usage: python -m reports.field [FILE.csv [--pairs] [--json] | --tune]"


def main(arguments: Sequence[str]) -> int:
    """Write the page, tune, or predict the rows of a file; returns the exit code."""
    files = [argument for argument in arguments if not argument.startswith("-")]
    options = [argument for argument in arguments if argument.startswith("-")]
    pairs = "--pairs" in options
    if pairs:
        options.remove("--pairs")
    known = options in ([], ["--json"], ["--tune"])
    if len(files) > 1 or not known or (options == ["--tune"] and files) or (pairs and not files):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        if files and pairs:
            _print_pairs(Path(files[0]), as_json=options == ["--json"])
        elif files:
            _predict(Path(files[0]), as_json=options == ["--json"])
        elif options == ["--json"]:
            raise BadInput(f"--json: give a file; {USAGE}")
        else:
            _write(tune=options == ["--tune"])
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _predict(path: Path, *, as_json: bool) -> None:
    from reports.field import prompt_fit
    from reports.field.outcome import outcomes, prompt_json
    from reports.field.tune import load

    found, fitted = outcomes(read_rows(path), load()), prompt_fit.load()
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
    from reports.field import gains, tune
    from reports.field.chances import chances
    from reports.field.outcome import outcomes

    found = chances(outcomes(read_rows(path), tune.load()), gains.load())
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=1))
        return
    print("\n".join(one.as_text() for one in found) or f"{path}: no pair of predicted rows with and without a cache")


def _write(*, tune: bool) -> None:
    from reports.field.report import write

    write(tune_again=tune)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
