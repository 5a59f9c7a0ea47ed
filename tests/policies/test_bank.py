"""Banks and ranges of banks, as the command line writes them."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from flashmoe_sim.io.errors import BadInput, Malformed, OutOfRange
from flashmoe_sim.policies.bank import Bank, parse_bank, parse_banks

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "bank", "written"),
    [
        ("1", Bank(slots=1), "1"),
        ("64", Bank(slots=64), "64"),
        ("064", Bank(slots=64), "64"),
        ("8GiB", Bank(budget_bytes=8 * GIB), "8GiB"),
        ("4000MiB", Bank(budget_bytes=4000 * 2**20), "4000MiB"),
        ("1.5GiB", Bank(budget_bytes=3 * 2**29), "1.5GiB"),
        ("2 KiB", Bank(budget_bytes=2048), "2KiB"),
        ("1000B", Bank(budget_bytes=1000), "1KB"),
        ("2GB", Bank(budget_bytes=2 * 10**9), "2GB"),
        ("3MB", Bank(budget_bytes=3 * 10**6), "3MB"),
        ("1KB", Bank(budget_bytes=1000), "1KB"),
        ("1048577B", Bank(budget_bytes=2**20 + 1), "1048577B"),
        ("1.25 GiB", Bank(budget_bytes=5 * 2**28), "1.25GiB"),
        ("0.5GiB", Bank(budget_bytes=2**29), "512MiB"),
        ("12.5%", Bank(share=Fraction(1, 8)), "12.5%"),
        ("1/8", Bank(share=Fraction(1, 8)), "12.5%"),
        ("1/3", Bank(share=Fraction(1, 3)), "1/3"),
        ("2/6", Bank(share=Fraction(1, 3)), "1/3"),
        ("100%", Bank(share=Fraction(1)), "100%"),
        ("0.39%", Bank(share=Fraction(39, 10_000)), "0.39%"),
        ("1/1000000", Bank(share=Fraction(1, 10**6)), "0.0001%"),
    ],
)
def test_one_bank(text: str, bank: Bank, written: str) -> None:
    assert parse_bank(text) == bank
    assert str(bank) == written
    assert parse_bank(str(bank)) == bank


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "-3",
        "+3",
        "1.5",
        "1e3",
        "8gib",
        "8 G",
        "8GiBs",
        "-1GiB",
        "0x10",
        "²",
        "٣",
        "8GiB 8GiB",
        "nan",
        "9" * 5000,
        "1/0",
        "1/8/2",
        "-5%",
        "%",
        "1.5/8",
        "12.5%%",
    ],
)
def test_not_a_bank(text: str) -> None:
    with pytest.raises(Malformed, match=re.escape(f"bank {text!r}: expected slots, bytes or a share")):
        parse_bank(text)


@pytest.mark.parametrize("text", ["0", "0GiB", "0.0001B", "0..8", "0,8", "0%", "0/8"])
def test_an_empty_bank(text: str) -> None:
    with pytest.raises(OutOfRange, match="bank 0"):
        parse_banks(text)


@pytest.mark.parametrize(
    ("text", "step", "slots"),
    [
        ("64", "auto", [64]),
        ("16..256", "auto", [16, 32, 64, 128, 256]),  # the ratio is at least 8: doubles
        ("16..128", "auto", [16, 32, 64, 128]),
        ("16..127", "auto", [16, 29, 42, 55, 68, 81, 94, 107, 120, 127]),  # just below: eighths, rounded down
        ("8..20", "auto", list(range(8, 21))),
        ("16..24", "auto", [16, 17, 18, 19, 20, 21, 22, 23, 24]),
        ("16..17", "auto", [16, 17]),
        ("16..16", "auto", [16]),
        ("1..3", "auto", [1, 2, 3]),
        ("3..100", "auto", [3, 6, 12, 24, 48, 96, 100]),  # the last is always there
        ("16..256", "64", [16, 80, 144, 208, 256]),
        ("16..64", "16", [16, 32, 48, 64]),
        ("16..64", "1000", [16, 64]),
        ("4..100", "x3", [4, 12, 36, 100]),
        ("16,24,64", "auto", [16, 24, 64]),
        ("64,16,24,16", "auto", [16, 24, 64]),  # ascending, without repeats
        ("8..10,64", "1", [8, 9, 10, 64]),
        ("8..10,9..12", "1", [8, 9, 10, 11, 12]),
        (" 8 , 16", "auto", [8, 16]),
    ],
)
def test_slots(text: str, step: str, slots: list[int]) -> None:
    assert parse_banks(text, step=step) == [Bank(slots=n) for n in slots]


@pytest.mark.parametrize(
    ("text", "step", "gib"),
    [
        ("4GiB..16GiB", "auto", [4, 5.5, 7, 8.5, 10, 11.5, 13, 14.5, 16]),
        ("4GiB..32GiB", "auto", [4, 8, 16, 32]),
        ("4GiB..16GiB", "x2", [4, 8, 16]),
        ("512MiB..2GiB", "x2", [0.5, 1, 2]),
        ("2GiB,1024MiB", "auto", [1, 2]),
    ],
)
def test_bytes(text: str, step: str, gib: list[float]) -> None:
    assert parse_banks(text, step=step) == [Bank(budget_bytes=int(size * GIB)) for size in gib]


@pytest.mark.parametrize(
    ("text", "step", "says"),
    [
        ("16..8", "auto", "bank range '16..8' goes down: write the smaller bank first, 8..16"),
        ("8GiB..512MiB", "auto", "goes down: write the smaller bank first, 512MiB..8GiB"),
        ("-3", "auto", "bank '-3': expected"),
        ("abc", "auto", "bank 'abc': expected"),
        ("", "auto", "bank '': expected"),
        ("8,", "auto", "bank '': expected"),
        ("8..", "auto", "bank range '8..': give both its ends, such as 16..256"),
        ("..8", "auto", "bank range '..8': give both its ends, such as 16..256"),
        ("8..16..32", "auto", "bank '16..32': expected"),
        ("8...16", "auto", "bank '.16': expected"),
        ("8-16", "auto", "bank '8-16': expected"),
        ("8..16GiB", "auto", "bank range '8..16GiB': both ends must be slots, both bytes or both shares"),
        ("8..50%", "auto", "bank range '8..50%': both ends must be slots, both bytes or both shares"),
        ("50%,8", "auto", "banks '50%,8': give all in slots, all in bytes or all as shares"),
        ("50%..10%", "auto", "goes down: write the smaller bank first, 10%..50%"),
        ("10%..50%", "16", "bank step '16': expected auto, a number to add such as 5%"),
        ("101%", "auto", "bank 101%: expected at most 100% of a layer's experts"),
        ("9/8", "auto", "bank 112.5%: expected at most 100% of a layer's experts"),
        ("8,16GiB", "auto", "banks '8,16GiB': give all in slots, all in bytes or all as shares"),
        ("8..16", "x1", "bank step 'x1': expected auto, a number to add such as 16, or a factor such as x2"),
        ("8..16", "0", "bank step '0': expected"),
        ("8..16", "-4", "bank step '-4': expected"),
        ("8..16", "x", "bank step 'x': expected"),
        ("8..16", "xx2", "bank step 'xx2': expected"),
        ("8..16", "fast", "bank step 'fast': expected"),
        ("8..16", "", "bank step '': expected"),
        ("8..16", "²", "bank step '²': expected"),
        ("8..16", "4GiB", "bank step '4GiB': expected auto, a number to add such as 16"),
        ("8GiB..16GiB", "4", "bank step '4': expected auto, a number to add such as 4GiB"),
        ("1..1000000000", "1", "more than 4096 sizes; give a larger --bank-step"),
    ],
)
def test_refused(text: str, step: str, says: str) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        parse_banks(text, step=step)


@pytest.mark.parametrize(
    ("text", "step", "written"),
    [
        ("1/16..1/2", "auto", "6.25% 12.5% 25% 50%"),
        ("10%..50%", "auto", "10% 15% 20% 25% 30% 35% 40% 45% 50%"),
        ("10%..50%", "15%", "10% 25% 40% 50%"),
        ("1/3,25%,2/6", "auto", "25% 1/3"),
        ("1/9..1/3", "x2", "1/9 2/9 1/3"),
    ],
)
def test_shares(text: str, step: str, written: str) -> None:
    assert " ".join(map(str, parse_banks(text, step=step))) == written


@pytest.mark.parametrize(
    ("text", "experts", "slots"),
    [
        ("12.5%", 128, 16),
        ("12.5%", 60, 7),
        ("1/3", 96, 32),
        ("29%", 100, 29),
        ("1%", 8, 1),
        ("100%", 8, 8),
        ("9", 8, 8),
    ],
)
def test_slots_of_a_layer(text: str, experts: int, slots: int) -> None:
    assert parse_bank(text).slots_of(experts) == slots


def test_a_bank_is_slots_or_bytes() -> None:
    with pytest.raises(OutOfRange, match="bank None: expected at least one slot or byte"):
        Bank()


def test_steps_of_bytes() -> None:
    banks = parse_banks("4GiB..16GiB", step="4GiB")
    assert [bank.budget_bytes for bank in banks] == [4 * GIB, 8 * GIB, 12 * GIB, 16 * GIB]
