"""How likely a cache is faster: the fit by hand, what a file gets, and how good it is on machines that are left out."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest

from flashmoe_sim.field.rows import COLUMNS
from flashmoe_sim.tune.pays import ANY, Gains, gains
from reports.field.__main__ import main
from reports.field.gains import FILE, Seen, fitted, left_out, p_of, pairs_of, save, seen, with_score
from tests.field.builders import DEFAULTS, published, residuals, write

LRU, FIXED = "vram_lru", "vram_static_profile"
MACHINES = [f"m{number}" for number in range(8)]
PLAIN = DEFAULTS | {"machine_id": "m", "decode_tok_s": ""}
CACHE = PLAIN | {"id": "cache", "engine": "nobody's cache", "strategy": LRU, "slots_per_layer_or_cache_gib": "8 GiB"}


def made(kind: str, engine: str, gain: float, *, machines: list[str], predicted: float = 1.0) -> list[Seen]:
    return [Seen(name, kind, engine, math.log(predicted), math.log(gain), source=name) for name in machines]


def asked(kind: str, engine: str, predicted: float = 1.0) -> Seen:
    return Seen("new", kind, engine, math.log(predicted), math.nan)


def committed() -> list[Seen]:
    """The pairs of the committed answers."""
    return seen(pairs_of(list(published().values()), residuals()))


def test_probability_by_hand() -> None:
    """A level of 0.1 and a standard deviation of 0.5: one fifth of it, which 57.93% of a normal curve lie below."""
    kinds, engines = {ANY: (0.1, 0.4), LRU: (-0.1, 0.4)}, {"known": (0.2, 0.4)}
    found = Gains(1.0, 0.3, kinds, engines, {"one": (0.1, 0.4)}, pairs=3, machines=2, right=1.0)
    assert p_of(found, asked("ssd_stream", "unknown")) == pytest.approx(0.5793, abs=1e-4)
    assert p_of(found, asked(LRU, "known")) == pytest.approx(0.5793, abs=1e-4)
    assert p_of(found, asked(LRU, "unknown")) == pytest.approx(1 - 0.5793, abs=1e-4)
    assert found.of_system("one", 0.0) == found.of_system("another", 0.0) == pytest.approx(0.5793, abs=1e-4)


def test_probability_rises_with_the_gain_and_is_never_certain() -> None:
    found = gains()
    likely = [p_of(found, asked(LRU, "unknown", gain)) for gain in (1e-6, 0.1, 0.5, 0.9, 1.1, 2, 10, 1e6)]
    assert likely == sorted(likely)
    assert 0 < likely[0] < 0.1
    assert 0.9 < likely[-1] < 1


def test_an_engine_with_many_pairs_speaks_for_itself_and_an_unknown_one_gets_its_kind() -> None:
    other = made(LRU, "poor", 0.7, machines=["m8"])
    found = fitted([*made(FIXED, "good", 1.5, machines=MACHINES), *made(LRU, "bad", 0.7, machines=MACHINES), *other])
    assert p_of(found, asked(FIXED, "good")) > p_of(found, asked(FIXED, "unknown")) > 0.6
    assert p_of(found, asked(LRU, "bad")) < p_of(found, asked(LRU, "unknown")) < 0.4
    assert p_of(found, asked(FIXED, "good")) > 0.85
    assert (
        p_of(found, asked(FIXED, "unknown"))
        > p_of(found, asked("ssd_stream", "unknown"))
        > p_of(found, asked(LRU, "unknown"))
    )


def test_one_pair_says_less_than_eight_machines_and_one_machine_less_than_two() -> None:
    def likely(machines: list[str]) -> float:
        return p_of(fitted(made(LRU, "good", 1.4, machines=machines)), asked(LRU, "good"))

    assert 0.5 < likely(["m0"]) < likely(["m0"] * 8) < likely(MACHINES)


def test_a_source_that_is_left_out_and_a_pair_without_speeds_change_nothing() -> None:
    kept, out = made(LRU, "one", 1.4, machines=MACHINES[:2]), made(LRU, "one", 0.4, machines=MACHINES[2:3])
    assert fitted([*kept, *out], leaving=MACHINES[2]) == fitted(kept)
    assert fitted([*kept, asked(LRU, "one")]) == fitted(kept)
    assert left_out([*kept, *out])[0] == p_of(fitted([kept[1], *out]), kept[0])


def test_what_is_fitted_is_written_and_read(tmp_path: Path) -> None:
    save(gains(), tmp_path / "gains.toml")
    assert (tmp_path / "gains.toml").read_text() == FILE.read_text()


def test_stored_numbers_are_those_of_today() -> None:
    every = committed()
    stored, today = gains(), with_score(every)
    assert (stored.pairs, stored.machines, list(stored.systems)) == (len(every), today.machines, list(today.systems))
    assert stored.right == pytest.approx(today.right, abs=0.01)
    for one in every:
        assert p_of(stored, one) == pytest.approx(p_of(today, one), abs=0.01)


def test_scores_without_who_measured_a_pair() -> None:
    """140 pairs: a Brier score of 0.11, and 88% named rightly; what is said with nine tenths is right as often."""
    every = committed()
    likely, faster = left_out(every), [one.measured > 0 for one in every]
    assert all(0 < p < 1 for p in likely)
    assert statistics.fmean((p - won) ** 2 for p, won in zip(likely, faster, strict=True)) <= 0.12
    assert statistics.fmean((p > 0.5) == won for p, won in zip(likely, faster, strict=True)) >= 0.87
    sure = [(p > 0.5) == won for p, won in zip(likely, faster, strict=True) if not 0.1 < p < 0.9]
    assert len(sure) >= 15
    assert statistics.fmean(sure) >= 0.88


def test_probabilities_are_what_happens() -> None:
    """Of the pairs with a probability above three quarters, and of those below one quarter, about as many as said."""
    every = committed()
    likely = left_out(every)
    for some in ([p > 0.75 for p in likely], [p < 0.25 for p in likely]):
        mean = statistics.fmean(p for p, one in zip(likely, some, strict=True) if one)
        faster = statistics.fmean(pair.measured > 0 for pair, one in zip(every, some, strict=True) if one)
        assert mean == pytest.approx(faster, abs=0.15)


def test_a_file_gets_probabilities_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.csv", PLAIN, CACHE, PLAIN | {"id": "other", "machine_id": "n"})
    for arguments in (["--pairs", "--json"], ["--json", "--pairs"]):
        assert main([str(path), *arguments]) == 0
        (one,) = json.loads(capsys.readouterr().out)
        assert (one["cache"], one["plain"], set(one)) == ("cache", "one", {"cache", "plain", "p", "despite"})
        assert 0 < one["p"] < 1
    assert main([str(path), "--pairs"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"cache: faster than one with a probability of {one['p']:.0%}; predicted ")
    assert text.count("\n") == 1


def test_a_file_without_pairs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.csv", PLAIN)
    assert main([str(path), "--pairs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main([str(path), "--pairs"]) == 0
    assert "no pair" in capsys.readouterr().out


def test_measured_speeds_are_never_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = ("decode_tok_s", "prompt_tok_s", "bytes_per_token_read", "other_breakdown_ms")
    lines = []
    for speeds in (("", ""), ("1", "900"), ("900", "1")):
        cells = [
            row | dict.fromkeys(measured[:3], speed) | {measured[3]: f"token={speed}"}
            for row, speed in zip((PLAIN, CACHE), speeds, strict=True)
        ]
        assert main([str(write(tmp_path / "rows.csv", *cells)), "--pairs", "--json"]) == 0
        lines.append(capsys.readouterr().out)
    needed = tuple(name for name in COLUMNS if name not in measured)
    assert main([str(write(tmp_path / "rows.csv", PLAIN, CACHE, columns=needed)), "--pairs", "--json"]) == 0
    assert [*lines, capsys.readouterr().out] == [lines[0]] * 4
