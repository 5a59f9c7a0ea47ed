"""Tests that need a package of an extra, or the patched runtime."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

# CI sets it: there what is missing is a failure, not a test left out.
REQUIRED = "FLASHMOE_REQUIRE_EXTRAS"
needs_runtime = pytest.mark.skipif(
    "FLASHMOE_RUNTIME" not in os.environ, reason="FLASHMOE_RUNTIME names no patched llama-cli"
)
RUNTIME = [pytest.mark.runtime, needs_runtime]


def needs(package: str, *, extra: str) -> pytest.MarkDecorator:
    """Leaves tests out if a package is missing, unless all must run."""
    missing = find_spec(package) is None and not os.environ.get(REQUIRED)
    return pytest.mark.skipif(missing, reason=f"needs pip install -e '.[{extra}]'")
