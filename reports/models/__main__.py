"""Ask about every model on every machine, and write the table and the page."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor

from reports.models.page import MODELS, PAGE, RESULTS, answers, markdown, rounded

if __name__ == "__main__":
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        rows = []
        for model, some in zip(MODELS, workers.map(answers, MODELS), strict=True):
            print(f"models: {model}", file=sys.stderr)
            rows += some
    found = rounded(rows)
    found.write_csv(RESULTS)
    PAGE.write_text(markdown(found), encoding="utf-8")
