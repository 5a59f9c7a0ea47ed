"""`reports/paging/README.md`: a model in less and less RAM, as measured and as predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.sections import speed
from flashmoe_sim.io.sizes import GIB, KIB
from flashmoe_sim.machines.faults import read_by_faults
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine, Quantity, Storage
from flashmoe_sim.measured.learn import learn_from
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.compare import Compared, at_setting, case_of
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import PHASE_DECODE
from native_bridge.fixture.model import write_model
from reports.pages import joined, table, wrapped
from reports.paging.around import Around
from reports.paging.measure import MODELS, TOKENS, Measured
from reports.plotted import mark, plain, sheet

FOLDER = Path(__file__).parents[2] / "data" / "paging"
PAGE = Path(__file__).with_name("README.md")
RESIDUALS = Path(__file__).parents[1] / "field" / "residuals.csv"
MACHINE = load_machine(FOLDER / "machine.toml")
GIVEN = "small-experts"  # whose run in enough RAM is the one that is given
READING = 0.3  # of a token's time, from which on a published speed waits for storage
LEAST_READ = 0.02  # of the experts' bytes that tokens ask for: less is chance
MAPPED = ("placed", "placed-ik", "cpu", "cpu-ik", "all-gpu", "whole-layers")
HEAD = """\
# Models larger than RAM

What does a model do as its RAM shrinks? Three models with random weights ran in the patched llama.cpp (64e25509b) on a
virtual machine with one thread, in control groups of less and less memory: mapped (`stock`), and with a slot bank whose
misses come through the page cache. The kernel counted what was read. The disk's read-ahead was set to 128 KiB, as most
systems have it; llama.cpp doubles it.

Predicted is what `sim compare` says of the same trace and RAM on a machine whose disk and page faults were probed, and
with one run given, {given} in enough RAM, which is not counted.
"""
COMMANDS = """\
```sh
python -m reports.paging.measure --runtime llama-cli --folder FOLDER --device vda --out data/paging   # needs root
python -m reports.paging.around --file FILE --device vda --out data/paging/around.csv                 # needs root
python -m reports.paging                                                                              # this page
```
"""
RULES = """\
Three rules carry over to real machines.

- **A miss reads more than it needs.** A page fault reads a window around it, 256 KiB on Linux as it comes, and each of
an expert's tensors costs its bytes and two windows: of tensors of half a MiB twice as much, of 2 MiB a quarter more.

- **Experts leave one by one, dense weights all at once.** While RAM holds the dense weights and the experts of one
token, the dense weights stay, since each token touches them. With less they are read again with every token: the last
of the mapped rows of each model.

