"""`python -m tests.fuzz TARGET --seconds N`, or `--all`: feeds doors, and prints what came of it.

It is guided by coverage if `atheris` is installed, and else goes by chance. What it finds is in `out/fuzz/TARGET`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.guided import LAST, PROJECT, STATS

OUT = PROJECT / "out" / "fuzz"
SUMS, MOST = ("tried", "accepted", "refused"), ("slowest_s", "most_mib")


def main() -> int:
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--all", action="store_true", help="every door")
    parser.add_argument("--seconds", type=float, default=10, help="for each door (default 10)")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    asked = parser.parse_args()
    names = list(TARGETS) if asked.all else asked.targets
    if not names or set(names) - set(TARGETS):
        parser.error(f"give doors, or --all; known: {', '.join(TARGETS)}")
    rows = []
    for name in names:
        rows.append({"target": name} | fed(name, asked.seconds))
        print(f"{name}: {rows[-1]['tried']:,} tried, {len(rows[-1]['findings'])} findings", file=sys.stderr)
    print(json.dumps(rows, indent=1) if asked.json else table(rows))
    return any(row["findings"] for row in rows)


def fed(name: str, seconds: float) -> dict[str, Any]:
    """One door, in processes of its own: another one when one dies, which is a finding."""
    total: dict[str, Any] = dict.fromkeys(SUMS, 0) | dict.fromkeys(MOST, 0.0) | {"seconds": seconds, "findings": []}
    end = time.monotonic() + seconds
    out = OUT / name
    out.mkdir(parents=True, exist_ok=True)
    while (left := end - time.monotonic()) > 0:
        (out / STATS).unlink(missing_ok=True)
        with (out / "log").open("wb") as log:
            command = [sys.executable, "-m", "tests.fuzz.guided", name, str(left), str(out)]
            ended = subprocess.run(command, cwd=PROJECT, stdout=log, stderr=log, check=False)
        stats = json.loads((out / STATS).read_text()) if (out / STATS).exists() else {}
        for key in SUMS:
            total[key] += stats.get(key, 0)
        for key in MOST:
            total[key] = max(total[key], stats.get(key, 0.0))
        known = {found["what"] for found in total["findings"]}
        total["findings"] += [found for found in stats.get("findings", []) if found["what"] not in known]
        if ended.returncode:
            total["findings"].append(died(out, ended.returncode))
            if not stats:
                break
    return total


def died(out: Path, code: int) -> dict[str, Any]:
    """The input that ended a process, kept."""
    data = (out / LAST).read_bytes() if (out / LAST).exists() else b""
    length = int.from_bytes(data[:8], "little")
    kept = out / f"died-{os.urandom(4).hex()}"
    kept.write_bytes(data[8 : 8 + length])
    tail = (out / "log").read_text(errors="replace").strip().splitlines()[-1:]
    return {"what": f"died: exit {code} {tail}", "times": 1, "bytes": length, "file": kept.name}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| door | seconds | inputs | accepted | refused | slowest (CPU s) | most memory (MiB) | findings |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        counts = [f"{row[key]:,}" for key in SUMS]
        most = [f"{row['slowest_s']:.2f}", f"{row['most_mib']:.0f}", str(len(row["findings"]))]
        lines.append(f"| {row['target']} | {row['seconds']:g} | {' | '.join([*counts, *most])} |")
    sums = [f"{sum(row[key] for row in rows):,}" for key in ("seconds", *SUMS)]
    lines.append(f"| all | {' | '.join(sums)} | | | {sum(len(row['findings']) for row in rows)} |")
    found = [f"- {row['target']}: {each['what']} ({each['file']})" for row in rows for each in row["findings"]]
    return "\n".join([*lines, *([""] if found else []), *found])


if __name__ == "__main__":
    sys.exit(main())
