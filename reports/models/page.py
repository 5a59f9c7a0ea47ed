"""`docs/reference/models.md`: a corner of the table of answers, and the way to the rest."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from reports.models.answers import RESULTS
from reports.models.machines import CARDS, MACS, MODELS, RAM, RAM_GIB, UNIFIED
from reports.models.site import LEAST_TOK_S
from reports.pages import joined, table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
SHOWN_MODELS = (
    "gpt-oss-20b",
    "gpt-oss-120b",
    "qwen3.6-35b-a3b",
    "qwen3-next-80b-a3b",
    "glm-4.5-air",
    "qwen3-235b-a22b",
    "deepseek-v3",
)
SHOWN_MACHINES = {
    "RTX 3060 12 GB, 64 GB of DDR4": "rtx-3060 + ddr4-3200x2 + 64GiB + nvme-gen4",
    "RTX 3090, 64 GB of DDR4": "rtx-3090 + ddr4-3200x2 + 64GiB + nvme-gen4",
    "RTX 4060, 32 GB of DDR5": "rtx-4060 + ddr5-5600x2 + 32GiB + nvme-gen4",
    "RTX 4090, 64 GB of DDR5": "rtx-4090 + ddr5-5600x2 + 64GiB + nvme-gen4",
    "RTX 5060 Ti 16 GB, 64 GB of DDR5": "rtx-5060-ti-16gb + ddr5-5600x2 + 64GiB + nvme-gen4",
    "RTX 5090, 128 GB of DDR5": "rtx-5090 + ddr5-5600x2 + 128GiB + nvme-gen4",
    "RX 9070 XT, 32 GB of DDR5": "rx-9070-xt + ddr5-5600x2 + 32GiB + nvme-gen4",
    "Apple M2, 16 GB": "m2-16",
    "Apple M4 Pro, 48 GB": "m4-pro-48",
    "Apple M4 Max, 128 GB": "m4-max-128",
    "Apple M3 Ultra, 512 GB": "m3-ultra-512",
    "Ryzen AI Max+ 395, 128 GB": "strix-halo-128",
    "DGX Spark, 128 GB": "gb10-128",
}
INTRO = """# Every model on every machine

`./dev site` builds a page that answers without a server or a network: `out/site/index.html`. It holds what
`sim recommend` answers for {models} models on {machines} computers: {cards} graphics cards, and none, with {gib} GiB of
{ram}, {whole} Macs and other computers with one memory for all; with an NVMe drive on PCIe 4 and an empty context.
Every answer has its line, its range, what holds it back and what would help. For other parts:
`sim recommend MODEL --machine "rtx-3060 + ryzen-5600 + 48GiB"`.

Here is a corner of it: tokens a second, and the range in which nine of ten measured speeds should lie. A dash: less
than one, or it does not run.
"""
OUTRO = """`python -m reports.models` asks for everything again, in about an hour on two cores, and keeps it in
`reports/models/answers.parquet`; if it is stopped, it goes on where it was."""


def markdown(rows: pl.DataFrame) -> str:
    """The page."""
    cards = {(row["model"], row["machine"]): row for row in rows.iter_rows(named=True)}

    def cell(model: str, machine: str) -> str:
        row = cards[model, machine]
        if row["card"] is None or row["tok_s"] < LEAST_TOK_S:
            return "-"
        card = json.loads(row["card"])
        return f"{card['speed']} ({card['likely'].replace(' to ', '-')})"

    shown = ((name, *(cell(model, machine) for model in SHOWN_MODELS)) for name, machine in SHOWN_MACHINES.items())
    intro = INTRO.format(
        models=len(MODELS),
        machines=rows["machine"].n_unique(),
        cards=len(CARDS),
        gib=", ".join(map(str, RAM_GIB)),
        ram=" or ".join(one.partition("x")[0].upper() for one in RAM),
        whole=len(MACS) + len(UNIFIED),
    )
    return f"{joined(intro, table(('', *SHOWN_MODELS), shown, left=(0,)), OUTRO)}\n"


def write() -> None:
    PAGE.write_text(markdown(pl.read_parquet(RESULTS)), encoding="utf-8")
