"""Bank sizes of Kimi-K2.5, whose speed stays while its reads halve (Anemll/anemll-flash-llama.cpp, README)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from reports.fidelity import qwen_bank
from reports.fidelity.from_table import (
    TableRun,
    column,
    fit,
    fitted,
    passes_of_run,
    predicted,
    table,
    table_run,
    timed_by_layer,
    with_values,
)
from reports.fidelity.prediction import Group, prose

MODEL, MACHINE, TOP_K, ANCHOR = "kimi-k2.5:ud-tq1_0", "m5-max-128", 4, "64"
BANK, MS = "anemll_kimi_k25_bank", "anemll_kimi_k25_breakdown_ms"
installs = qwen_bank.installs


@cache
def passes() -> int:
    rows = table(BANK)
    return passes_of_run(list(map(installs, rows)), [float(row["misses_per_call"]) for row in rows], layers=layers())


def layers() -> int:
    return len(load_model(MODEL).layers)


def mean_expert_bytes() -> float:
    geometry = load_model(MODEL)
    return geometry.bank_bytes(1) / len(geometry.layers)


def first_uses() -> int:
    """Installs of experts that no call had requested before: all those of a bank from which nothing is evicted.

    The two largest banks install the same, so nothing was evicted from the smaller of them.
    """
    *_, smaller, larger = table(BANK)
    if installs(smaller) != installs(larger):
        raise ArithmeticError("the two largest banks differ, so the smaller one evicts")
    return installs(larger)


def run_of(row: dict[str, str], page_cache_share: float | None = None) -> TableRun:
    """A row: what is read again was read during the run, and comes from the page cache."""
    again = 1 - first_uses() / installs(row) if page_cache_share is None else page_cache_share
    return table_run(
        MODEL,
        "split-install",
        top_k=TOP_K,
        misses_per_call=installs(row) / (passes() * layers()),
        page_cache_share=again,
        dense_bytes=0,
    )


def machine_with_reads(row: dict[str, str], *, page_cache: bool = True) -> Machine:
    """The machine whose CPU computes (-ngl 0), and whose reads take what the run of this row published.

    Its page cache delivers what the same page's Qwen3.5-35B run read at; first uses take the rest of the time of all
    installs. Without the page cache all reads are alike. What is not an install is in cpu.layer_us.
    """
    machine = timed_by_layer(replace(load_machine(MACHINE), gpu=None), "cpu", MODEL)
    copy_gb_s = dict(qwen_bank.machine_with_parts().quantities())["memory.copy_gb_s"].value
    cold = first_uses() if page_cache else installs(row)
    seconds = column(MS, "component", "ms")["pread install total"] / 1e3
    warm_s = (installs(row) - cold) * mean_expert_bytes() / copy_gb_s / 1e9
    values = {
        "memory.copy_gb_s": copy_gb_s,
        "storage.read_gb_s": cold * mean_expert_bytes() / (seconds - warm_s) / 1e9,
        "storage.request_us": 0.0,
        "host.install_us": 0.0,
        "host.call_us": 0.0,
    }
    return with_values(machine, values)


def without_page_cache() -> dict[str, float]:
    """The error of each bank size if every read took what a read took on average at bank 64."""
    rows = {row["bank"]: row for row in table(BANK)}
    anchor = run_of(rows[ANCHOR], 0.0)
    machine = fitted(
        machine_with_reads(rows[ANCHOR], page_cache=False),
        ("cpu.layer_us",),
        {anchor: float(rows[ANCHOR]["decode_tok_s"])},
    )
    return {bank: run_of(row, 0.0).tok_s(machine) / float(row["decode_tok_s"]) - 1 for bank, row in rows.items()}


def errors_from(anchor: dict[str, str], machine: Machine) -> dict[str, float]:
    """The error of each bank size with what is not an install fitted on this row."""
    found = fitted(machine, ("cpu.layer_us",), {run_of(anchor): float(anchor["decode_tok_s"])})
    return {row["bank"]: run_of(row).tok_s(found) / float(row["decode_tok_s"]) - 1 for row in table(BANK)}


@cache
def group() -> Group:
    rows = table(BANK)
    anchor = next(row for row in rows if row["bank"] == ANCHOR)
    tok_s = float(anchor["decode_tok_s"])
    found = fit(machine_with_reads(anchor), ("cpu.layer_us",), {run_of(anchor): tok_s})
    machine = found.machine
    memory, geometry = machine.memory, load_model(MODEL)
    assert memory is not None
    gib = {row["bank"]: geometry.bank_bytes(int(row["bank"])) / GIB for row in rows}
    touched_gib = first_uses() * mean_expert_bytes() / GIB
    largest = rows[-1]["bank"]
    predictions = tuple(
        predicted(
            "Kimi-K2.5, bank",
            f"bank {row['bank']}",
            f"bank {ANCHOR} and its install time",
            float(row["decode_tok_s"]),
            found.speed(run_of(row)),
            note=f"{gib[largest]:.0f} GiB of slots, of which {touched_gib:.0f} are written" if row is rows[-1] else "",
        )
        for row in rows
        if row is not anchor
    )
    naive, first = without_page_cache(), rows[0]
    from_first = errors_from(first, machine_with_reads(anchor))
    ram = memory.ram_gib.value
    explanation = prose(f"""\
Fitted: what a token takes beside installs, on bank {ANCHOR}, whose run is also the one with a published install
time. Banks {rows[-2]["bank"]} and {largest} read the same {first_uses() * 3:,} matrices, so nothing is evicted from
either, and those {first_uses():,} experts ({first_uses() / layers():.1f} a layer) are all that the run ever asks
for. With the same prompt, seed and temperature 0 the other rows ask for the same, and read some of them again,
within half a minute: {installs(first) - first_uses():,} of the {installs(first):,} installs of bank
{first["bank"]}. All that the run asks for is {touched_gib:.0f} GiB, and with a bank of {ANCHOR} ({gib[ANCHOR]:.0f}
GiB) beside it fits {ram:g} GiB, so what is read again comes from the page cache, at
{memory.copy_gb_s.value:.1f} GB/s where first reads get {machine.storage.read_gb_s.value:.1f}. That is why
the table is flat: a bank saves only the cheap reads.

If all reads were alike ({column(MS, "component", "ms")["per pread"]:g} ms each), bank {first["bank"]} would be off
by {naive[first["bank"]]:+.1%} and bank {largest} by {naive[largest]:+.1%}. With bank {first["bank"]} as the anchor
in place of {ANCHOR}, bank {rows[1]["bank"]} would be off by {from_first[rows[1]["bank"]]:+.1%}, bank {ANCHOR} by
{from_first[ANCHOR]:+.1%} and bank {largest} by {from_first[largest]:+.1%}: what is read again would have to come faster
still, whatever first reads take, as all rows have the same ones.

A bank of {largest} has {gib[largest]:.0f} GiB of slots on a machine of {ram:g} GiB: it can run only because
{1 - touched_gib / gib[largest]:.0%} of them are never written. Speeds are published with two digits, which is up to
{0.05 / min(float(row["decode_tok_s"]) for row in rows):.1%} either way.""")
    return Group("Kimi-K2.5 from SSD on 128 GB: bank sizes", predictions, explanation)
