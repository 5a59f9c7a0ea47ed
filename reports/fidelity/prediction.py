"""One prediction beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """What was predicted, and what was measured.

    group: what was fitted together. name: the row or run. quantity: with its unit, such as "tok/s". fitted_on: never
    this row. measured_lo, measured_hi: where a range was published, and `measured` is its middle.
    lo, hi: the 90% interval of `predicted`, where there is one. note: what a reader must know of this row.
    """

    group: str
    name: str
    quantity: str
    fitted_on: str
    measured: float
    measured_lo: float | None
    measured_hi: float | None
    predicted: float
    lo: float | None
    hi: float | None
    note: str

    @property
    def error(self) -> float:
        """Signed: predicted over measured, less 1."""
        return self.predicted / self.measured - 1


def prose(text: str) -> str:
    """Paragraphs, each in one line, of text that stands in lines in the source."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


@dataclass(frozen=True)
class Group:
    """Predictions that belong together. explanation: Markdown: what was fitted on what, what fails and why."""

    title: str
    predictions: tuple[Prediction, ...]
    explanation: str

    @property
    def worst(self) -> float:
        """The largest error, without its sign."""
        return max(abs(prediction.error) for prediction in self.predictions)
