"""Machines and published numbers: TOML, parts, tables of rates, curves and rows, profiles of a hot cache."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.anchors import Anchor
from flashmoe_sim.machines.compose import compose
from flashmoe_sim.machines.load import load_machine, parse_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.parts import catalogue
from flashmoe_sim.machines.rows import read_rows
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.machines.write import toml
from flashmoe_sim.policies._perf_profile import LayerProfile, read_profile
from flashmoe_sim.timeline.rates import Rate, read_rates
from flashmoe_sim.trace.synth_curve import read_hit_points
from native_bridge.probe.fio import FioReads, parse_fio
from tests.fuzz.target import Document, Target
from tests.machines.builders import FULL


def of_machine(data: bytes, folder: Path) -> Machine:
    path = folder / "m.toml"
    path.write_bytes(data)
    return load_machine(path)


def written_again(_: bytes, machine: Machine, __: Path) -> None:
    """A machine that was read is written, and read again, as it is; every number is in its interval."""
    assert parse_machine(toml(machine), where="again") == machine, "written and read, it is another machine"
    for path, quantity in machine.quantities():
        assert quantity.lo <= quantity.value <= quantity.hi, f"{path} is not in its interval"


@st.composite
def machines(draw: st.DrawFn) -> Document:
    machine = load_machine(draw(st.sampled_from(sorted(PRESETS))))
    path, quantity = draw(st.sampled_from(list(machine.quantities())))
    machine = machine.varied(path, draw(st.floats(quantity.lo, quantity.hi)))
    return toml(machine).encode(), machine


def of_parts(data: bytes, _: Path) -> Machine:
    return compose(data.decode("utf-8", "surrogateescape"))


def of_rates(data: bytes, folder: Path) -> list[Rate]:
    (folder / "r.csv").write_bytes(data)
    return read_rates(folder / "r.csv")


def possible(_: bytes, rates: list[Rate], __: Path) -> None:
    assert rates, "no rows"
    for rate in rates:
        assert rate.hit_rate is None or 0 <= rate.hit_rate <= 1, "a hit rate outside 0 to 1"
        assert rate.misses_per_call is None or 0 <= rate.misses_per_call < float("inf"), "misses that cannot be"
        assert rate.tok_s is None or 0 < rate.tok_s < float("inf"), "a speed that cannot be"


@st.composite
def tables(draw: st.DrawFn) -> Document:
    rows = draw(st.lists(st.tuples(st.integers(1, 512), st.integers(0, 1000)), min_size=1, max_size=6))
    separator = draw(st.sampled_from([",", ";", "\t"]))
    lines = [separator.join(["bank", "hit_pct"]), *(f"{bank}{separator}{tenths / 10}" for bank, tenths in rows)]
    expected = [(str(bank), tenths / 10 / 100) for bank, tenths in rows]
    if draw(st.booleans()):
        cells = [line.split(separator) for line in lines]
        lines = [f"| {' | '.join(row)} |" for row in [cells[0], ["---", "---"], *cells[1:]]]
    return "\n".join(lines).encode(), expected


def chapters(data: bytes, folder: Path) -> list[Anchor]:
    (folder / "a.csv").write_bytes(data)
    return read_rows(folder / "a.csv", ["bank=16", "bank=32"], load_model("gpt-oss-20b"), top_k=None)


def measured(_: bytes, anchors: list[Anchor], __: Path) -> None:
    assert len(anchors) == 2, "other rows than were asked for"
    for anchor in anchors:
        assert 0 < anchor.tok_s < float("inf"), "a speed that cannot be"
        assert 0 <= anchor.misses <= anchor.layers * anchor.top_k, "more misses than experts asked for"


def of_curve(data: bytes, folder: Path) -> dict[int, float]:
    (folder / "c.csv").write_bytes(data)
    return read_hit_points(folder / "c.csv")


def rises(_: bytes, points: dict[int, float], __: Path) -> None:
    rates = [points[slots] for slots in sorted(points)]
    assert rates == sorted(rates), "it falls"
    assert all(0 <= rate <= 1 for rate in rates), "a hit rate outside 0 to 1"


def of_profile(data: bytes, folder: Path) -> dict[int, LayerProfile]:
    (folder / "p.json").write_bytes(data)
    return read_profile(folder / "p.json")


@st.composite
def profiles(draw: st.DrawFn) -> Document:
    counts = st.dictionaries(st.integers(0, 300), st.integers(1, 1 << 30), min_size=1, max_size=5)
    layers = draw(st.dictionaries(st.integers(0, 99), st.tuples(counts, counts), min_size=1, max_size=4))
    entries = [
        {"layer": number, "calls": 3, "hot_experts": [*hot.items()], "cold_experts": [*cold.items()]}
        for number, (hot, cold) in layers.items()
    ]
    expected = {
        number: {expert: hot.get(expert, 0) + cold.get(expert, 0) for expert in hot | cold}
        for number, (hot, cold) in sorted(layers.items())
    }
    return json.dumps({"schema": "llama.cpp.moe_layer_opt_perf.v1", "layers": entries}).encode(), expected


def same_hits(found: dict[int, LayerProfile], expected: Any) -> bool:
    return {number: dict(layer.hits) for number, layer in found.items()} == expected


def counted(data: bytes, layers: dict[int, LayerProfile], _: Path) -> None:
    """No more uses than the numbers in the document add up to."""
    text = json.loads(data)
    lists = [
        pair
        for layer in text["layers"]
        for name in ("hot_experts", "cold_experts", "experts")
        for pair in layer.get(name) or []
    ]
    total = sum(count for _, count in lists)
    assert 0 < sum(sum(layer.hits.values()) for layer in layers.values()) <= total, (
        "uses that the document does not have"
    )


def of_fio(data: bytes, _: Path) -> FioReads:
    return parse_fio(data.decode("utf-8", "replace"))


FIO = b'fio: a note\n{"fio version":"fio-3.35","jobs":[{"error":0,"read":{"io_bytes":1048576,"runtime":12}}]}'
PART_TEXTS = (b"2x rtx-3090 + ryzen-5600 + ddr4-3200x2 + 64GiB", b"m3-max + 48GiB", b"rtx-4090+32GiB")
EXTREMES = (b"1e308", b"nan", b"inf", b"-1", b"0", b"1e400", b"99999999999999999999", b"'x'", b"[[]]", b"{}", b"\n")


def toml_files() -> list[bytes]:
    presets = resources.files("flashmoe_sim.machines").joinpath("presets")
    return [FULL.encode(), *(presets.joinpath(f"{name}.toml").read_bytes() for name in ("m2-16", "rtx-3090"))]


PROFILE = b"""{"schema": "llama.cpp.moe_layer_perf.v1", "layers": [
 {"layer": 0, "calls": 2, "hot_experts": [[1, 2]], "cold_experts": [[0, 3], [1, 1]],
  "parallel_join_wait_time_per_call_us": 3.5},
 {"layer": 2, "calls": 2, "experts": [[5, 4]], "total_moe_time_per_call_us": 20, "cold_slots_total": 9}]}"""
TOML = (b"value = ", b"lo = ", b"hi = ", b"[gpu]", b"[link]", b"[[storage.measured]]", b"gpus = 2", b"estimated = true")
TARGETS = (
    Target("machine-toml", of_machine, toml_files, (*EXTREMES, *TOML), "m.toml", written_again, machines),
    Target(
        "machine-parts",
        of_parts,
        lambda: PART_TEXTS,
        (b" + ", b"x", b"GiB", *(name.encode() for name in list(catalogue())[:40])),
        holds=written_again,
    ),
    Target(
        "table-rates",
        of_rates,
        lambda: [
            b"bank,hit_pct,topk,tok_s\n16,58.8,4,12.5\n8GiB,72%,4,\n",
            b"| bank | misses_per_call | tok_s_lo | tok_s_hi |\n|---|---|---|---|\n| 8 | 1.5 | 2 | 3 |\n",
        ],
        (*EXTREMES, b"hit_rate", b"hit rate (%)", b"slots", b'"', b";", b"|"),
        "r.csv",
        possible,
        tables,
        lambda found, expected: [(str(rate.bank), rate.hit_rate) for rate in found] == expected,
    ),
    Target(
        "table-rows",
        chapters,
        lambda: [b"bank,misses_per_call,tok_s,condition,topk\n16,2.5,12.5,a,4\n32,1,20,a,4\n64,0.1,30,b,4\n"],
        (*EXTREMES, b"hit_pct", b"condition", b"topk", b"misses_per_call", b"=", b"16", b'"'),
        "a.csv",
        measured,
    ),
    Target(
        "table-curve",
        of_curve,
        lambda: [b"bank,hit_pct\n16,58.8\n32,72%\n", b"slots;hit_rate\n1;0.1\n2;0.2\n"],
        (*EXTREMES, b"hit_rate", b"slots", b"|"),
        "c.csv",
        rises,
    ),
    Target(
        "profile",
        of_profile,
        lambda: [PROFILE],
        (*EXTREMES, b'"experts":', b'"layer":', b"1e999", b"[1,2]"),
        "p.json",
        counted,
        profiles,
        same_hits,
    ),
    Target("fio", of_fio, lambda: [FIO], (*EXTREMES, b'"jobs":', b'"runtime":', b"Infinity")),
)
