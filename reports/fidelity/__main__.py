"""Predict everything anew and write the page: `./dev report`."""

from __future__ import annotations

import sys

from reports.fidelity import figures, page
from reports.fidelity.measure import FOLDER, RESULTS, all_groups, frame, shown_run

groups = all_groups()
frame(groups).write_csv(RESULTS)
figures.draw(groups, shown_run(), FOLDER)
(FOLDER / "README.md").write_text(page.markdown(groups))
print(f"fidelity: wrote {FOLDER}", file=sys.stderr)
