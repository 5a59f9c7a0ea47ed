"""Write the page."""

from __future__ import annotations

from reports.published.page import write

if __name__ == "__main__":
    write()
