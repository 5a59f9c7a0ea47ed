"""Measure everything again and write the page: `./dev report`."""

from __future__ import annotations

import sys

import polars as pl

import flashmoe_sim.api as sim
from reports.sampling import page
from reports.sampling.measure import FOLDER, OTHER_WAYS, RESULTS, measure
from reports.sampling.other_ways import other_ways

print("sampling: every trace, then other ways", file=sys.stderr)
results = pl.concat([measure(name) for name in sim.catalog()])
others = other_ways()
results.write_csv(RESULTS)
others.write_csv(OTHER_WAYS)
(FOLDER / "README.md").write_text(page.markdown(results, others))
print(f"sampling: wrote {FOLDER}", file=sys.stderr)
