"""`sim trace lint`: errors and oddities of a trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import SimError
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.options import option, option_field
from flashmoe_sim.verbs.base import Stages, Verb, stage

if TYPE_CHECKING:
    from flashmoe_sim.trace.lint import Finding
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.verbs.given import Load, Model


@dataclass(frozen=True, eq=False)
class Linted:
    """A trace and what was found in it."""

    trace: RoutingTrace
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Lint(Verb[Linted]):
    """Find errors and oddities of a trace."""

    reads: ClassVar[bool] = True
    help: ClassVar[str] = "Report errors and oddities of a trace; exit 1 on an error."

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    model: Model | None = option_field(
        None, "SPEC", "Check the ids against this model: a manifest, sidecar folder, GGUF file or name."
    )

    def run(self, stages: Stages | None = None, load: Load | None = None) -> Linted:
        """Read the trace, and check it."""
        from flashmoe_sim.trace.lint import lint
        from flashmoe_sim.trace.load import load_trace
        from flashmoe_sim.verbs.given import model_of

        model = model_of(self.model)
        n_experts = None if model is None else {number: layer.n_experts for number, layer in model.layers.items()}
        trace = load_trace(self.trace) if load is None else load(self.trace, notes=False)
        return Linted(trace, lint(trace, n_experts=n_experts, progress=stage(stages, "checking")))

    def document(self, found: Linted) -> dict[str, Any]:
        """What `--json` prints."""
        return {**found.trace.identity, "findings": [asdict(finding) for finding in found.findings]}

    def sections(self, found: Linted) -> list[Section]:
        """A row for each finding."""
        return [Section("", (_found(found.trace, found.findings),))]

    def failures(self, found: Linted) -> list[SimError]:
        """How many errors there are, if any."""
        errors = sum(finding.severity == "error" for finding in found.findings)
        return [SimError(f"{self.trace}: {errors} error{'' if errors == 1 else 's'} found")] if errors else []


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"


def _found(trace: RoutingTrace, findings: tuple[Finding, ...]) -> Table:
    """A row for each finding."""
    rows = []
    for finding in findings:
        sentences = [finding.message]
        if finding.call is not None and finding.severity != "info":
            sentences.append(f"first at call {finding.call:,}, step {finding.step:,}, layer {finding.layer}")
        if finding.advice:
            sentences.append(finding.advice)
        rows.append((finding.severity, finding.code, " ".join(map(_sentence, sentences))))
    return Table([("", "left"), ("", "left"), (f"{trace.name} ({trace.format})", "left")], rows)
