"""Examples of hypothesis have no deadline, and repeat; `HYPOTHESIS_PROFILE=new` looks for others.

Garbage is collected rarely: going through thousands of tests and a compiler's objects again and again takes minutes.
"""

from __future__ import annotations

import gc
import os

from hypothesis import settings

settings.register_profile("repeated", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeated"))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
