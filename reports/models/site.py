"""The site that answers: every card of the table, in pieces that a page loads as it needs them."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from flashmoe_sim.geometry.named import model_names
from flashmoe_sim.io.sections import WAITS
from flashmoe_sim.machines.computers import LAPTOPS
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.parts import catalogue
from flashmoe_sim.machines.written import find_part
from flashmoe_sim.report.card import AnswerCard
from flashmoe_sim.report.page import card_html, preview, template
from flashmoe_sim.systems.facts import facts_of
from reports.models.answers import RESULTS, asked, card_in
from reports.models.machines import CARDS, DRIVE, MACS, RAM, RAM_GIB, UNIFIED, computers

HERE = Path(__file__).parent
FIRST = "gpt-oss-120b", "rtx-3060 + ddr4-3200x2 + 64GiB + nvme-gen4"  # on the page before anything is chosen
LLAMA_CPP = "https://github.com/ggml-org/llama.cpp"  # alone, if no operating system is named
LEAST_TOK_S = 1.0  # slower is of no use
AXIS = 1.0, 300.0  # tokens a second: the ends of the strips in tables
OTHERWISE = {  # what only the command answers; the first of each is what the table is for
    "drive": {DRIVE: "NVMe 4", "nvme-gen5": "NVMe 5", "nvme-gen3": "NVMe 3", "sata-ssd": "SATA"},
    "context": {"": "4,096", "--context 16384": "16,384", "--context 65536": "65,536"},
    "fast": {
        "": "answers",
        "--objective prompt --prompt-tokens 4096": "prompts",
        "--objective both --prompt-tokens 4096": "both",
    },
}

NO_CARD = [
    *(f"{no} {card}" for no in ("no", "without", "without a") for card in ("gpu", "graphics card")),
    "cpu only",
    "only cpu",
]
READS = WAITS["read"][1]
SYSTEMS = "No operating system was named, and Windows and Linux read a file at different speeds"
_SERIES = re.compile(r"^(rtx|gtx|rx|arc|tesla|ryzen|radeon) ")


def build(folder: Path, rows: pl.DataFrame) -> None:
    """Write the page, its pieces and its picture. rows: of `answers.parquet`, or some models of it."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    places = computers()
    speeds, files = dict[str, list[Any]](), dict[str, str]()
    for (model,), some in rows.group_by("model", maintain_order=True):
        of = {row["machine"]: row for row in some.iter_rows(named=True)}
        each = [of[place] for place in places]
        kinds = {_quantization(row) for row in each if row["file"]}
        files[str(model)] = kinds.pop() if len(kinds) == 1 else ""
        speeds[str(model)] = [_speed(row, says_file=not files[str(model)]) for row in each]
        _write(
            folder, str(model), {"lines": (lines := _Lines()).texts, "cards": [lines.of(_html(row)) for row in each]}
        )
    _write(folder, "speeds", speeds)
    row = rows.row(by_predicate=(pl.col("model") == FIRST[0]) & (pl.col("machine") == FIRST[1]), named=True)
    first = card_in(row)
    (folder / "preview.png").write_bytes(preview(first))
    page = template("site.html.j2", HERE).render(first=first, card=_html(row), known=_known(files), otherwise=OTHERWISE)
    (folder / "index.html").write_text(page, encoding="utf-8")


class _Lines:
    """The lines of many cards, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.known: dict[str, int] = {}

    def of(self, html: str) -> list[int]:
        found = []
        for line in filter(None, map(str.strip, html.split("\n"))):
            if line not in self.known:
                self.known[line] = len(self.texts)
                self.texts.append(line)
            found.append(self.known[line])
        return found


def _write(folder: Path, name: str, value: Any) -> None:
    """A piece: a script, since a page that is opened from a disk can load nothing else."""
    packed = gzip.compress(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0)
    (folder / "data" / f"{name}.js").write_text(
        f'take("{name}","{base64.b64encode(packed).decode()}")\n', encoding="utf-8"
    )


def _html(row: dict[str, Any]) -> str:
    """The card; where nothing runs, or too slowly to be used, a sentence."""
    if row["card"] is not None and row["tok_s"] >= LEAST_TOK_S:
        card = _with_a_build(card_in(row), row["machine"])
        reads = any(part.label == READS for part in card.parts)
        return card_html(card, level=2, below_parts=_on_systems(row["model"], row["machine"]) if reads else "")
    machine = load_machine(row["machine"]).title
    too_slow = f"Less than {LEAST_TOK_S:.0f} token a second: too slow to use" if row["why_not"] is None else ""
    return template("nothing.html.j2", HERE).render(
        title=f"{row['file'] or row['model']} on {machine}",
        says=too_slow or "It does not run",
        why=row["why_not"],
        asked=asked(row["model"], row["machine"]),
    )


def _with_a_build(card: AnswerCard, machine: str) -> AnswerCard:
    """The card with what to unpack if nothing says more than where llama.cpp's source is."""
    if card.get[0] != LLAMA_CPP:
        return card
    return replace(card, get=(_build_for(machine), *card.get[1:]))


