"""What `sim recommend` answers for every model on every computer of the site, kept as cards."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.report.card import (
    AnswerCard,
    Band,
    Filled,
    Help,
    OtherEngine,
    PartOfToken,
    SeenElsewhere,
    card_of,
)
from flashmoe_sim.report.first_screen import short_name
from flashmoe_sim.verbs.recommend import Recommend
from reports.models.machines import MODELS, computers

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("answers.parquet")
STARTED = ROOT / "out" / "models"  # what is asked so far
PROGRAM = ROOT / "flashmoe_sim"
PARTS = {
    "bands": Band,
    "seen": SeenElsewhere,
    "memory": Filled,
    "engines": OtherEngine,
    "parts": PartOfToken,
    "helps": Help,
}
LEVEL = 19  # of zstd
MOST_REPLAYS = 400  # kept in memory: some 5 GiB of the largest models


def asked(model: str, machine: str) -> str:
    """The command with the same answer."""
    return f"sim recommend {model} --machine {shlex.quote(machine)}"


def answers(model: str, of: Iterable[str]) -> list[dict[str, Any]]:
    """The answers for computers that mostly replay the same sizes."""
    replays, found = dict[str, Any](), []
    for computer in of:
        found.append(_answer(model, computer, replays))
        if sum(map(len, replays.values())) > MOST_REPLAYS:
            replays.clear()
    return found


def _answer(model: str, computer: str, replays: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"model": model, "machine": computer}
    try:
        found = Recommend(model=model, machine=computer).advise(replays=replays)
    except BadInput as error:
        return {**row, "why_not": str(error)}
    best = found.best.best
    card = asdict(card_of(found, asked(model, computer)))
    return {
        **row,
        "why_not": None,
        "file": found.case.model.name,
        "engine": short_name(best),
        "tok_s": best.tok_s,
        "tok_s_lo": best.tok_s_lo,
        "tok_s_hi": best.tok_s_hi,
        "day": card.pop("day").isoformat(),
        "card": json.dumps(card, ensure_ascii=False),
    }


def card_in(row: dict[str, Any]) -> AnswerCard:
    """The card of a row."""
    values: dict[str, Any] = {
        name: tuple(PARTS[name](*one) for one in value) if name in PARTS else value
        for name, value in json.loads(row["card"]).items()
    }
    return AnswerCard(**values, day=row["day"])


def ask_all() -> None:
    """Ask everything, go on where an earlier run of the same program ended, and write the table."""
    STARTED.mkdir(parents=True, exist_ok=True)
    kept = STARTED / f"{_digest()}.jsonl"
    rows = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept.exists() else []
    known = {(row["model"], row["machine"]) for row in rows}
    groups = [(model, [one for one in each if (model, one) not in known]) for model in MODELS for each in _alike()]
    left = [(model, each) for model, each in groups if each]
    with ProcessPoolExecutor(os.cpu_count()) as workers, kept.open("a", encoding="utf-8") as file:
        asking = [workers.submit(answers, model, each) for model, each in left]
        for number, answered in enumerate(as_completed(asking)):
            some = answered.result()
            file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in some)
            file.flush()
            rows += some
            print(f"models: {number + 1} of {len(left)}: {some[0]['model']}, {some[0]['machine']}", file=sys.stderr)
    order = {each: place for place, each in enumerate(product(MODELS, computers()))}
    rows.sort(key=lambda row: order[row["model"], row["machine"]])
    table = pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))
    table.write_parquet(RESULTS, compression="zstd", compression_level=LEVEL, row_group_size=len(table))


def _alike() -> list[list[str]]:
    """Computers by the memory of their GPUs: banks of the same sizes are replayed for all."""
    found = defaultdict[float, list[str]](list)
    for one in computers():
        gpu = load_machine(one).gpu
        found[0.0 if gpu is None or gpu.memory_gib is None else gpu.memory_gib.value].append(one)
    return list(found.values())


def _digest() -> str:
    """Of the program: another one answers anew."""
    files = sorted(path for path in PROGRAM.rglob("*") if path.suffix in (".py", ".toml", ".csv") and path.is_file())
    return hashlib.sha256(b"".join(_read(files))).hexdigest()[:16]


def _read(files: Iterable[Path]) -> Iterator[bytes]:
    for path in files:
        yield path.relative_to(ROOT).as_posix().encode()
        yield path.read_bytes()
