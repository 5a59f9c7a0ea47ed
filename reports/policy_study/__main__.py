"""Measure everything anew and write the page: `./dev report`."""

from __future__ import annotations

import sys

import polars as pl

from reports.policy_study import figures, held_out, page, seconds
from reports.policy_study.measure import FOLDER, RESULTS, TRACES, measure

tables = []
for number, name in enumerate(TRACES, start=1):
    print(f"policy study: {name} ({number} of {len(TRACES)})", file=sys.stderr)
    tables.append(measure(name))
results = pl.concat(tables)
results.write_csv(RESULTS)
figures.draw(results, FOLDER)
print("policy study: seconds", file=sys.stderr)
timed = seconds.measure()
timed.write_csv(seconds.RESULTS)
print("policy study: held out", file=sys.stderr)
judged, fitted = held_out.judge(), held_out.fit()
judged.write_csv(held_out.JUDGED)
fitted.write_csv(held_out.FITTED)
(FOLDER / "README.md").write_text(page.markdown(results, timed, judged, fitted))
print(f"policy study: wrote {FOLDER}", file=sys.stderr)
