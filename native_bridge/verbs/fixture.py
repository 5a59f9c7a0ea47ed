"""`sim model make-fixture`, `make-sidecar` and `verify-sidecar`: something to run for real."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.cli.common import message
from flashmoe_sim.cli.progress import over_bytes
from flashmoe_sim.io.errors import Conflict, SimError
from flashmoe_sim.io.sections import Command, Section
from flashmoe_sim.io.sizes import size
from flashmoe_sim.options import FORCE, option, option_field
from flashmoe_sim.question import flag_of
from flashmoe_sim.verbs.base import Verb

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from native_bridge.fixture.model import FixtureShape

NUMBERS = ("layers", "n_experts", "top_k", "width", "expert_width", "vocabulary", "quant", "arch", "seed")


@dataclass(frozen=True)
class Written:
    """A model, and its sidecar if there is one."""

    model: Path
    sidecar: Path | None
    geometry: ModelGeometry

    @property
    def next(self) -> str:
        """The command to give next."""
        sidecar = ["--sidecar", str(self.sidecar)] if self.sidecar else []
        return shlex.join(["sim", "bridge", "doctor", "--model", str(self.model), *sidecar])

    @property
    def n_experts(self) -> int:
        """Experts of the first layer."""
        return next(iter(self.geometry.layers.values())).n_experts


class Writing(Verb[Written]):
    """A verb that writes a model or a sidecar."""

    def document(self, found: Written) -> dict[str, Any]:
        geometry = found.geometry
        return {
            "model": str(found.model),
            "model_bytes": found.model.stat().st_size,
            "sidecar": str(found.sidecar) if found.sidecar else None,
            "routed_bytes": geometry.routed_bytes,
            "layers": len(geometry.layers),
            "n_experts": found.n_experts,
            "top_k": geometry.top_k,
            "quant": geometry.quant,
            "next": found.next,
        }

    def sections(self, found: Written) -> list[Section]:
        geometry = found.geometry
        layers = len(geometry.layers)
        model = (
            f"{found.model}: {geometry.name}, {layers} MoE layers of {found.n_experts} experts, "
            f"top-{geometry.top_k}, {geometry.quant}, {size(found.model.stat().st_size)}"
        )
        sidecar = [f"{found.sidecar}: {layers} layer files, {size(geometry.routed_bytes)}"] if found.sidecar else []
        return [Section("", (model, *sidecar, "next:", Command(found.next)))]


@dataclass(frozen=True, kw_only=True)
class MakeFixture(Writing):
    """Write a small model and its sidecar."""

    help: ClassVar[str] = """Write a model that the patched runtime streams, and its sidecar.

    \b
    Example: sim model make-fixture --out fixture
             sim model make-fixture --size seconds --out fixture-1g
             sim model make-fixture --layers 4 --experts 128 --quant MXFP4 --out x
    """

    named: str | None = option_field(
        None,
        "",
        "tiny: the trained model that ships, 9 MB. seconds: random weights, 1.3 GB, large enough to time reads. "
        "Default: tiny, unless sizes are given.",
        flag="--size",
        choices=("tiny", "seconds"),
    )
    layers: int | None = option_field(None, "N", "MoE layers (12).")
    n_experts: int | None = option_field(None, "N", "Experts a layer (64).", flag="--experts")
    top_k: int | None = option_field(None, "K", "Experts a token (8).", flag="--topk")
    width: int | None = option_field(None, "N", "Weights of a hidden state (1024).")
    expert_width: int | None = option_field(None, "N", "Weights of an expert's inner state (512).")
    vocabulary: int | None = option_field(None, "N", "Tokens, 257 to 4096 (4096).")
    quant: str | None = option_field(None, "TYPE", "Storage type of the experts: Q8_0, F16, Q4_0 or MXFP4 (Q8_0).")
    arch: str | None = option_field(
        None, "NAME", "Architecture: qwen35moe, or gemma4, whose bank can be on a GPU (qwen35moe)."
    )
    seed: int | None = option_field(None, "N", "Seed of the random weights (1).")
    out: Path = field(metadata=option("DIR", "Folder for model.gguf and sidecar/."))
    sidecar: bool = option_field(True, "", "Write the sidecar, too.", flag="--sidecar/--no-sidecar")
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> Written:
        from flashmoe_sim.geometry.gguf import read_gguf
        from native_bridge.fixture.sidecar import MODEL, SIDECAR, make_fixture, sizes

        shape = self._shape()
        model_bytes, sidecar_bytes = sizes(shape)
        with over_bytes(f"writing {self.out}", model_bytes + sidecar_bytes * self.sidecar) as advance:
            make_fixture(self.out, shape, sidecar=self.sidecar, force=self.force, advance=advance)
        model = self.out / MODEL
        return Written(model, self.out / SIDECAR if self.sidecar else None, read_gguf(model))

    def _shape(self) -> FixtureShape | None:
        """The requested model; None for the bundled one."""
        from native_bridge.fixture.model import FixtureShape

        numbers = {name: value for name in NUMBERS if (value := getattr(self, name)) is not None}
        if self.named == "tiny" and numbers:
            given = ", ".join(flag_of(self, name) for name in numbers)
            raise Conflict(f"{given}: the tiny model is as it is; leave out --size tiny to make one")
        return None if self.named != "seconds" and not numbers else FixtureShape(**numbers)


@dataclass(frozen=True, kw_only=True)
class MakeSidecar(Writing):
    """Write the sidecar of a model."""

    help: ClassVar[str] = """Write the routed experts of a GGUF model in the form that the patched runtime streams.

    MODEL is a GGUF file, any one of a split model. The sidecar is as large as the model's routed experts.

    \b
    Example: sim model make-sidecar Qwen3.5-35B-A3B-Q4_K_M.gguf --out sidecar
    """

    model: Path = field(kw_only=False, metadata=option("MODEL", "", positional=True))
    out: Path = field(metadata=option("DIR", "Folder for manifest.json and a file a layer."))
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> Written:
        from flashmoe_sim.geometry.gguf import read_gguf
        from flashmoe_sim.systems.slot_bank_flags import not_streamed
        from native_bridge.fixture.sidecar import write_sidecar

        geometry = read_gguf(self.model)
        if other := not_streamed(geometry.arch):
            message(f"{self.model}: the runtime {other}; of {geometry.arch} it takes a sidecar only resident")
        with over_bytes(f"writing {self.out}", geometry.routed_bytes) as advance:
            write_sidecar(self.model, self.out, force=self.force, advance=advance)
        return Written(self.model, self.out, geometry)


@dataclass(frozen=True)
class SidecarFindings:
    """The findings on a sidecar, none if it holds its model's experts. compared: bytes."""

    findings: list[str]
    geometry: ModelGeometry
    compared: int

    @property
    def whole(self) -> bool:
        """Whether every byte was compared."""
        return self.compared == self.geometry.routed_bytes


