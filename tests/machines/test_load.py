"""What a machine's file may say, and the one line about each thing that is wrong with it."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput, Malformed, Missing, OutOfRange, TooLarge, UnknownName, Unusable
from flashmoe_sim.machines.load import load_machine, machines_in, parse_machine
from flashmoe_sim.machines.machine import Anchors, Quantity
from flashmoe_sim.machines.reads import MeasuredRead
from flashmoe_sim.machines.table import PRESETS
from tests.machines.builders import FULL
from tests.support import refused


def test_every_key_is_read() -> None:
    machine = parse_machine(FULL, where="full.toml")
    assert (machine.name, machine.title, machine.unified) == ("full", "A machine with every section", False)
    assert machine.memory.bandwidth_gb_s == Quantity(60, 50, 65.5, "stream", "8 threads")
    assert machine.storage.measured == (MeasuredRead(4096, 4, 3.5, "fio"),)
    assert machine.link.request_us.value == 0
    assert machine.gpu.memory_gib == Quantity(23, 23, 23, "spec", "no display")
    assert (machine.cpu.weights_gb_s, machine.cpu.memory_gib) == (None, None)
    assert machine.anchors == Anchors(("a", "b"), "tiny", "2026-01-01", "sim machine fit a b")
    assert (machine.os, machine.gpu_maker, machine.gpu_compute) == ("linux", "nvidia", "8.9")
    assert (machine.cpu_features, machine.cpu_cores) == (("avx2", "avx512"), 16)


@pytest.mark.parametrize(("api", "maker"), [("cuda", "nvidia"), ("rocm", "amd"), ("metal", "apple"), ("vulkan", "")])
def test_a_maker_follows_from_its_own_interface(api: str, maker: str) -> None:
    text = FULL.replace('gpu_maker = "nvidia"', f'api = "{api}"')
    assert parse_machine(text, where="").gpu_maker == maker


def test_intervals_that_are_not_given() -> None:
    machine = parse_machine(FULL, where="full.toml")
    memory, storage, cpu = machine.memory, machine.storage, machine.cpu
    assert (memory.copy_gb_s.lo, memory.copy_gb_s.hi) == (9, 11)
    assert memory.reserve_gib.estimated
    assert (memory.reserve_gib.lo, memory.reserve_gib.hi) == (2.5, 6.4)
    assert (memory.ram_gib.lo, memory.ram_gib.hi) == (64, 64)
    assert (storage.lanes.lo, storage.lanes.hi) == (4, 4)
    assert (cpu.knee_tokens.lo, cpu.knee_tokens.hi) == (1, 1.1)  # no lower than the least it can be


def test_what_is_optional() -> None:
    text = FULL[: FULL.index("[memory]")] + FULL[FULL.index("[storage]") : FULL.index("[link]")]
    text += FULL[FULL.index("[cpu]") : FULL.index("[anchors]")]
    text = text[: text.index("hot_share")] + text[text.index("[cpu]") :]
    text = text[: text.index("os =")] + text[text.index("[storage]") :]
    machine = parse_machine(text, where="small.toml")
    assert (machine.link, machine.gpu, machine.anchors, machine.storage.hot_share) == (None, None, None, None)
    assert (machine.memory, machine.storage.measured) == (None, ())
    assert (machine.os, machine.gpu_maker, machine.gpu_compute, machine.cpu_features) == ("", "", "", None)
    assert machine.cpu_cores == 0
    assert machine.quantities()[0][0] == "storage.read_gb_s"


def test_a_gpu_cannot_have_more_than_the_memory_it_shares() -> None:
    unified = FULL.replace("unified = false", "unified = true")
    assert parse_machine(unified, where="").unified
    with pytest.raises(OutOfRange, match=r"gpu\.memory_gib is 65, but a unified machine shares memory\.ram_gib 64"):
        parse_machine(unified.replace("memory_gib = { value = 23", "memory_gib = { value = 65"), where="")


BREAD = "memory.bandwidth_gb_s"
LANES = "storage.lanes: value is {}; expected an integer from 1 to 4096"
REQUEST = 'request_us = { value = 0, source = "nvbandwidth", condition = "Gen4" }'
WRONG = [
    ("lo = 50", f"lo = {'9' * 400}", f"{BREAD}: lo is 99999", OutOfRange),
    ("lo = 50", f"lo = {'9' * 5000}", "a number has thousands of digits; expected at most 1e18", Malformed),
    ("lo = 50", f"lo = 0x{'f' * 5000}", f"{BREAD}: lo is too long to show; expected a number above 0", OutOfRange),
    ("[host]", "[hosts]", "unknown key 'hosts'; known: name, title, unified, api, gpus, cards, machines,", UnknownName),
    (FULL[FULL.index("[host]") : FULL.index("[anchors]")], "", "[host] is missing; expected [storage], [ho", Malformed),
    ("read_gb_s", "read", "storage.read has no unit: write read_gb_s", UnknownName),
    ("call_us", "call", "host.call has no unit: write call_us", UnknownName),
    ("read_gb_s", "read_mb_s", "unknown key storage.read_mb_s; did you mean 'read_gb_s'? known: read_gb_", UnknownName),
    ("layer_us = { value = 80", "zebra = { value = 80", "unknown key cpu.zebra; known: weights_gb_s, att", UnknownName),
    ("[cpu]", "[cpu]\nmemory_gib = 3", "unknown key cpu.memory_gib; known: weights_gb_s, attention_gb_s,", UnknownName),
    (REQUEST, "", "link.request_us is miss", Malformed),
    ('{ value = 10, source = "dd", condition = "4 threads" }', "10", "memory.copy_gb_s is 10; expected { v", Malformed),
    ("value = 60", 'value = "60"', f"{BREAD}: value is '60'; expected a number above 0", Malformed),
    ("value = 60", "value = true", f"{BREAD}: value is True; expected a number above 0", Malformed),
    ("value = 60", "value = 0", f"{BREAD}: value is 0; expected a number above 0", OutOfRange),
    ("value = 100,", "value = -1,", "storage.request_us: value is -1; expected a number from 0", OutOfRange),
    ("value = 60", "value = inf", f"{BREAD}: value is inf; expected a number above 0", OutOfRange),
    ("value = 60", "value = nan", f"{BREAD}: value is nan; expected a number above 0", OutOfRange),
    ("value = 60", "value = 1e300", f"{BREAD}: value is 1e+300; expected a number above 0", OutOfRange),
    ("lanes = { value = 4", "lanes = { value = 4097", LANES.format(4097), OutOfRange),
    ("lanes = { value = 4", "lanes = { value = 4.5", LANES.format(4.5), OutOfRange),
    ("value = 0.5", "value = 1.5", "storage.hot_share: value is 1.5; expected a number above 0 to 1", OutOfRange),
    ("knee_tokens = { value = 1,", "knee_tokens = { value = 0.5,", "cpu.knee_tokens: value is 0.5; expect", OutOfRange),
    ("lo = 50", "lo = 61", f"{BREAD}: lo 61, value 60, hi 65.5; expected lo <= value <= hi", OutOfRange),
    ("hi = 65.5", "hi = 55", f"{BREAD}: lo 50, value 60, hi 55; expected lo <= value <= hi", OutOfRange),
    ("lo = 50", "lo = 'x'", f"{BREAD}: lo is 'x'; expected a number above 0", Malformed),
    ("value = 60, ", "", f"{BREAD}: value is missing; expected {{ value", Malformed),
    ('source = "stream", ', "", f"{BREAD}: source is missing; expected a text", Malformed),
    ('source = "stream"', 'source = " "', f"{BREAD}: source is ' '; expected a text", Malformed),
    (', condition = "8 threads"', "", f"{BREAD}: condition is missing", Malformed),
    ("lo = 50", "low = 50", f"{BREAD}: unknown key 'low'; known: value, lo, hi, source, condition", UnknownName),
    ("estimated = true", "estimated = 1", "memory.reserve_gib: estimated is 1; expected true or false", Malformed),
    ("reserve_gib = { value = 4", "reserve_gib = { value = 64", "memory.reserve_gib is 64, but memory.ram", OutOfRange),
    ("unified = false", "unified = 0", "unified is 0; expected true or false", Malformed),
    ("unified = false", "unified = false\ngpus = 0", "gpus is 0; expected the number of GPUs", OutOfRange),
    ("unified = false", "unified = true\ngpus = 2", "gpus is 2; several need [gpu]", Malformed),
    ("unified = false", f"unified{'.a' * 3000} = 1", "a key of more than 16 dots; a machine's have one", Malformed),
    ("[host]", f"[host{'.a' * 3000}]", "a key of more than 16 dots", Malformed),
    ("unified = false", f"unified = {{ z{'.a' * 3000} = 1 }}", "a key of more than 16 dots", Malformed),
    ('os = "linux"', 'os = "beos"', "os is 'beos'; expected the operating system: linux, windows, macos,", UnknownName),
    ('"nvidia"', '"3dfx"', "gpu_maker is '3dfx'; expected the GPU's maker: nvidia, amd, apple, intel", UnknownName),
    ('"8.9"', "8.9", 'gpu_compute is 8.9; expected the compute capability, such as "8.6"', Malformed),
    ('"8.9"', '"sm_89"', "gpu_compute is 'sm_89'; expected the compute capability", Malformed),
    ('"avx512"', '"mmx"', "cpu_features is ['avx2', 'mmx']; expected a list of avx2, avx512, amx, neon", Malformed),
    ('["avx2", "avx512"]', '"avx2"', "cpu_features is 'avx2'; expected a list of avx2, avx512, amx, neon", Malformed),
    ("cpu_cores = 16", "cpu_cores = 0", "cpu_cores is 0; expected the CPU's physical cores, 1 to 1024", OutOfRange),
    ('name = "full"', "name = 3", "name is 3; expected a text", Malformed),
    ('title = "A machine with every section"', "", "title is missing", Malformed),
    ("[[storage.measured]]", "[storage.measured]", "storage.measured is {", Malformed),
    ("size_kib = 4096", "size_mib = 4", "storage.measured 1: unknown key 'size_mib'; known: size_kib", UnknownName),
    ("gb_s = 3.5\n", "", "storage.measured 1: gb_s is missing; expected size_kib, lanes, gb_s, sou", Malformed),
    *(
        (
            "lanes = 4\n",
            f"lanes = {n}\n",
            f"storage.measured 1: lanes is {n}; expected an integer from 1 to 4096",
            OutOfRange,
        )
        for n in (0, 4097)
    ),
    ("size_kib = 4096", "size_kib = 0", "storage.measured 1: size_kib is 0; expected a number above 0", OutOfRange),
    (
        "[link]",
        '[[storage.measured]]\nsize_kib = 4096.0\nlanes = 4\ngb_s = 2\nsource = "x"\n[link]',
        "storage.measured 2: a second point at 4096 KiB and 4 lanes; expected one",
        Malformed,
    ),
    ('model = "tiny"\n', "", "anchors is {", Malformed),
    ('runs = ["a", "b"]', "runs = []", "anchors.runs is []; expected a list of texts", Malformed),
    ("[gpu]", "[gpu", "not TOML: Expected ']' at the end of a table declaration (at line 33, column 5)", Malformed),
    ("[cpu]", "[gpu]", "not TOML: Cannot declare ('gpu',) twice (at line 39", Malformed),
    (FULL[FULL.index("[link]") : FULL.index("[host]")], "", "neither [gpu] nor [cpu]", Malformed),
    (FULL[FULL.index("[gpu]") : FULL.index("[cpu]")], "", "[link] without [gpu]", Malformed),
    (FULL, "memory = 3\nstorage = 3\nhost = 3\ncpu = 3\n", "memory is 3", Malformed),
]


@pytest.mark.parametrize(("old", "new", "message", "kind"), WRONG)
def test_wrong(old: str, new: str, message: str, kind: type[BadInput]) -> None:
    assert FULL.count(old) >= 1
    with refused(kind, begins=f"my.toml: {message}"):
        parse_machine(FULL.replace(old, new, 1), where="my.toml")


def test_times_may_be_zero_but_not_infinite() -> None:
    zero = parse_machine(FULL.replace("value = 65,", "value = 0,"), where="my.toml")
    assert (zero.host.call_us.lo, zero.host.call_us.value, zero.host.call_us.hi) == (0, 0, 0)
    assert all(quantity.hi < inf for _, quantity in zero.quantities())


def test_a_path(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(FULL)
    assert load_machine(path) == load_machine(str(path)) == parse_machine(FULL, where="")


def test_a_preset_s_name_means_the_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / PRESETS[0]).write_text(FULL)
    assert load_machine(PRESETS[0]).name == PRESETS[0]
    assert load_machine(f"./{PRESETS[0]}").name == "full"


@pytest.mark.parametrize(
    ("given", "message", "kind"),
    [
        ("m9-max", "unknown machine 'm9-max'; did you mean 'm5-max-64' or 'm5-max-48' or 'm4-max-64'? `s", UnknownName),
        ("my.toml", "my.toml: no such file; give a machine's TOML file, or a name from `sim machine list`", Missing),
        ("no/such", "no/such: no such file", Missing),
        ("nul\0.toml", "'nul\\x00.toml': cannot be the name of a machine or of its file", Malformed),
        (".", ".: is not a regular file", Unusable),
        ("latin", "latin: is not UTF-8 text (at byte 1)", Malformed),
        ("large", "large: more than 256 KiB", TooLarge),
        ("empty", "empty: [storage] is missing", Malformed),
        ("dots", "dots: a key of more than 16 dots; a machine's have one, as storage.read_gb_s", Malformed),
        ("texts", "texts: unknown key 'z'", UnknownName),
    ],
)
def test_files_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, message: str, kind: type[BadInput]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin").write_bytes(b'"\xe9"')
    Path("large").write_bytes(b"#" * 2**20 + "é".encode())
    Path("empty").touch()
    many = ".a" * 20_000
    Path("dots").write_text(f'z{many}."b" = 1')
    Path("texts").write_text(
        f'# {many}\nz = \'a{many}\'  # {many}\ny = """\n"\\"{many}\n"""\nx = [1.5, {"2.5, " * 99}]\n'
    )
    with refused(kind, message):
        load_machine(given)


def test_parts_with_commas_between_them_are_one_machine() -> None:
    """As people write them; names that are machines by themselves stay several."""
    whole = "RTX 3060 12GB, Ryzen 5 5600, 64 GB DDR4"
    assert machines_in(whole) == ["RTX 3060 12GB + Ryzen 5 5600 + 64 GB DDR4"]
    assert load_machine(whole) == load_machine("rtx-3060 + ryzen-5600 + ddr4 + 64GiB")
    assert machines_in("rtx-3060, rtx-4090") == ["rtx-3060", "rtx-4090"]
    two = "m4-max + 64GiB, m4-max + 64GiB + usb-ssd"
    assert machines_in(two) == [name.strip() for name in two.split(",")]


@pytest.mark.parametrize("text", ["rtx-3060, rtx-409", "rtx-3060, rtx-4090,"])
def test_what_is_no_machine_stays_as_it_is(text: str) -> None:
    """An unknown name and an empty one: each is said where it is read."""
    assert machines_in(text) == [name.strip() for name in text.split(",")]
    with pytest.raises(UnknownName):
        load_machine(text)


def test_a_path_may_have_a_comma(tmp_path: Path) -> None:
    path = tmp_path / "mine, too.toml"
    path.write_text(FULL)
    assert load_machine(path) == load_machine(str(path))
