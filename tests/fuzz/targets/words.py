"""What people type: banks, policies, predictors, systems, overrides, and whole command lines."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from flashmoe_sim.cli.main import main
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.sizes import exact_size, given_size, parse_size
from flashmoe_sim.parameters import spec_of
from flashmoe_sim.policies.bank import Bank, parse_banks
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.table import PREFETCHERS, parse_prefetcher
from flashmoe_sim.systems.placed import overridden
from flashmoe_sim.systems.split import parse_shares
from flashmoe_sim.systems.table import SYSTEMS, parse_system
from tests.fuzz.target import Document, Skip, Target
from tests.trace.jsonl_twin import in_layout

VERBS_OF_THINGS = ("trace", "model", "machine", "policy", "prefetch", "system")
VERBS = {"sweep", "replay", "curve", "diagnose", "ceilings", "predict", "compare", *VERBS_OF_THINGS}


def text(data: bytes) -> str:
    """Words as Python has them from a command line."""
    return data.decode("utf-8", "surrogateescape")


def of_bank(data: bytes, _: Path) -> list[Bank]:
    return parse_banks(text(data))


def same_text(_: bytes, banks: list[Bank], __: Path) -> None:
    assert banks == sorted(set(banks), key=banks.index), "a bank twice"
    for bank in banks:
        assert parse_banks(str(bank)) == [bank], f"{bank} reads back as another bank"


def of_size(data: bytes, _: Path) -> int:
    return given_size("--kv", text(data))


def exact(_: bytes, size: int, __: Path) -> None:
    assert parse_size(exact_size(size)) == size, "written and read, it is another size"


def named(parse: Callable[[str], Any], known: Any) -> Callable[[bytes, Path], Any]:
    """A name with parameters, unless it names a module: those of the user's are theirs to run."""

    def read(data: bytes, folder: Path) -> Any:
        words = text(data)
        if words.partition(":")[0] not in known and words.count(":"):
            raise Skip
        if re.search(r"/[^0-9]|=/|/$", words):  # a file on this machine; shares of GPUs have one, too
            raise Skip
        with chdir(folder):
            return parse(words)

    return read


def spelled(parse: Callable[[str], Any]) -> Callable[[bytes, Any, Path], None]:
    def holds(_: bytes, chosen: Any, folder: Path) -> None:
        with chdir(folder):
            assert parse(spec_of(chosen)) == chosen, f"{spec_of(chosen)} reads back as another"

    return holds


@cache
def small() -> Any:
    return load_model("qwen3-30b-a3b")


def of_overrides(data: bytes, _: Path) -> dict[int, str]:
    return overridden(small(), text(data), gpus=2)


def placed(_: bytes, found: dict[int, str], __: Path) -> None:
    assert set(found) == set(small().layers), "other layers"
    assert set(found.values()) <= {"", "CPU", "CUDA0", "CUDA1"}, "a place that the machine does not have"


def of_shares(data: bytes, _: Path) -> tuple[float, ...]:
    return parse_shares(text(data), 3)


def of_command_line(data: bytes, folder: Path) -> tuple[int, str, str]:
    """`sim` with a word on each line, in a folder with one trace."""
    arguments = text(data).split("\n")
    # work that was requested takes its time, and kernels of all policies are minutes of compiling
    much = re.search(r"[0-9_]{5}|[eE][0-9]|\ball\b", text(data))
    if arguments[0] not in VERBS or "/" in text(data) or ".." in arguments or much or "\0" in text(data):
        raise Skip
    if any(re.fullmatch(r"[\w.]*:\w+", word) and word.partition(":")[0] not in POLICIES for word in arguments):
        raise Skip  # a module
    (folder / "t.jsonl").write_bytes(in_layout(24, used=2))
    out, err = io.StringIO(), io.StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def clean(_: bytes, ended: tuple[int, str, str], __: Path) -> None:
    code, out, err = ended
    assert code in (0, 1, 2), f"exit {code}"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out + err), "control characters"
    if code and not err.startswith("Usage: sim "):  # a verb without its own verb explains itself
        assert err.count("\n") == 1, f"not one line: {err[:300]!r}"
        assert err.startswith("sim"), f"not a message of sim: {err[:100]!r}"


def lines(*commands: str) -> list[bytes]:
    return ["\n".join(command.split()).encode() for command in commands]


