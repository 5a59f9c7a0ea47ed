"""Reading published rows: their content, and one line about any error in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput, OutOfRange
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.timeline.rates import Rate, parse_hit_rates, percent_or_share, read_rates
from reports.fidelity.from_table import PUBLISHED
from tests.support import refused


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(text)
    return path


def test_everything_that_a_row_can_tell(tmp_path: Path) -> None:
    path = written(
        tmp_path, "bank,topk,hit_pct,misses_per_call,decode_tok_s,other\n16,4,58.8,1.68,46.9,x\n8GiB,,60,,,\n"
    )
    first, second = read_rates(path)
    assert first == Rate(f"{path}: line 2", 0.588, 1.68, 4, Bank(slots=16), 46.9, in_percent=True)
    assert first.misses(4) == 1.68  # counted, where the hit rate is rounded
    assert second == Rate(f"{path}: line 3", hit_rate=0.6, bank=Bank(budget_bytes=8 << 30), in_percent=True)
    assert second.misses(5) == pytest.approx(2)
    assert second.measured_tok_s is None


def test_ends_of_a_speed(tmp_path: Path) -> None:
    (row,) = read_rates(written(tmp_path, "slots,hit_rate,tok_s_lo,tok_s_hi\n32,0.5,3,5\n"))
    assert (row.bank, row.measured_tok_s, row.tok_s_lo, row.tok_s_hi) == (Bank(slots=32), 4, 3, 5)


def test_hit_rates_are_shares_or_per_cent() -> None:
    assert [rate.hit_rate for rate in parse_hit_rates("0.588, 72.8%,0,1,100%")] == [0.588, 0.728, 0, 1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "Bank;Top-K;Hit_Pct;decode tok/s\n16;4;58.8;46.9\n",
        "bank\ttopk\thit rate (%)\ttok/s\n16\t4\t58.8\t46.9\n",
        "bank,topk,hit_rate,tok_s\n16,4,58.8%,46.9\n",
        "| bank | top-k | hit % | tok/s |\n|---|---|---|---|\n| 16 | 4 | 58.8 | **46.9** |\n",
        "bank,topk,hit_pct,hit_rate,tok_s\n16,4,58.8,0.588,46.9\n",
    ],
)
def test_tables_as_people_write_them(tmp_path: Path, text: str) -> None:
    (rate,) = read_rates(written(tmp_path, text))
    assert (rate.hit_rate, rate.top_k, rate.bank, rate.tok_s) == (pytest.approx(0.588), 4, Bank(slots=16), 46.9)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("hit_pct\n0.5\n0.2\n", "hit_pct 0.5 is read as 0.50%; if it means 0 to 1, name the column hit_rate"),
        ("hit_pct\n0.5%\n", ""),
        ("hit_pct\n0.5\n50\n", ""),
        ("hit_pct\n0\n", ""),
        ("hit_rate\n0.005\n", ""),
    ],
)
def test_shares_in_a_column_of_per_cent(tmp_path: Path, text: str, note: str) -> None:
    assert percent_or_share(read_rates(written(tmp_path, text))) == note


@pytest.mark.parametrize("name", ["anemll_qwen35_35b_bank", "hot_cache_hit_vs_tok_s", "slot_remap_qwen3_235b"])
def test_published_tables_are_read(name: str) -> None:
    rates = read_rates(PUBLISHED / f"{name}.csv")
    assert len(rates) == {"anemll_qwen35_35b_bank": 5, "hot_cache_hit_vs_tok_s": 8, "slot_remap_qwen3_235b": 3}[name]
    assert all(rate.measured_tok_s for rate in rates)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a table as CSV"),
        ("hit_pct\n", "no rows under its header"),
        ("bank,tok_s\n16,4\n", "no column misses_per_call, hit_pct or hit_rate; found: bank, tok_s"),
        ("hit_pct\nmany\n", "line 2: found hit_pct 'many'; expected 0 to 100"),
        ("hit_pct\nnan\n", "line 2: found hit_pct 'nan'"),
        ("hit_pct\ninf\n", "line 2: found hit_pct 'inf'"),
        ("hit_pct\n-1\n", "line 2: found hit_pct '-1'"),
        ("hit_pct\n101\n", "line 2: found hit_pct '101'; expected 0 to 100"),
        ("hit_rate\n58.8\n", "line 2: found hit_rate '58.8'; expected 0 to 1, or per cent with its sign"),
        ("hit_pct\n5_0\n", "line 2: found hit_pct '5_0'"),
        ("misses_per_call\n1_6\n", "line 2: found misses_per_call '1_6'; expected a number from 0"),
        ("misses_per_call\n\u0663\n", "line 2: found misses_per_call '\u0663'"),
        ("hit_pct,Hit_PCT\n50,90\n", "the column hit_pct is there twice; leave one of them out"),
        ("hit_pct,hit_rate\n50,0.9\n", "line 2: hit_pct 50 and hit_rate 0.9 differ; leave one of them out"),
        ("hit_pct,bank\n,16\n", "line 2: no number in the columns hit_pct; expected one"),
        ("hit_pct,bank\n5\n", "line 2: 1 cells; expected 2"),
        ("hit_pct,bank\n5,few\n", "line 2: bank 'few': expected slots, bytes or a share"),
        ("hit_pct,topk\n5,2.5\n", "line 2: topk 2.5; expected a whole number"),
        ("hit_pct,topk\n5,0\n", "line 2: topk 0; expected a whole number"),
        ("hit_pct,tok_s\n5,0\n", "line 2: a speed of 0 tokens a second"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with refused(BadInput, message, begins=str(path)):
        read_rates(path)


@pytest.mark.parametrize("text", ["", "half", "0.5,", "1.5", "-0.1", "101%", "nan", "58.8", "5_0%", "\u0665%"])
def test_hit_rates_that_cannot_be(text: str) -> None:
    with pytest.raises(BadInput, match="hit rate"):
        parse_hit_rates(text)


def test_a_call_cannot_miss_more_than_it_asks_for() -> None:
    rate = Rate("t.csv: line 2", misses_per_call=4.5)
    assert rate.misses(8) == 4.5
    with pytest.raises(OutOfRange, match=r"t\.csv: line 2: 4\.5 misses a call, which asks for 4 experts"):
        rate.misses(4)
