"""Seconds of whole commands and of replays, in processes of their own, beside those of an earlier commit.

Run it with `python -m tests.benchmarks.bench_startup`; with the folder of an earlier checkout behind it, commands of
both take turns, and reports/performance/commands.json is written. `first` is a run with an empty cache of compiled
kernels, as after an install; `later` the median of several after it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROUNDS = 7
ENTRY = "from native_bridge.cli.main import entry; entry()"
REPLAYS = (  # each checkout measures itself
    "import json; from reports.performance import measure; "
    "print(json.dumps([*measure._growth(), *measure._policies(), *measure._peers()]))"
)
REPLAY_ROUNDS = 3
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "reports" / "performance" / "commands.json"
COMMANDS = (  # with the goals of a first and of a later run, by the clock on an idle machine
    (["--help"], 0.15, 0.15),
    (["sweep", "gpt-oss-120b", "--bank", "8..64"], 6.0, 0.6),
    (["recommend", "gpt-oss-120b", "--machine", "rtx-4090", "--system", "placed"], 20.0, 0.7),
    (["recommend", "gpt-oss-120b", "--machine", "rtx-4090"], 20.0, 1.3),
    (["recommend", "qwen3-30b-a3b", "--machine", "rtx-4090"], 20.0, 1.3),
    (["recommend", "qwen3.6-35b-a3b", "--machine", "rtx-4090"], 20.0, 1.3),  # served by more engines than others
    (["recommend", "--machine", "rtx-4090"], 60.0, 10.0),
)


def seconds(arguments: Sequence[str], source: Path, cache: Path) -> tuple[float, float]:
    """Time by the clock, and CPU time, of one run of `sim` from a checkout, with that cache of kernels."""
    environment = {**os.environ, "FLASHMOE_CACHE": str(cache), "PYTHONPATH": str(source)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its bytecode, which saves 0.2 s
    before, began = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", ENTRY, *arguments], check=True, capture_output=True, env=environment, cwd=source
    )
    wall_s, after = time.perf_counter() - began, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return wall_s, cpu_s


def measured(arguments: Sequence[str], sources: Sequence[Path], folder: Path) -> list[dict[str, float]]:
    """The first run of each checkout, and the medians and the least of later ones, in turn."""
    caches = [folder / str(number) for number in range(len(sources))]
    first = [seconds(arguments, source, cache) for source, cache in zip(sources, caches, strict=True)]
    later = [[seconds(arguments, *each) for each in zip(sources, caches, strict=True)] for _ in range(ROUNDS)]
    found = [
        {
            "first_s": first[number][0],
            "first_cpu_s": first[number][1],
            "later_s": statistics.median(one[number][0] for one in later),
            "least_s": min(one[number][0] for one in later),
            "later_cpu_s": statistics.median(one[number][1] for one in later),
        }
        for number in range(len(sources))
    ]
    return [{name: round(value, 3) for name, value in one.items()} for one in found]


def replays(sources: Sequence[Path]) -> list[dict[str, Any]]:
    """Nanoseconds a reference of the replays of reports/performance in each checkout: medians of runs in turn."""
    command = [sys.executable, "-c", REPLAYS]
    runs = [
        [
            json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=source).stdout)
            for source in sources
        ]
        for _ in range(REPLAY_ROUNDS)
    ]
    names, times = ("of", "amount", "contract"), ("now_ns", "before_ns")
    return [
        {name: row[name] for name in names}
        | {when: statistics.median(run[n][place]["ns"] for run in runs) for n, when in enumerate(times)}
        for place, row in enumerate(runs[0][0])
    ]


def commit_of(source: Path) -> str:
    """The commit of a checkout, short."""
    asked = ["git", "-C", str(source), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    sources = [ROOT, *map(Path, sys.argv[1:2])]
    rows: list[dict[str, Any]] = []
    print(f"{'seconds':72}{'first':>9}{'goal':>6}{'later':>9}{'least':>9}{'CPU':>9}{'goal':>6}")
    for arguments, first_goal, goal in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(arguments, sources, Path(folder))
        command = " ".join(["sim", *arguments])
        for one in found:
            shown = "".join(f"{one[name]:9.2f}" for name in ("later_s", "least_s", "later_cpu_s"))
            print(f"{command:72}{one['first_s']:9.2f}{first_goal:6.1f}{shown}{goal:6.2f}", flush=True)
        rows.append({"command": command, "first_goal_s": first_goal, "later_goal_s": goal, "now": found[0]})
        rows[-1] |= {"before": found[-1]}
    if len(sources) > 1:
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        about = {"before": commit_of(sources[1]), "date": day, "load": round(os.getloadavg()[0], 1)}
        about |= {"rounds": ROUNDS, "rows": rows, "replays": replays(sources)}
        RESULTS.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
