"""Predicted times of single tokens beside those that were measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.fidelity.prediction import Prediction


@dataclass(frozen=True, eq=False)
class PerToken:
    """Every token of one run.

    group: what was fitted together. name: the run. fitted_on: the runs fitted on. held_out: this is none of them.
    measured_ms, predicted_ms: f64 [tokens], wall time.
    """

    group: str
    name: str
    fitted_on: str
    held_out: bool
    measured_ms: NDArray[np.float64]
    predicted_ms: NDArray[np.float64]

    @property
    def error(self) -> NDArray[np.float64]:
        """f64 [tokens], signed: predicted over measured, less 1."""
        return self.predicted_ms / self.measured_ms - 1

    @property
    def median_error(self) -> float:
        """Median over the tokens of the error without its sign."""
        return float(np.median(np.abs(self.error)))

    @property
    def p95_error(self) -> float:
        """95th percentile over the tokens of the error without its sign."""
        return float(np.percentile(np.abs(self.error), 95))

    def signed(self, percentile: float) -> float:
        """A percentile over the tokens of the signed error."""
        return float(np.percentile(self.error, percentile))

    @property
    def tok_s_error(self) -> float:
        """Signed error of the mean speed."""
        return float(self.measured_ms.sum() / self.predicted_ms.sum() - 1)

    def among(self, tokens: NDArray[np.bool_]) -> PerToken:
        """The same of some of the tokens. tokens: bool [tokens]."""
        return PerToken(
            self.group, self.name, self.fitted_on, self.held_out, self.measured_ms[tokens], self.predicted_ms[tokens]
        )

    def predictions(self) -> list[Prediction]:
        """The median time of a token and the mean speed."""
        note = (
            f"token by token: median error {self.median_error:.1%}, P95 {self.p95_error:.1%}; "
            f"signed P50 {self.signed(50):+.1%}, P95 {self.signed(95):+.1%}, P99 {self.signed(99):+.1%}"
        )
        tokens = len(self.measured_ms)
        values = (
            ("ms per token, median", float(np.median(self.measured_ms)), float(np.median(self.predicted_ms))),
            ("tok/s", 1e3 * tokens / float(self.measured_ms.sum()), 1e3 * tokens / float(self.predicted_ms.sum())),
        )
        return [
            Prediction(
                self.group, self.name, quantity, self.fitted_on, measured, None, None, predicted, None, None, note
            )
            for quantity, measured, predicted in values
        ]