- **The least recently used leave.** Whole experts in order of their last use are what the kernel keeps, within the
error of the bytes above.
"""


AROUND = """\
Pieces at random places of a mapped file that RAM does not hold were touched from their first page to their last, with
windows of three sizes; the kernel counted what was read. Predicted is a rule of its source: a piece of up to a quarter
of a window costs one, of up to half of one two, and a larger one its bytes and two windows.
"""
REFUSED = "dense weights do not fit"
PUBLISHED = f"""\
What people measured who wait for storage for {READING:.0%} of a token or more, by
[the field report](../field/README.md): each predicted without its source.
"""
WITHOUT = tuple(f"without_source_{name}" for name in ("tok_s", "lo", "hi"))


class Expected(NamedTuple):
    """What is predicted of the tokens of a run that were measured: their speed with its interval, and bytes of each."""

    tok_s: float
    lo: float
    hi: float
    read_bytes: float


class Row(NamedTuple):
    """A run, what is predicted of it, the bytes of experts that a token asks for, and whether it was given.

    found: None if the model is refused. share: of the model's file, what its RAM has room for.
    """

    run: Measured
    found: Expected | None
    asked_bytes: float
    given: bool
    share: float

    @property
    def tok_s(self) -> float:
        return self.run.steps / self.run.decode_s

    @property
    def read_bytes(self) -> float:
        """Of a token."""
        return self.run.decode_bytes / self.run.steps

    @property
    def reads(self) -> bool:
        """Whether what it reads is more than chance."""
        return self.read_bytes >= LEAST_READ * self.asked_bytes


class Laboratory(NamedTuple):
    """A model and its trace. before: the part of the trace before the tokens that were measured."""

    model: ModelGeometry
    workload: Workload
    before: Workload

    @classmethod
    def of(cls, name: str, folder: str) -> Laboratory:
        file = Path(folder, f"{name}.gguf")
        write_model(file, MODELS[name], header=True)
        model, trace = load_model(str(file)), load_trace(FOLDER / f"{name}.jsonl.gz")
        before = cut(trace, steps=(None, trace.tokens - TOKENS + 1))
        before = before.with_(phase=np.full(before.calls, PHASE_DECODE, np.uint8))  # else there is no speed
        return cls(model, prepare(trace, model), prepare(before, model))

    def expects(self, run: Measured, machine: Machine) -> Expected | None:
        """What is predicted of a run; its bytes are those of all tokens, less those of the tokens before."""
        found, before = (self._compared(run, machine, workload) for workload in (self.workload, self.before))
        if found.tok_s is None or found.tok_s_lo is None or found.tok_s_hi is None:
            return None
        read, read_before = (
            workload.trace.tokens * (one.storage_bytes_per_token or 0.0)
            for workload, one in ((self.workload, found), (self.before, before))
        )
        return Expected(found.tok_s, found.tok_s_lo, found.tok_s_hi, (read - read_before) / run.steps)

    def _compared(self, run: Measured, machine: Machine, workload: Workload) -> Compared:
        """Of a part of a run. Memory that the program had beside its files and its bank was counted apart."""
        assert machine.memory is not None
        dense_bytes = self.model.dense_bytes or 0
        ram_bytes = run.room_bytes + dense_bytes * bool(run.bank)  # with a bank they are beside the files
        ram_gib, reserve_gib = (replace(machine.memory.ram_gib, value=size / GIB) for size in (ram_bytes, 0))
        on = replace(machine, memory=replace(machine.memory, ram_gib=ram_gib, reserve_gib=reserve_gib))
        system: System = SlotBank(slots=run.bank) if run.bank else Cpu()
        return at_setting(workload, case_of(self.model, on, workload=workload), system)

    @property
    def asked_bytes(self) -> float:
        """Of experts, by a token."""
        trace = self.workload.trace
        return self.model.token_cycle_bytes(top_k=trace.top_k)


def rows() -> Iterator[Row]:
    """Every run, by model and mode, with the most RAM first."""
    runs = [Measured(**row) for row in pl.read_csv(FOLDER / "runs.csv").iter_rows(named=True)]
    with TemporaryDirectory() as folder:
        labs = {name: Laboratory.of(name, folder) for name in MODELS}
    given = next(run for run in runs if run.model == GIVEN and not run.bank and not run.decode_bytes)
    learnt = learn_from(f"cpu={given.steps / given.decode_s:.4g}", MACHINE, workload=labs[GIVEN].workload)
    for run in runs:
        lab, model_bytes = labs[run.model], MODELS[run.model].file_bytes
        yield Row(run, lab.expects(run, learnt), lab.asked_bytes, run is given, run.room_bytes / model_bytes)


def markdown(found: Sequence[Row]) -> str:
    """The page: the errors, every run, the rules, and published speeds that wait for storage."""
    held_out = [(row, row.found) for row in found if row.found and not row.given]
    kinds = {
        "mapped": [one for one in held_out if not one[0].run.bank],
        "slot bank": [one for one in held_out if one[0].run.bank],
    }
    head = ("runs", "number", "median error", "within 1.5x", "inside", "ends apart", "bytes read, median error")
    parts = [
        wrapped(HEAD.format(given=GIVEN)),
        COMMANDS,
        "## In short",
        table(head, (_errors(*one) for one in kinds.items())),
    ]
    parts += ["![tokens a second over RAM](ram.png)", wrapped(RULES)]
    for name in MODELS:
        own = [row for row in found if row.run.model == name]
        shape = MODELS[name]
        about = (
            f"{shape.file_bytes / GIB:.1f} GiB, {shape.layers} layers of {shape.n_experts} experts, {shape.top_k} used"
        )
        cells = ("RAM of the file", "bank", "tok/s", "predicted", "MB a token", "predicted")
        parts += [f"## {name}", about + ".", table(cells, map(_cells, own))]
    parts += ["## What page faults read", wrapped(AROUND), _around()]
    parts += ["## Published speeds", wrapped(PUBLISHED), _published()]
    return joined(*parts) + "\n"


def _errors(kind: str, some: Sequence[tuple[Row, Expected]]) -> tuple[object, ...]:
    off = [math.log(found.tok_s / row.tok_s) for row, found in some]
    inside = sum(found.lo <= row.tok_s <= found.hi for row, found in some)
    apart = median(found.hi / found.lo for _, found in some)
    read = [abs(found.read_bytes / row.read_bytes - 1) for row, found in some if row.reads]
    near = sum(abs(one) <= math.log(1.5) for one in off)
    error = math.exp(median(map(abs, off))) - 1
    return kind, len(some), f"{error:.0%}", near, inside, f"{apart:.1f}x", f"{median(read):.0%} of {len(read)}"


def _cells(row: Row) -> tuple[str, ...]:
    found, bank = row.found, str(row.run.bank or "-")
    said, read = REFUSED, "-"
    if found is not None:
        said = "given" if row.given else f"{speed(found.tok_s)} ({speed(found.lo)}-{speed(found.hi)})"
        read = f"{found.read_bytes / 1e6:.1f}"
    return f"{row.share:.0%}", bank, speed(row.tok_s), said, f"{row.read_bytes / 1e6:.1f}", read


def around() -> list[tuple[Around, int]]:
    """What pieces of a mapped file cost, and what the program says of that."""
    found = [Around(**row) for row in pl.read_csv(FOLDER / "around.csv").iter_rows(named=True)]
    return [(one, one.piece_bytes + _faults(one.window_bytes).around_bytes(one.piece_bytes)) for one in found]


def _faults(window_bytes: int) -> Storage:
    kib = window_bytes / KIB
    window = Quantity(kib, kib, kib, "the disk's read-ahead, twice", "set")
    return replace(read_by_faults(MACHINE.storage, "linux"), fault_kib=window)


def _around() -> str:
    """KiB of each size of piece, by window: measured, and predicted."""
    found = around()
    windows = sorted({one.window_bytes for one, _ in found})
    cells = {(one.piece_bytes, one.window_bytes): (one.read_bytes, expected) for one, expected in found}
    pieces = sorted({one.piece_bytes for one, _ in found})
    head = ["piece", *(f"window {window // KIB} KiB{end}" for window in windows for end in ("", ", predicted"))]
    lines = ((f"{of // KIB} KiB", *(one // KIB for window in windows for one in cells[of, window])) for of in pieces)
    return table(head, lines)


def _published() -> str:
    """Published speeds of systems that wait for storage, each without its source."""
    known = pl.read_csv(RESIDUALS, infer_schema_length=None).filter(pl.col("read") >= READING)
    mapped, named = pl.col("system").is_in(MAPPED), pl.col("system").is_not_null()
    kinds = {
        "mapped beyond RAM": known.filter(named & mapped),
        "read by the engine": known.filter(named & ~mapped),
        "engines without a system": known.filter(~named),
    }
    lines = []
    for kind, some in kinds.items():
        tok_s, lo, hi, measured = (some[name].to_numpy() for name in (*WITHOUT, "measured_tok_s"))
        off = np.abs(np.log(tok_s / measured))
        error, two, inside = (
            np.expm1(np.median(off)),
            (off <= math.log(2)).mean(),
            ((lo <= measured) & (measured <= hi)).mean(),
        )
        cells = (f"{error:.0%}", f"{two:.0%}", f"{inside:.0%}", f"{np.median(hi / lo):.1f}x")
        lines.append((kind, len(some), some["source"].n_unique(), *cells))
    return table(("published", "rows", "people", "median error", "within 2x", "inside", "ends apart"), lines)


def over_ram(found: Sequence[Row]) -> Figure:
    """Speed over the share of the file that RAM has room for: predicted with its interval, and measured."""
    figure = sheet(9, 3.6)
    panels = figure.subplots(1, len(MODELS), sharey=True)
    for panel, name in zip(panels, MODELS, strict=True):
        own = sorted((row for row in found if row.run.model == name and not row.run.bank), key=lambda row: row.share)
        share = [row.share for row in own]
        ends = [(one.lo, one.tok_s, one.hi) if (one := row.found) else (math.nan,) * 3 for row in own]
        lo, middle, hi = zip(*ends, strict=True)
        colour = mark(0)["color"]
        panel.fill_between(share, lo, hi, color=colour, alpha=0.2, linewidth=0, label="90% interval")
        panel.plot(share, middle, color=colour, label="predicted")
        panel.plot(share, [row.tok_s for row in own], linestyle="none", label="measured", **mark(1))
        panel.set(title=name, xlabel="RAM for the file, of its size", yscale="log")
        panel.xaxis.set_major_formatter(PercentFormatter(1))
        panel.yaxis.set_major_formatter("{x:g}")
        plain(panel)
    panels[0].set_ylabel("tokens a second")
    panels[-1].legend(frameon=False, fontsize=9)
    return figure
