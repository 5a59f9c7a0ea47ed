"""Examples of hypothesis have no deadline, and repeat; `HYPOTHESIS_PROFILE=new` looks for others."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeated", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeated"))
