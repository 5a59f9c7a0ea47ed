"""The command line and the models of the fork with a hot cache.

Separate from `hot_cache.py`, because a program that starts the fork reads its flags before it imports a system.
"""

from __future__ import annotations

COMMIT = "04c100386"
PROFILE, BUDGET = "--moe-hot-cache", "--moe-hot-cache-max-mib"
ARCHS = ("qwen35moe", "qwen3next", "gemma4", "mellum", "gpt-oss", "deepseek2", "glm4moe")
