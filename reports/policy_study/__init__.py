"""The policy study: every policy on every bundled trace, as a page with figures.

`measure` replays and makes results.csv; `page` makes README.md of it and `figures` the pictures, without replays.
"""
