"""`sim recommend`, which can also run what it recommends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import SimError
from flashmoe_sim.verbs.recommend import Recommend
from native_bridge.verbs.base import refuse_given
from native_bridge.verbs.verify import VerifyOptions, file_of

if TYPE_CHECKING:
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.tune.many import Cells
    from flashmoe_sim.tune.recommend import Recommendation
    from flashmoe_sim.tune.runs_here import WhatRuns
    from flashmoe_sim.verbs.base import Progress
    from flashmoe_sim.verbs.given import Read


@dataclass(frozen=True, kw_only=True)
class RecommendAndVerify(VerifyOptions, Recommend):
    """Recommend, and with --verify run the line for real, and what may be faster, once the advice is printed."""

    def check(self) -> None:
        """Raise BadInput also for options of --verify without it, for a table, and for files that cannot be run."""
        if not self.verify:
            names = [item.name for item in fields(VerifyOptions)]
            refuse_given(self, names, "without --verify: nothing is run; add --verify")
        super().check()
        if self.verify:
            from native_bridge.tuning.find import find_program

            self._file()
            find_program(self.engine)

    def _makes_a_table(self) -> bool:
        return super()._makes_a_table() and not self.verify

    def _file(self) -> Path:
        """The GGUF file to run."""
        from flashmoe_sim.verbs.given import trace_and_model

        _, model = trace_and_model(self.trace, self.model)
        return file_of(self.gguf, None if model is None else str(model))

    def run(self, progress: Progress | None = None, read: Read | None = None) -> Recommendation | Cells | WhatRuns:
        """The advice; its runs are made when they are first shown."""
        found = super().run(progress, read)
        if not self.verify:
            return found
        from native_bridge.verified import VerifiedAdvice

        verify = partial(replace(self, gguf=self._file()).verified, force=self.force)
        return VerifiedAdvice(**{item.name: getattr(found, item.name) for item in fields(found)}, verify=verify)

    def document(self, found: Recommendation | Cells | WhatRuns) -> dict[str, Any]:
        """The advice, with its runs."""
        document = super().document(found)
        if not self.verify:
            return document
        from native_bridge.verified import VerifiedAdvice, as_json

        assert isinstance(found, VerifiedAdvice)
        return document | {"verified": as_json(found.verified)}

    def sections(self, found: Recommendation | Cells | WhatRuns) -> Iterator[Section]:
        """The advice, and then its runs."""
        yield from super().sections(found)
        if self.verify:
            from native_bridge.verbs.verify import sections
            from native_bridge.verified import VerifiedAdvice

            assert isinstance(found, VerifiedAdvice)
            yield from sections(found.verified)

    def failures(self, found: Recommendation | Cells | WhatRuns) -> list[SimError]:
        """Why the recommended line did not run."""
        if not self.verify:
            return []
        from native_bridge.verified import VerifiedAdvice

        assert isinstance(found, VerifiedAdvice)
        return [SimError(line) for line in found.verified.failed]
