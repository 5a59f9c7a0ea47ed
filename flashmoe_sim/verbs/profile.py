"""`sim trace profile`: the uses of each expert, for a hot cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import Section, Verbatim
from flashmoe_sim.options import FORCE, option
from flashmoe_sim.verbs.base import Verb

if TYPE_CHECKING:
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.verbs.given import Load


@dataclass(frozen=True, kw_only=True)
class WriteProfile(Verb["RoutingTrace"]):
    """Write the profile of a trace."""

    reads: ClassVar[bool] = True
    help: ClassVar[
        str
    ] = """Write the profile JSON of a trace, for systems with --moe-hot-cache and for the policy hot-profile.

    \b
    Example: sim trace profile prose-256 p.json
             sim sweep --bank 64 --policy hot-profile:profile=p.json \\
                 --contract atomic prose-256
    """

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    out: Path = field(kw_only=False, metadata=option("OUT", "", positional=True))
    force: bool = field(default=False, metadata=FORCE)

    def check(self) -> None:
        """Raise BadInput for a file that exists."""
        from flashmoe_sim.io.whole import refuse_existing

        refuse_existing(self.out, force=self.force)

    def run(self, load: Load | None = None) -> RoutingTrace:
        """Read the trace."""
        from flashmoe_sim.trace.load import load_trace

        return (load or load_trace)(self.trace)

    def finish(self, found: RoutingTrace) -> Iterable[str]:
        """Write the profile."""
        from flashmoe_sim.trace.perf_profile import write_perf_profile

        write_perf_profile(found, self.out, force=self.force)
        return ()

    def document(self, found: RoutingTrace) -> dict[str, Any]:
        """What `--json` prints."""
        sizes = {"layers": len(found.layers), "refs": found.refs, "bytes": self.out.stat().st_size}
        return {"out": str(self.out), **sizes}

    def sections(self, found: RoutingTrace) -> list[Section]:
        """The file and what it counts."""
        sizes = f"{len(found.layers)} layers, {found.refs:,} references, {self.out.stat().st_size:,} bytes"
        return [Section("", (Verbatim(f"{self.out}: {sizes}"),))]
