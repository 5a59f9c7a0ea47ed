"""Every door through which input comes in, and what no input may do to it.

`python -m tests.fuzz` runs it for as long as one likes, `test_fuzz.py` for a few seconds. `corpus/` has the smallest
form of each input that broke something.
"""
