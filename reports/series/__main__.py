"""Predict a measured series of llama.cpp from one of its rows, and write the page."""

from __future__ import annotations

from reports.series.page import PAGE, markdown, series

if __name__ == "__main__":
    PAGE.write_text(markdown(list(series())), encoding="utf-8")