@dataclass(frozen=True, kw_only=True)
class VerifySidecar(Verb[SidecarFindings]):
    """Compare a sidecar with its model."""

    help: ClassVar[str] = """Compare a sidecar with its model; exit 1 if they differ.

    \b
    Example: sim model verify-sidecar fixture/sidecar --model fixture/model.gguf
    """

    sidecar: Path = field(kw_only=False, metadata=option("SIDECAR", "", positional=True))
    model: Path = field(metadata=option("FILE", "The GGUF file, any one of a split model."))
    full: bool = option_field(False, "", "Compare every byte; default: some pages of each tensor over 256 MiB.")

    def run(self) -> SidecarFindings:
        from flashmoe_sim.geometry.manifest import read_manifest
        from native_bridge.fixture import verify

        geometry = read_manifest(self.sidecar)
        compared = verify.compared_bytes(geometry, full=self.full)
        with over_bytes(f"comparing {self.sidecar}", compared) as advance:
            findings = verify.verify_sidecar(self.sidecar, self.model, full=self.full, advance=advance)
        return SidecarFindings(findings, geometry, compared)

    def document(self, found: SidecarFindings) -> dict[str, Any]:
        return {
            "sidecar": str(self.sidecar),
            "model": str(self.model),
            "verified": not found.findings,
            "compared": "every byte" if found.whole else "sampled pages",
            "findings": found.findings,
        }

    def sections(self, found: SidecarFindings) -> list[Section]:
        if found.findings:
            return [Section("", tuple(found.findings))]
        pages = f"pages of each tensor, {size(found.compared)}; --full compares every byte"
        how = "every byte" if found.whole else pages
        layers, routed = len(found.geometry.layers), size(found.geometry.routed_bytes)
        return [Section("", (f"{self.sidecar}: verified, {layers} layers, {routed}; compared {how}",))]

    def failures(self, found: SidecarFindings) -> list[SimError]:
        count = len(found.findings)
        return [SimError(f"{self.sidecar}: {count} finding{'' if count == 1 else 's'}")] if count else []
