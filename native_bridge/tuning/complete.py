"""Run a llama-cli for one text after another, and print its speeds of each but the first as a list.

    python -m native_bridge.tuning.complete PROMPT_TOKENS TOKENS REPEATS DEPTH PROGRAM [FLAGS...]

A prompt has PROMPT_TOKENS or DEPTH tokens, and LEAST at least: they fill the bank before the answer is timed. The first
text shows how many letters a token has. Each is another text, so that no answer repeats another one's experts. The list
is like llama-server's responses. The program's own output goes to stderr.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from native_bridge.engines.table import ENGINES
from native_bridge.tuning.serve import text

RUNTIME = "flashmoe"  # of the engines
LEAST = 128
PARTS = {"prompt": "prompt eval time", "predicted": r"(?<!prompt )\beval time"}
TIMED = r" = +([\d.]+) ms / +(\d+) tokens"


def timings_of(log: str) -> dict[str, float]:
    """The last times that a log says, as llama-server names them; empty if it says none."""
    found: dict[str, float] = {}
    for part, words in PARTS.items():
        for timed in re.finditer(words + TIMED, log):
            ms, tokens = float(timed[1]), int(timed[2])
            found |= {f"{part}_n": tokens, f"{part}_ms": ms}
            if ms > 0:
                found[f"{part}_per_second"] = 1e3 * tokens / ms
    return found


def letters(number: int, first: int) -> str:
    """So many letters of text, from a paragraph on."""
    found = ""
    while len(found) < number:
        found += text(first)
        first += 1
    return found[:number]


def main(arguments: list[str]) -> int:
    asked, tokens, repeats, depth = map(int, arguments[:4])
    prompt, answers = max(asked, depth, LEAST), list[dict[str, Any]]()
    per_token = 1.0  # the least that it can be
    with TemporaryDirectory(prefix="flashmoe-tune-") as folder:
        file = Path(folder) / "prompt.txt"
        for number in range(repeats + 1):
            file.write_text(letters(round(per_token * prompt), number * prompt), encoding="utf-8")
            command = [*arguments[4:], "-n", str(tokens), "-f", str(file)]
            run = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
            )
            said = []
            assert run.stdout is not None
            for line in run.stdout:
                sys.stderr.write(line)
                said.append(line)
            log = "".join(said)
            timings, failure = timings_of(log), ENGINES[RUNTIME].complaint(log)
            if run.wait() or (failure and not timings):  # a bank that is too small ends it with code 0
                return _ended(run.returncode or 1, failure)
            if number == 0 and timings.get("prompt_n"):
                per_token = len(file.read_text(encoding="utf-8")) / timings["prompt_n"]
            answers.append(timings)
    for one in answers:
        for part, timed in (("prompt", asked > 0), ("predicted", tokens > 1)):
            if not timed:
                one.pop(f"{part}_per_second", None)  # of too few tokens to say how fast it was
    print(json.dumps([{"timings": one} for one in answers[1:]], indent=1))
    return 0


def _ended(code: int, failure: str) -> int:
    """Say why it ended, and end as it did."""
    if failure:
        print(failure.strip(), file=sys.stderr, flush=True)
    if code < 0:
        with suppress(OSError):  # of SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
