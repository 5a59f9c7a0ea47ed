"""Ask about every model on every computer of the site, and write the table and the page."""

from __future__ import annotations

from reports.models.answers import ask_all
from reports.models.page import write

if __name__ == "__main__":
    ask_all()
    write()
