"""`python -m reports.referee` writes the page; with `questions` or `ask` it makes what the page is made from."""

from __future__ import annotations

import sys

from reports.referee import ask, page, questions

if __name__ == "__main__":
    {"": page.write, "ask": ask.ask_all, "questions": questions.write}[" ".join(sys.argv[1:])]()
