"""The runs of `sim recommend --verify`: the recommended setting and its neighbours, by turns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

from flashmoe_sim.cli.common import KEPT_WHOLE, message
from flashmoe_sim.io.cells import Column, interval, speed, table
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, OutOfRange, SimError
from flashmoe_sim.io.sections import Command, Section
from flashmoe_sim.options import option_field
from native_bridge.verbs.base import CACHE_STATES, PROMPT, TOKENS, RunOptions, first_difference, read_prompt, running

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from native_bridge.engines.runs import Run
    from native_bridge.repeats import Planned, Series
    from native_bridge.verified import Claim, MeasuredSetting, Verified

LEAST_ROUNDS = 3  # fewer cannot tell an order from chance


@dataclass(frozen=True, kw_only=True)
class MayVerify:
    """`--verify` itself, which the help shows before its options."""

    verify: bool = option_field(
        False, "", "Run it and its neighbours with the patched llama-cli, and compare.", on_command_line=True
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(RunOptions, MayVerify):
    """The options of --verify, which all say what they do without a value: without --verify none may have one."""

    group: ClassVar[str] = "With --verify"

    runtime: str | None = option_field(
        None, "PROGRAM", "The patched llama-cli for --verify; default: FLASHMOE_RUNTIME.", on_command_line=True
    )
    gguf: Path | None = option_field(None, "FILE", "The file to run, if --model names none.", on_command_line=True)
    runs: Path | None = option_field(None, "DIR", "Folder for the runs; default: not kept.", on_command_line=True)
    prompt_file: Path | None = option_field(None, "FILE", "A file with the prompt of the runs.", on_command_line=True)
    rounds: int | None = option_field(
        None, "N", "Runs of each setting; default: 3.", least=LEAST_ROUNDS, on_command_line=True
    )
    cache: str | None = option_field(
        None, "", "State of the page cache before a run; default: warm.", choices=CACHE_STATES, on_command_line=True
    )
    tokens: int | None = option_field(None, "N", "Tokens of a run; default: 100.", least=1, on_command_line=True)

    def verified(self, claims: Sequence[Claim], *, force: bool = False) -> Verified:
        """Run the settings that were predicted, each once a round, and compare.

        Each round begins with another setting than the one before, so that a machine that slows down affects all
        equally. claims: the recommended one first.

        A run that fails is in the result. Raises BadInput, before any run, for a system that the runtime cannot run.
        """
        from native_bridge.verified import Verified

        rounds, cache = self.rounds or LEAST_ROUNDS, self.cache or "warm"
        if not claims or len({claim.system.spec for claim in claims}) < len(claims):
            raise OutOfRange(f"{len(claims)} settings to verify; expected one or more, each once")
        if rounds < LEAST_ROUNDS:
            raise OutOfRange(f"{rounds} rounds do not give an order; expected {LEAST_ROUNDS} or more")
        assert self.gguf is not None
        with nullcontext(str(self.runs)) if self.runs else TemporaryDirectory(prefix="flashmoe-verify-") as folder:
            series = self.series(self.gguf, Path(folder), cache=cache, force=force)
            planned = self._planned(claims, series, Path(folder), rounds)
            geometry = series.check(planned)
            names = ", ".join(claim.system.spec for claim in claims)
            kept = f"kept in {self.runs}" if self.runs else "not kept"
            message(f"{rounds} rounds of {names} with {geometry.name}, page cache {cache}; {kept}")
            outcomes: dict[str, list[Run | SimError]] = {claim.system.spec: [] for claim in claims}
            with running(len(geometry.layers)) as progress:
                for one, outcome in series.run_each(planned, progress):
                    if isinstance(outcome, BadInput):
                        raise outcome
                    outcomes[one.name].append(outcome)
            settings = tuple(_measured(claim, outcomes[claim.system.spec], str(self.gguf)) for claim in claims)
        return Verified(settings, geometry.name, cache, rounds)

    def _planned(self, claims: Sequence[Claim], series: Series, place: Path, rounds: int) -> list[Planned]:
        """The runs in order; the first setting of a round is the last one of the next."""
        from flashmoe_sim.geometry.gguf import read_gguf
        from native_bridge.repeats import Planned

        model, once = read_gguf(series.model), []
        prompt = PROMPT if self.prompt_file is None else read_prompt(self.prompt_file)
        options = {"prompt": prompt, "n_predict": self.tokens or TOKENS, **self.of_request()}
        for claim in claims:
            request = series.engine.request_of(claim.system, model, series.runtime, **options)
            if series.cache == "cold" and not series.engine.modes[request.mode].slots:
                raise Conflict(
                    f"system {claim.system.spec}: maps its experts, which are read while it decodes if the page cache "
                    "is cold; leave it out, or give --cache warm"
                )
            once.append((claim.system.spec, request))
        planned = []
        for number in range(rounds):
            first = number % len(once)
            for spec, request in once[first:] + once[:first]:
                folder = place / f"{re.sub(r'[^A-Za-z0-9.]+', '-', spec)}-rep{number + 1}"
                planned.append(Planned(spec, request, folder, None))
        return planned


def _measured(claim: Claim, outcomes: Sequence[Run | SimError], model: str) -> MeasuredSetting:
    """A setting with its runs, one per round, whose counts are compared with the simulator's."""
    from native_bridge.check.counts import check_counts
    from native_bridge.check.folder import open_folders
    from native_bridge.verified import MeasuredSetting

    runs = [run for run in outcomes if not isinstance(run, SimError)]
    checked = []
    if runs:
        among = open_folders([run.folder for run in runs], model=model)
        checked = [check_counts(folder, among) for folder in among.given]
    routed = [run.log.routed for run in runs if run.log.routed is not None]
    requests = sum(one.requests for one in routed)
    return MeasuredSetting(
        claim,
        tuple(None if isinstance(run, SimError) else run.log.decode_tok_s for run in outcomes),
        1 - sum(one.misses for one in routed) / requests if requests else None,
        sum(one.slots + one.counters for one in checked),
        tuple(str(each) for one in checked for each in ([one.unlike] if one.unlike else one.differences)),
        tuple(str(error) for error in outcomes if isinstance(error, SimError)),
    )


