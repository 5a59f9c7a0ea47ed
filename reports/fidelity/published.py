"""Predictions of published tables: fitted on a row or two of each, never on the row that is reported."""

from __future__ import annotations

from reports.fidelity import hot_cache, hot_window, kimi_bank, layer_budget, qwen_bank, slot_remap
from reports.fidelity.prediction import Group, Prediction


def groups() -> tuple[Group, ...]:
    """All groups, each with its explanation."""
    return (
        hot_cache.group(),
        hot_window.group(),
        qwen_bank.bank_group(),
        qwen_bank.topk_group(),
        kimi_bank.group(),
        slot_remap.group(),
        layer_budget.group(),
    )


def predictions() -> list[Prediction]:
    return [prediction for group in groups() for prediction in group.predictions]
