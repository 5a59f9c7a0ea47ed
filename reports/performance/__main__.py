"""Measure everything again and write the page: `python -m reports.performance`, with the extra `bench`."""

from __future__ import annotations

import json
import sys

from reports.performance import figures, page
from reports.performance.measure import FOLDER, RESULTS, measure

print("performance: measuring, for some minutes", file=sys.stderr)
results = measure()
RESULTS.write_text(json.dumps(results, indent=1) + "\n")
figures.draw(results, FOLDER)
(FOLDER / "README.md").write_text(page.markdown(results))
print(f"performance: wrote {FOLDER}", file=sys.stderr)