def file_of(gguf: Path | None, named: str | None) -> Path:
    """The GGUF file to run: the one of --gguf, which must be the recommendation's model, or of --model."""
    from flashmoe_sim.geometry.gguf import read_gguf
    from flashmoe_sim.geometry.load import load_model

    file = gguf or Path(named or "")
    if gguf is None and (not file.is_file() or file.suffix != ".gguf"):
        raise Incomplete(f"--verify runs a GGUF file; found --model {named or 'not given'}; give the file with --gguf")
    ours = _shape(read_gguf(file))
    if gguf is not None and named is not None and ours != (theirs := _shape(load_model(named))):
        raise Conflict(f"--gguf {gguf}: has {ours}; --model {named} has {theirs}; give the same model twice")
    return file


def _shape(model: ModelGeometry) -> str:
    experts = max(layer.n_experts for layer in model.layers.values())
    return f"{len(model.layers)} layers of {experts} experts, top-{model.top_k}"


def sections(verified: Verified) -> list[Section]:
    """A row for each setting, and the verdict."""
    columns: list[Column] = [
        ("setting", "left", lambda one: one.name if len(one.name) <= KEPT_WHOLE else one.name.replace(":", ":\n")),
        ("predicted", "right", lambda one: speed(one.claim.tok_s)),
        ("90%", "right", lambda one: interval(one.claim.tok_s_lo, one.claim.tok_s_hi)),
        ("measured", "right", lambda one: speed(one.median_tok_s)),
        ("lo to hi", "right", lambda one: interval(min(one.speeds, default=None), max(one.speeds, default=None))),
        ("held", "right", lambda one: {None: "-", True: "yes", False: "no"}[one.held]),
        ("counts", "right", lambda one: one.counts),
    ]
    title = f"decode tok/s, {verified.rounds} rounds, {verified.model}, {verified.cache} page cache"
    differing = [first_difference(one.name, one.differences) for one in verified.settings if one.differences]
    found = [Section("", (table(columns, verified.settings, title=title), verified.in_short(), *differing))]
    if options := verified.measured_options:
        command = Command(" ".join(f"--measured {value}" for value in options))
        found.append(Section("", ("Later predictions for this machine and model are sharper with", command)))
    return found
