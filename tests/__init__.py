"""Tests, and the documentation's examples: today is always the same day, so that what they print is too."""

import os

os.environ["FLASHMOE_TODAY"] = "2026-11-29"
