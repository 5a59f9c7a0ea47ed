"""Make the page of models larger than RAM again, with its figure."""

from __future__ import annotations

from reports.paging.page import PAGE, markdown, over_ram, rows
from reports.plotted import save

if __name__ == "__main__":
    found = [*rows()]
    PAGE.write_text(markdown(found), encoding="utf-8")
    save(PAGE.parent, ram=over_ram(found))
