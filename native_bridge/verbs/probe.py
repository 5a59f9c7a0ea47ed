"""`sim machine probe`; and `sim machine this`, which can also measure."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict, Incomplete, Missing, Unusable
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.io.sizes import given_size, size
from flashmoe_sim.options import FORCE, MACHINE_OUT, option_field
from flashmoe_sim.verbs.base import Verb
from flashmoe_sim.verbs.machine import ThisMachine
from native_bridge.verbs.base import one_line, refuse_given

if TYPE_CHECKING:
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.machines.here.read import Here
    from flashmoe_sim.machines.machine import Machine
    from native_bridge.probe.estimate import Estimate
    from native_bridge.probe.probe import Probed


MOST_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Probe(Verb["tuple[Probed, Machine]"]):
    """Measure this machine."""

    help: ClassVar[str] = """Measure this machine, and write it to a file for --machine.

    It measures direct reads of a new file in --folder, by size and by reads in flight; page faults of the same file;
    copies in memory and from the page cache; and copies to a CUDA device if cupy or torch is installed. The file is
    removed at the end, even after Ctrl-C. With --file it reads your own, such as the model's, and writes none; close
    what has it mapped. The speed of computing needs runs of a model: `sim machine fit`, or `sim bridge calibrate`.

    \b
    Example: sim machine probe --folder /mnt/models --out mine.toml
             sim machine probe --file my.gguf --model my.gguf --out mine.toml
    """

    folder: Path | None = option_field(None, "DIR", "A folder on the disk to measure.")
    file: Path | None = option_field(None, "FILE", "A large file on the disk to measure, instead of a folder.")
    out: Path = field(metadata=MACHINE_OUT)
    model: str | None = option_field(
        None, "SPEC", "Read in sizes of this model's experts: a manifest, sidecar folder, GGUF file or name."
    )
    expert_bytes: str | None = option_field(None, "SIZE", "Read pieces of this size, such as 1MiB.")
    seconds: float = option_field(60.0, "S", "Time limit.", least=1, most=MOST_SECONDS)
    max_bytes: str = option_field("8GiB", "SIZE", "Most bytes to write to the folder.")
    use_fio: bool = option_field(True, "", "Whether to read with fio if it is installed.", flag="--fio/--no-fio")
    use_gpu: bool | None = option_field(
        None, "", "Whether to copy to a CUDA device; default: if there is one.", flag="--gpu/--no-gpu"
    )
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> tuple[Probed, Machine]:
        from datetime import date

        from flashmoe_sim.geometry.load import load_model
        from flashmoe_sim.io.locks import check_posix
        from flashmoe_sim.io.whole import refuse_existing
        from flashmoe_sim.machines.write import write_machine

        check_posix("measuring a machine")
        from native_bridge.probe.as_machine import as_machine
        from native_bridge.probe.probe import probe
        from native_bridge.probe.storage import SIZES, sizes_of, sizes_of_expert

        refuse_existing(self.out, force=self.force)
        place = self._place()
        if not self.out.absolute().parent.is_dir():
            raise Missing(f"{self.out}: its folder does not exist; make it, or give another --out")
        if self.model is not None and self.expert_bytes is not None:
            raise Conflict("--model and --expert-bytes: give one of them; a model gives the sizes of its experts")
        sizes: tuple[int, ...] = SIZES
        if self.model is not None:
            sizes = sizes_of(load_model(self.model))
        elif self.expert_bytes is not None:
            sizes = sizes_of_expert(given_size("--expert-bytes", self.expert_bytes))
        most_bytes, end = given_size("--max-bytes", self.max_bytes), time.monotonic() + self.seconds
        with one_line() as show:

            def tell(what: str) -> None:
                if show is not None:
                    show(f"sim: {what}, {max(end - time.monotonic(), 0):.0f} s left")

            found = probe(
                place,
                sizes,
                seconds=self.seconds,
                most_bytes=most_bytes,
                use_fio=self.use_fio,
                use_gpu=self.use_gpu,
                tell=tell,
            )
        machine = as_machine(found, name=self.out.stem or "probed", today=date.today())
        write_machine(machine, self.out, force=self.force)
        return found, machine

    def _place(self) -> Path:
        """The folder or the file. Raises BadInput unless one of them is given, and a file is there."""
        if (self.folder is None) == (self.file is None):
            raise Conflict("--folder and --file: give one of them, a folder to write in or a file to read")
        if self.file is not None and not self.file.is_file():
            raise Missing(f"{self.file}: no such file; give a large one, such as the model's, or a --folder")
        if self.folder is not None and self.folder.is_file():
            raise Unusable(f"{self.folder}: is not a folder; give one on the disk that experts will be read from")
        found = self.file or self.folder
        assert found is not None
        return found

    def document(self, found: tuple[Probed, Machine]) -> dict[str, Any]:
        probed, machine = found
        document = asdict(probed)
        if document["gpu"] is not None:
            del document["gpu"]["copier"]
        return {"out": str(self.out), "machine": asdict(machine), "found": document}

    def sections(self, found: tuple[Probed, Machine]) -> list[Section]:
        probed, machine = found
        storage = probed.storage
        written = f"{size(probed.written_bytes)} written at {probed.write_gb_s:.3g} GB/s, " * bool(probed.written_bytes)
        how = f"storage: {written}read by {storage.how}; {storage.condition}"
        depths = sorted({point.depth for point in storage.points})
        cells = {(point.size_bytes, point.depth): _cell(point.gb_s) for point in storage.points}
        reads = [
            (size(size_bytes), *(cells.get((size_bytes, depth), "-") for depth in depths))
            for size_bytes in sorted({point.size_bytes for point in storage.points})
        ]
        speeds = Table(
            [("reads", "left"), *((f"{depth} in flight", "right") for depth in depths)],
            reads,
            caption="GB/s, median of the rounds and its 90% interval",
        )
        numbers = Table(
            [("number", "left"), ("value", "right"), ("90% interval", "right"), ("condition", "left")],
            [
                (path, f"{'~' if one.estimated else ''}{one.value:.4g}", f"{one.lo:.4g} to {one.hi:.4g}", one.condition)
                for path, one in machine.quantities()
            ],
        )
        notes = [f"note: {note}" for note in probed.notes]
        return [
            Section("", (f"{machine.name}: {machine.title}", how)),
            Section("", (speeds, numbers, *notes)),
        ]

    def notes(self, found: tuple[Probed, Machine]) -> list[str]:
        return [f"wrote {self.out}"]


def _cell(gb_s: Estimate) -> str:
    """A number narrow enough for four columns."""
    value, lo, hi = (f"{one:.{2 if one < 10 else 1 if one < 100 else 0}f}" for one in (gb_s.value, gb_s.lo, gb_s.hi))
    return f"{value} {lo}-{hi}"


@dataclass(frozen=True, kw_only=True)
class ThisMachineMeasured(ThisMachine):
    """Find the machine that this process runs on, and with --probe measure it too."""

    probe: bool = option_field(False, "", "Also measure it for a minute, and write --out, a file for --machine.")
    folder: Path | None = option_field(None, "DIR", "With --probe: a folder on the disk of the models.")
    out: Path | None = option_field(None, "FILE", "With --probe: the machine's file to write, a .toml.")
    force: bool = field(default=False, metadata=FORCE)

    def check(self) -> None:
        """Raise BadInput for --probe without a folder and a file, and for these without it."""
        if not self.probe:
            refuse_given(self, ["folder", "out", "force"], "without --probe: nothing is measured; add --probe")
        elif self.folder is None or self.out is None:
            raise Incomplete("--probe needs --folder, on the disk of the models, and --out, the file to write")

    def run(self) -> Here:
        """The machine, measured if that is asked for."""
        found = super().run()
        if not self.probe:
            return found
        from native_bridge.probe.probe import MeasuredHere

        measured = self._probe().run()
        return MeasuredHere(**{item.name: getattr(found, item.name) for item in fields(found)}, measured=measured)

    def document(self, found: Here) -> dict[str, Any]:
        """What was seen, and under `probe` what was measured."""
        measured = getattr(found, "measured", None)
        return super().document(found) | ({} if measured is None else {"probe": self._probe().document(measured)})

    def sections(self, found: Here) -> list[Section]:
        """What was seen, then what was measured."""
        measured = getattr(found, "measured", None)
        return [*super().sections(found), *([] if measured is None else self._probe().sections(measured))]

    def _probe(self) -> Probe:
        assert self.out is not None
        return Probe(folder=self.folder, out=self.out, force=self.force)