@st.composite
def banks(draw: st.DrawFn) -> Document:
    of_one_kind = draw(
        st.sampled_from([st.integers(1, 10**9).map(Bank), st.integers(1, 2**48).map(lambda size: Bank(None, size))])
    )
    some = draw(st.lists(of_one_kind, min_size=1, max_size=4, unique=True))
    return ",".join(map(str, some)).encode(), sorted(some, key=lambda bank: bank.size)


def same_banks(found: list[Bank], expected: list[Bank]) -> bool:
    return set(found) == set(expected) and [one.size for one in found] == [one.size for one in expected]


NUMBERS = (*b"1 -1 0 1e9 nan inf 1_0 99999999999 0.5".split(), "\u0663".encode(), b"\xff", b"\x1b")
COMMANDS = lines(
    "sweep t.jsonl --bank 2,4 --policy lru,min --contract atomic",
    "replay t.jsonl --bank 4 --json",
    "trace merge t.jsonl t.jsonl --how union --stagger 3 --out u.parquet",
    "trace speculate t.jsonl --draft 2 --accept 0.5 --seed 1 --out v.jsonl",
    "trace cut t.jsonl --steps 1..3 --layers 0-2 --out w.parquet",
    "trace synth --like t.jsonl --out x.parquet",
    "trace synth --curve 2:0.5,4:70% --layers 2 --experts 8 --topk 2 --tokens 9 --out x.parquet",
    "trace inspect t.jsonl --json",
    "diagnose t.jsonl --bank 4",
    "curve t.jsonl --json",
    "predict --model gpt-oss-20b --machine m3-max-48 --hit-rate 0.5,72% --bank 8",
    "machine show rtx-4090+64GiB",
    "model show gpt-oss-20b --json",
    "prefetch judge t.jsonl --bank 4 --prefetch eam --price 1.5",
    "policy show lru",
    "system list",
)
TARGETS = (
    Target(
        "words-bank",
        of_bank,
        lambda: [b"16..256", b"4GiB,8GiB", b"16,24..48"],
        (*NUMBERS, b"..", b",", b"+", b"-", b":", b"MiB", b"GB"),
        "",
        same_text,
        banks,
        same_banks,
    ),
    Target("words-size", of_size, lambda: [b"5GiB", b"1.5 MB", b"0B"], (*NUMBERS, b"KiB", b"GB"), "", exact),
    Target(
        "words-policy",
        named(parse_policy, (*POLICIES, "lookahead-16")),
        lambda: [name.encode() for name in POLICIES] + [b"lookahead-16", b"lru:stamp=last", b"lru-k:k=2:correlated=3"],
        (*NUMBERS, b":", b"=", b"seed", b"stamp", b"window", b"profile", b"True"),
        "",
        spelled(parse_policy),
    ),
    Target(
        "words-predictor",
        named(parse_prefetcher, PREFETCHERS),
        lambda: [name.encode() for name in PREFETCHERS] + [b"eam:width=4:reach=2", b"oracle-w:steps=3"],
        (*NUMBERS, b":", b"=", b"width", b"steps", b"recall"),
        "",
        spelled(parse_prefetcher),
    ),
    Target(
        "words-system",
        named(parse_system, SYSTEMS),
        lambda: (
            [name.encode() for name in SYSTEMS]
            + [b"slot-bank:slots=64", b"placed:cpu_layers=3:ts=3/1", b"placed:ot=exps=CPU"]
        ),
        (*NUMBERS, b":", b"=", b"slots", b"ot", b"ts", b"cpu_layers", b"gpus"),
        "",
        spelled(parse_system),
    ),
    Target(
        "words-overrides",
        of_overrides,
        lambda: [rb"blk\.(0|1|2)\.ffn_(gate|up|down)_exps=CPU,exps=CUDA1", b"exps=CPU"],
        (b"(", b")", b"*", b"+", b"\\d", b"{1,9}", b"[", b"?", b"|", b"=CPU", b",", b"CUDA0"),
        "",
        placed,
    ),
    Target("words-shares", of_shares, lambda: [b"3/1", b"1,1,1", b"0.5/0"], (*NUMBERS, b"/", b","), ""),
    Target(
        "command-line",
        of_command_line,
        lambda: COMMANDS,
        (b"\n", b"--json", b"--bank", b"--policy", b"--contract", b"--topk", b"--help", b"t.jsonl", *NUMBERS),
        "",
        clean,
        most_mib=512,
        most_cpu_s=60,
    ),
)
