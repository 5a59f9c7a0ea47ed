"""A program that says how fast it was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from flashmoe_sim.io.errors import Missing, Unusable
from native_bridge.engines.base import Engine, Mode, RunRequest, Runtime
from native_bridge.engines.run_log import RunLog


class Toy(Engine):
    """All experts are in memory."""

    name = "toy"
    modes: ClassVar[dict[str, Mode]] = {"all": Mode("resident", sidecar=False)}

    def find(self, given: str | None) -> Path:
        return Path(given or "toy").absolute()

    def describe(self, path: Path) -> Runtime:
        if not path.is_file():
            raise Missing(f"{path}: no such program; give it with --runtime")
        return Runtime(self.name, path, version="1", commit="", modes=tuple(self.modes))

    def command(
        self, request: RunRequest, runtime: Runtime, *, model: Path, sidecar: Path | None, trace: str
    ) -> list[str]:
        return [str(runtime.path), str(model), str(request.n_predict), request.prompt]

    def read_log(self, text: str, *, mode: str, where: str, extra: Sequence[str], failed_too: bool = False) -> RunLog:
        speeds = re.search(r"prompt (\S+) t/s, text (\S+) t/s", text)
        if speeds is None:
            raise Unusable(f"{where}: no speeds; run it again")
        return RunLog(float(speeds[1]), float(speeds[2]), settings={}, backend="")