@cache
def _build_for(machine: str) -> str:
    """How to have llama.cpp on Windows and on Linux."""
    facts, api = facts_of("llama-cpp"), load_machine(machine).api
    windows, linux = (facts.where_from("llama-server", os, api) for os in ("windows", "linux"))
    if windows.replace(".\\", "./") != linux:
        return f"On Windows, i{windows[1:]} On Linux, i{linux[1:]}"
    return windows if windows == linux else f"{windows[:-1]}, on Linux ./llama-server."


def _on_systems(model: str, machine: str) -> str:
    """What an answer that reads the drive leaves open if the operating system is not known; else empty."""
    if load_machine(machine).os:
        return ""
    return f"{SYSTEMS}: `{asked(model, f'{machine} + windows')}`, or `+ linux` instead."


def _quantization(row: dict[str, Any]) -> str:
    return str(row["file"]).partition(":")[2]


def _speed(row: dict[str, Any], *, says_file: bool) -> list[Any]:
    """As tables show it: speed, range, places on the strip in per cent, engine, and the file if that is said.

    Empty if it is too slow, or nothing runs.
    """
    if row["card"] is None or row["tok_s"] < LEAST_TOK_S:
        return []
    card, ends = json.loads(row["card"]), (row["tok_s_lo"], row["tok_s"], row["tok_s_hi"])
    return [
        card["speed"],
        card["likely"],
        *map(_place, ends),
        row["engine"],
        *([_quantization(row)] if says_file else []),
    ]


def _place(tok_s: float) -> int:
    lo, hi = AXIS
    return round(100 * math.log(min(max(tok_s, lo), hi) / lo) / math.log(hi / lo))


def _known(models: Mapping[str, str]) -> dict[str, Any]:
    """What can be chosen, and how it may be typed. models: with their files' quantization, if it is one."""
    names = model_names()
    whole = list[dict[str, Any]]()
    for name in (*MACS, *UNIFIED):
        chip = re.split(r" \+ |-(?=\d+$)", name)[0]
        gib = int(re.findall(r"(\d+)(?:GiB)?$", name)[0])
        whole.append(
            {
                "key": name,
                "label": f"{_short(find_part(chip).title)}, {gib} GB",
                "part": chip,
                "gib": gib,
                "mac": name in MACS,
                "words": _words(chip),
            }
        )
    return {
        "models": [
            {"key": one, "words": [name for name, of in names.items() if of == one], "file": file}
            for one, file in models.items()
        ],
        "cards": [
            *map(_card, CARDS),
            {"key": "", "label": "No graphics card", "words": NO_CARD},
        ],
        "gib": list(RAM_GIB),
        "ram": [{"key": one, "label": one.partition("-")[0].upper(), "cpu": cpu} for one, cpu in RAM.items()],
        "whole": whole,
        "laptops": LAPTOPS,
        "drives": [
            {"key": part.name, "label": part.title, "sata": part.class_ == "sata", "words": _of_drive(part.name)}
            for part in catalogue().values()
            if part.class_ in ("nvme", "sata") and "SSD" not in part.title
        ],
        "others": _others(
            models, {find_part(one["part"]).name for one in whole}
        ),  # not held, and not to be taken for what is
    }


def _others(models: Container[str], chips: Container[str]) -> dict[str, Any]:
    """What the program knows and the page does not hold."""
    words = defaultdict[str, list[str]](list)
    for name, of in model_names().items():
        if of not in models:
            words[of].append(name)
    parts = [part for part in catalogue().values() if part.name not in {find_part(one).name for one in CARDS}]
    return {
        "models": [{"key": key, "words": names} for key, names in words.items()],
        "cards": [_card(part.name) for part in parts if part.kind == "gpu"],
        "chips": [
            {"part": part.name, "label": _short(part.title), "words": _words(part.name)}
            for part in parts
            if part.kind == "chip" and part.name not in chips
        ],
    }


def _card(name: str) -> dict[str, Any]:
    part = find_part(name)
    gib = part.numbers["memory_gib"].value
    return {"key": name, "label": _short(part.title), "gib": round(gib), "words": _words(name)}


def _words(name: str) -> list[str]:
    """How people write a part: with its series or without."""
    part = find_part(name)
    ways = (name, part.title, *part.aliases)
    names = [re.sub(r"(\d)gb$", r"\1 gb", _short(one).lower().replace("-", " ")) for one in ways]
    return list(dict.fromkeys(way for one in names for way in (one, _SERIES.sub("", one))))


def _of_drive(name: str) -> list[str]:
    """How people write a drive, in words that are no card's or memory's."""
    return [words for words in _words(name) if len(words) > 3 and not words.isdigit()]


def _short(title: str) -> str:
    """`RTX 3060 12 GB`."""
    return re.sub(r"^(NVIDIA|AMD|Intel|Apple) (GeForce |Radeon |Tesla )?| \(.*?\)", "", title)


if __name__ == "__main__":
    build(Path(sys.argv[1]), pl.read_parquet(RESULTS))
