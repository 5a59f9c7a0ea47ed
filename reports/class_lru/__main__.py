"""Measure everything anew and write the page: `python -m reports.class_lru`."""

from __future__ import annotations

import sys

from reports.class_lru.measure import FOLDER, JUDGED, judge
from reports.class_lru.page import markdown

judged = judge()
judged.write_csv(JUDGED)
(FOLDER / "README.md").write_text(markdown(judged))
print(f"class-lru: wrote {FOLDER}", file=sys.stderr)
