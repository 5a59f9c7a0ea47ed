"""One door, fed for some seconds: by libFuzzer, which looks for inputs that reach new code, or else by chance.

A process of its own, so that a crash of it ends nothing else: `python -m tests.fuzz.guided TARGET SECONDS FOLDER`.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.fuzz.memory import address_space_bytes

PROJECT = Path(__file__).parents[2]
HUNG_S = 300  # of wall time, however busy the machine is, with kernels to compile
FREE_MIB = 6144  # of address space, of which numba and Arrow map much and touch little
KERNELS = ("policies", "prefetchers", "residency", "timeline")  # folders that are compiled as they are combined
STATS, LAST, POOL = "stats.json", "last", "pool"


def main(name: str, seconds: float, out: Path) -> None:
    """Feed a door, and leave what came of it in `out`: stats.json, the inputs of findings, and a pool of inputs."""
    atheris = _atheris()
    with (
        nullcontext()
        if atheris is None
        else atheris.instrument_imports(include=["flashmoe_sim", "native_bridge", "tomllib"], exclude=_with_kernels())
    ):
        from tests.fuzz.target import judge
        from tests.fuzz.targets import TARGETS

        target = TARGETS[name]
        for seed in target.first:  # what is imported late, and kernels
            with tempfile.TemporaryDirectory() as folder:
                judge(target, seed, Path(folder))
    warnings.simplefilter("error")
    if free := address_space_bytes():
        resource.setrlimit(resource.RLIMIT_AS, (free + FREE_MIB * 2**20,) * 2)
    out.mkdir(parents=True, exist_ok=True)
    feed = Feed(target, out, time.monotonic() + seconds)
    if atheris is None:
        rng = random.Random(name)
        pool = [*target.first]
        while True:
            feed(rng.choice(pool) if rng.random() < 0.02 else _damaged(rng.choice(pool), target.words, rng))
    pool = out / POOL
    pool.mkdir(exist_ok=True)
    for number, seed in enumerate(target.first):
        (pool / f"seed-{number}").write_bytes(seed)

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, most)[:most])
        valid = rng.random() < 0.3  # most of what libFuzzer keeps is refused, each in its own way
        return _damaged(rng.choice(target.first) if valid else data, target.words, rng)[:most]

    words = out / "words.dict"
    words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in target.words))
    longest = max(4096, 2 * max(map(len, target.first)))
    atheris.Setup(
        [
            sys.argv[0],
            str(pool),
            f"-dict={words}",
            f"-max_len={longest}",
            f"-timeout={HUNG_S}",
            "-rss_limit_mb=0",
            "-verbosity=0",
            "-handle_segv=0",
            "-handle_abrt=0",
        ],
        feed,
        custom_mutator=mutator,
    )
    atheris.Fuzz()


class Feed:
    """Gives inputs to a door, and keeps count."""

    def __init__(self, target: Any, out: Path, until: float) -> None:
        self.target, self.out, self.until = target, out, until
        self.tried = self.accepted = self.refused = 0
        self.slowest_s = self.most_mib = 0.0
        self.findings: dict[str, dict[str, Any]] = {}
        self.saved = time.monotonic()
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.last = (out / LAST).open("wb", buffering=0)

    def __call__(self, data: bytes) -> None:
        from tests.fuzz.target import judge

        self.last.seek(0)
        self.last.write(len(data).to_bytes(8, "little") + data)
        faulthandler.dump_traceback_later(HUNG_S, exit=True)
        verdict = judge(self.target, data, self.folder)
        faulthandler.cancel_dump_traceback_later()
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.tried += not verdict.skipped
        self.accepted += verdict.accepted
        self.refused += not (verdict.accepted or verdict.skipped)
        self.slowest_s = max(self.slowest_s, verdict.cpu_s)
        self.most_mib = max(self.most_mib, verdict.grown_bytes / 2**20)
        for found in verdict.findings:
            self.keep(found, data)
        if time.monotonic() - self.saved > 1:
            self.save()

    def keep(self, found: Any, data: bytes) -> None:
        """The smallest input of each finding."""
        known = self.findings.setdefault(found.key, {"what": str(found), "times": 0, "bytes": None, "file": ""})
        known["times"] += 1
        if known["bytes"] is None or len(data) < known["bytes"]:
            file = f"finding-{hashlib.blake2b(found.key.encode(), digest_size=5).hexdigest()}"
            (self.out / file).write_bytes(data)
            known |= {"what": str(found), "bytes": len(data), "file": file}

    def save(self) -> None:
        self.saved = time.monotonic()
        stats = {
            "tried": self.tried,
            "accepted": self.accepted,
            "refused": self.refused,
            "slowest_s": round(self.slowest_s, 3),
            "most_mib": round(self.most_mib, 1),
            "findings": list(self.findings.values()),
        }
        (self.out / STATS).write_text(json.dumps(stats, indent=1))
        if self.saved > self.until:
            shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(0)  # libFuzzer never comes back


def _damaged(data: bytes, words: Any, rng: random.Random) -> bytes:
    from tests.fuzz.mutate import damaged

    return damaged(data, words, rng)


def _atheris() -> Any:
    try:
        import atheris
    except ImportError:
        return None
    return atheris


def _with_kernels() -> list[str]:
    """Modules whose functions are compiled: not to be instrumented."""
    found = []
    for path in (PROJECT / "flashmoe_sim").rglob("*.py"):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        if parts[1] in KERNELS or "_jit" in path.read_text():
            found.append(".".join(parts))
    return found


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
