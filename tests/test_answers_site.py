"""The site that answers, in a real browser: what it says is what the command says, for everybody, and if it breaks."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import polars as pl
import pytest

from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.report.card import AnswerCard
from reports.models.answers import RESULTS, answers, card_in
from reports.models.machines import CARDS, DRIVE, MODELS, computers, groups
from reports.models.page import PAGE, markdown
from reports.models.site import LEAST_TOK_S, OTHERWISE, build
from tests.report.browser import CUT_OFF, LONG_LABELS, LUMINANCE, Browser, chromium, needs_browser
from tests.support import document

MOST_BYTES = 6_000_000
ASKED = 60
FEW = (
    *("gpt-oss-120b", "gpt-oss-20b", "qwen3-30b-a3b", "glm-4.5-air"),
    *("qwen3.6-35b-a3b", "qwen3.5-35b-a3b", "deepseek-v3"),
)
# To ask again: the first nine, of which all but one are asked in no time, on computers with a card.
CHEAP = (
    *("gpt-oss-120b", "mixtral-8x7b", "olmoe-1b-7b", "granite-4.0-h-tiny", "lfm2-8b-a1b"),
    *("phi-3.5-moe", "llama-4-scout", "deepseek-v2-lite", "ernie-4.5-21b-a3b", "gpt-oss-20b", "qwen3-30b-a3b"),
)
SHOWN = "document.documentElement.dataset.shown"
TEXT = "return document.querySelector(arguments[0])?.textContent.trim() ?? null"
CONTROLS = "[...document.querySelectorAll('#choose select, input, #choose button, .card button, pre, #note button, a')]"


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return pl.read_parquet(RESULTS)


@pytest.fixture(scope="module")
def site(table: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with a few of its models, which is made in no time."""
    folder = tmp_path_factory.mktemp("answers")
    build(folder, table.filter(pl.col("model").is_in(FEW)))
    return folder / "index.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def address(site: Path, **chosen: str) -> str:
    return f"{site.as_uri()}#{urlencode(chosen)}"


def chosen(model: str, computer: str) -> dict[str, str]:
    """The parts of a link that asks the same."""
    card, *parts = computer.split(" + ")
    if DRIVE not in parts:
        return {"model": model, "on": computer}
    return {
        "model": model,
        "on": card if card in CARDS else "none",
        "ram": parts[0],
        "gib": parts[1].removesuffix("GiB"),
    }


def show(browser: Browser, where: str) -> None:
    browser.driver.get("about:blank")
    browser.driver.get(where)
    browser.wait(f"return {SHOWN}")


def text(browser: Browser, selector: str) -> str | None:
    found: str | None = browser.run(TEXT, selector)
    return found


def questions() -> list[tuple[str, tuple[str, ...]]]:
    """Models in turn on computers from the whole table; several of a card at once, which share replays."""
    of_cards = [group[1::2] for group in groups() if len(group) > 1]
    alone = [group for group in groups() if len(group) == 1]
    return list(zip(itertools.cycle(CHEAP), [*of_cards[::3], *alone[::2]], strict=False))


def test_every_model_has_an_answer_on_every_computer(table: pl.DataFrame) -> None:
    asked = set(itertools.product(MODELS, computers()))
    assert set(table.select("model", "machine").iter_rows()) == asked
    assert len(table) == len(asked)
    assert (len(MODELS), len(CARDS)) >= (25, 26)


def test_the_page_of_the_docs_is_a_corner_of_it(table: pl.DataFrame) -> None:
    assert PAGE.read_text("utf-8") == markdown(table), "run python -m reports.models"


@needs_browser
def test_sixty_questions_have_the_answers_of_the_command(table: pl.DataFrame, tmp_path: Path, browser: Browser) -> None:
    build(tmp_path, table)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < MOST_BYTES
    site, number = tmp_path / "index.html", 0
    for model, group in questions():
        for computer, row in zip(group, answers(model, group), strict=True):
            show(browser, address(site, **chosen(model, computer)))
            number += 1
            if row.get("card") is None or row["tok_s"] < LEAST_TOK_S:
                says = "It does not run" if row.get("card") is None else "too slow to use"
                assert says in (text(browser, ".card .likely") or ""), (model, computer)
                continue
            _same(browser, card_in(row))
    assert number >= ASKED


def _same(browser: Browser, card: AnswerCard) -> None:
    assert text(browser, ".card .title") == card.title
    assert text(browser, ".card .speed b") == card.speed, card.asked
    assert text(browser, ".card .likely b") == card.likely, card.asked
    assert browser.run("return [...document.querySelectorAll('[data-copy]')].map(one => one.dataset.copy)") == [
        line for _, line in card.lines
    ]
    assert text(browser, ".card footer code") == card.asked


@needs_browser
def test_a_question_typed_into_a_terminal_has_the_same_answer(
    site: Path, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    advised = document(capsys, "recommend", "gpt-oss-20b", "--machine", "rtx-4060 + ddr5-5600x2 + 32GiB + nvme-gen4")
    show(browser, address(site, model="gpt-oss-20b", on="rtx-4060", gib="32", ram="ddr5-5600x2"))
    assert browser.run("return document.querySelector('[data-copy]').dataset.copy") == advised["best"]["command"]
    assert text(browser, ".card .speed b") == f"{advised['best']['tok_s']:.0f}"


@needs_browser
@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("rtx-4070", "unpack the CUDA build and the cudart file beside it from https://"),
        ("none", "On Windows, if llama.cpp is not installed: winget install llama.cpp. On Linux, if llama.cpp"),
        ("m4-max-128", "If llama.cpp is not installed: brew install llama.cpp."),
    ],
)
def test_an_answer_says_how_to_have_its_program(site: Path, browser: Browser, on: str, says: str) -> None:
    show(browser, address(site, model="gpt-oss-20b", on=on))
    assert says in (text(browser, ".card .get li") or "")


@needs_browser
def test_it_asks_for_its_own_data_only_and_complains_of_nothing(site: Path, browser: Browser) -> None:
    browser.requested()
    browser.messages()
    show(browser, address(site, model="gpt-oss-20b"))
    assert browser.messages() == []
    asked = {url.partition("#")[0] for url in browser.requested() if url.startswith(("file:", "http"))}
    assert asked == {site.as_uri()} | {
        (site.parent / "data" / f"{one}.js").as_uri() for one in ("gpt-oss-20b", "speeds")
    }


KEPT = "Not said, so as it was"
D4, D5 = "ddr4-3200x2", "ddr5-5600x2"
UNDERSTOOD = [  # model, card or computer, RAM, its type, and what is said beside the answer
    ("gpt-oss 20b on a 4090, 64 GB DDR5", "gpt-oss-20b", "rtx-4090", 64, D5, ""),
    ("glm 4.5 air M4 Max 128GB", "glm-4.5-air", "m4-max-128", None, None, ""),
    ("gpt-oss-120b on a DGX Spark", "gpt-oss-120b", "gb10-128", None, None, ""),
    ("gpt-oss-20b, ryzen ai max+ 395 128gb", "gpt-oss-20b", "strix-halo-128", None, None, ""),
    ("macbook pro m3 pro 36gb gpt-oss-20b", "gpt-oss-20b", "m3-pro-36", None, None, ""),
    ("deepseek v3 512gb mac studio", "deepseek-v3", "m3-ultra-512", None, None, ""),
    (
        "Qwen3.5 35B m4 max 128",
        "qwen3.5-35b-a3b",
        "m4-max-128",
        None,
        None,
        "“Qwen3.5 35B” is taken as qwen3.5-35b-a3b",
    ),
    ("qwen3.6 on rtx 4070 32gb", "qwen3.6-35b-a3b", "rtx-4070", 32, D4, f"qwen3.6-35b-a3b. {KEPT}: DDR4."),
    (
        *("Qwen3-30B-A3B on NVIDIA GeForce RTX 4060 Ti 16GB with 32gb", "qwen3-30b-a3b"),
        *("rtx-4060-ti-16gb", 32, D4, f"{KEPT}: DDR4."),
    ),
    ("16gb 4060 ti, 32gb ddr4", "gpt-oss-120b", "rtx-4060-ti-16gb", 32, D4, f"{KEPT}: gpt-oss-120b."),
    ("rx7900xtx 128GB ddr4", "gpt-oss-120b", "rx-7900-xtx", 128, D4, f"{KEPT}: gpt-oss-120b."),
    ("gpt-oss-20b rtx 3090 24gb, 4x16gb ddr4 3200", "gpt-oss-20b", "rtx-3090", 64, D4, ""),
    ("RTX 4070, Ryzen 5 7600, 32 GB DDR5", "gpt-oss-120b", "rtx-4070", 32, D5, "leaves out ryzen 5 7600."),
    (
        *("gaming PC with windows 11 and a 5090, i9-13900K, 64 GB DDR5-6000 CL30, 1TB NVMe", "gpt-oss-120b"),
        *("rtx-5090", 64, D5, "leaves out DDR5-6000, i9-13900k, Windows."),
    ),
    ("gaming laptop 4060 gpt-oss-20b 32gb ddr5", "gpt-oss-20b", "rtx-4060-laptop", 32, D5, ""),
    ("gpt-oss-20b without a gpu, ryzen 5 5600, 64gb ddr4", "gpt-oss-20b", "none", 64, D4, ""),
    ("rtx3060/32gb/gptoss20b", "gpt-oss-20b", "rtx-3060", 32, D4, f"{KEPT}: DDR4."),
    ("which speed with qwen3 30b q4, 3090, only 64gb ddr4", "qwen3-30b-a3b", "rtx-3090", 64, D4, "is taken as"),
    ("rtx 3080 32GB 3600 MHz gpt-oss-20b", "gpt-oss-20b", "rtx-3080", 32, D4, "leaves out DDR4-3600."),
    (
        "i9 128gb ddr5 3060, 500gb ssd, 2tb hdd, 4k context",
        "gpt-oss-120b",
        "rtx-3060",
        128,
        D5,
        f"{KEPT}: gpt-oss-120b.",
    ),
    (
        *("NVIDIA GeForce RTX 3070, Intel(R) Core(TM) i7-10700K, RAM 32,0 GB (31,8 GB usable) gpt-oss-20b",),
        *("gpt-oss-20b", "rtx-3070", 32, D4, f"{KEPT}: DDR4. The answer leaves out core i7-10700k."),
    ),
    ("3090, 65458 MB ddr4, glm-4.5-air", "glm-4.5-air", "rtx-3090", 64, D4, ""),
    ("hf.co/unsloth/gpt-oss-20b-GGUF 4070 32gb ddr5", "gpt-oss-20b", "rtx-4070", 32, D5, ""),
    ("m2 air 16gb gpt-oss-20b", "gpt-oss-20b", "m2-16", None, None, ""),
    ("asus dual rtx 3060, 16gb ddr4, gpt-oss-20b", "gpt-oss-20b", "rtx-3060", 16, D4, ""),
    ("Sapphire Nitro+ RX 7900 XTX 64GB DDR5", "gpt-oss-120b", "rx-7900-xtx", 64, D5, f"{KEPT}: gpt-oss-120b."),
    (
        *("MSI RTX 4070 Ventus 3X OC, 32GB Corsair Vengeance DDR5, Samsung 990 Pro 2TB", "gpt-oss-120b"),
        *("rtx-4070", 32, D5, "leaves out Samsung 990 PRO."),
    ),
    ("lenovo legion 5 pro 4060 32gb ddr5 gpt-oss-20b", "gpt-oss-20b", "rtx-4060-laptop", 32, D5, ""),
    ("gpt-oss-20b on unraid, 3060 64gb ddr4", "gpt-oss-20b", "rtx-3060", 64, D4, "leaves out Linux."),
]
WITH_D4 = f"{D4} + 32GiB + nvme-gen4"
REFUSED = [  # what the page does not hold, the model of the command, and its machine
    ("gpt-oss-20b on a 3060 Ti", "RTX 3060 Ti", "gpt-oss-20b", f"rtx-3060-ti + {D4} + 64GiB + nvme-gen4"),
    ("4070 Ti 32 GB", "RTX 4070 Ti", "gpt-oss-120b", f"rtx-4070-ti + {WITH_D4}"),
    ("laptop 4070 32GB", "RTX 4070 Laptop", "gpt-oss-120b", f"rtx-4070-laptop + {WITH_D4}"),
    ("3060 8gb, 32gb ram", "RTX 3060 8 GB", "gpt-oss-120b", f"rtx-3060-8gb + {WITH_D4}"),
    ("rtx 4070 16gb vram 32gb", "RTX 4070 with 16 GB", "gpt-oss-120b", f"rtx-4070 + {WITH_D4}"),
    ("rx 7600 32gb ddr5", "RX 7600", "gpt-oss-120b", f"rx-7600 + {D5} + 32GiB + nvme-gen4"),
    ("rtx 3060 48gb", "48 GB of RAM", "gpt-oss-120b", f"rtx-3060 + {D4} + 48GiB + nvme-gen4"),
    ("qwen3 30b 4070 24gb ddr5", "24 GB of RAM", "qwen3-30b-a3b", f"rtx-4070 + {D5} + 24GiB + nvme-gen4"),
    ("48 GB DDR5 4090 glm air", "48 GB of RAM", "glm-4.5-air", f"rtx-4090 + {D5} + 48GiB + nvme-gen4"),
    ("2x 3090 64GB gpt-oss-120b", "holds one card", "gpt-oss-120b", f"2x rtx-3090 + {D4} + 64GiB + nvme-gen4"),
    ("two 3090s 128gb ddr4", "2x RTX 3090", "gpt-oss-120b", f"2x rtx-3090 + {D4} + 128GiB + nvme-gen4"),
    (
        *("3090 + 3060, 64gb i7-12700", "RTX 3060 12 GB + RTX 3090: it holds one card", "gpt-oss-120b"),
        "rtx-3060 + rtx-3090 + i7-12700 + 64GiB + nvme-gen4",
    ),
    ("no gpu ryzen 5950x 64gb ddr4", "ryzen 5950x", "gpt-oss-120b", f"ryzen 5950x + {D4} + 64GiB + nvme-gen4"),
    ("m4 max 36gb", "M4 Max", "gpt-oss-120b", "m4-max + 36GiB"),
    ("m4 max", "without the size of its memory", "gpt-oss-120b", "m4-max + RAM"),
    ("mac mini 64gb", "a Mac without its chip", "gpt-oss-120b", "CHIP + 64GiB"),
    ("my laptop with 32gb", "a laptop without its graphics card", "gpt-oss-120b", f"CARD + {WITH_D4}"),
    ("qwen3 32b on a 3060", "“qwen 3 32b”", "MODEL", f"rtx-3060 + {D4} + 64GiB + nvme-gen4"),
    ("qwen3.6 27b 4090 32gb", "“qwen 3.6 27b”", "MODEL", f"rtx-4090 + {WITH_D4}"),
    ("gpt-oss 4090 32gb", "may be gpt-oss-120b, gpt-oss-20b", "MODEL", f"rtx-4090 + {WITH_D4}"),
    ("kimi k2 4090 32gb", "kimi-k2", "kimi-k2", f"rtx-4090 + {WITH_D4}"),
    ("gpt-oss-20b q8_0 4090 32gb", "q8_0", "gpt-oss-20b:q8_0", f"rtx-4090 + {WITH_D4}"),
    ("qwen3.6 35b ud-q4_k_xl 4090 32gb", "ud-q4_k_xl", "qwen3.6-35b-a3b:ud-q4_k_xl", f"rtx-4090 + {WITH_D4}"),
    ("gpt-oss-20b on a steam deck", "“steam deck”", "gpt-oss-20b", "steam deck"),
    ("snapdragon x elite 32gb gpt-oss-20b", "“snapdragon elite”", "gpt-oss-20b", "snapdragon x elite + 32GiB"),
    ("rtx 9090 32gb ddr5", "“rtx 9090”", "MODEL", f"CARD + {D5} + 32GiB"),
    ("cpu only xeon 256gb ddr4", "256 GB of RAM", "gpt-oss-120b", f"ryzen-5600 + {D4} + 256GiB + nvme-gen4"),
    ("kimi k2 4090 1.5 TB DDR5", "1536 GB of RAM", "kimi-k2", f"rtx-4090 + {D5} + 1536GiB + nvme-gen4"),
    (
        "3060 epyc 7763 64gb ddr4 8 channels",
        "RAM in 8 channels",
        "gpt-oss-120b",
        "rtx-3060 + epyc 7763 + ddr4-3200x8 + 64GiB + nvme-gen4",
    ),
    ("3060 64gb hdd", "a hard disk", "gpt-oss-120b", f"rtx-3060 + {D4} + 64GiB + hdd"),
    ("m4 max 128 32k context", "a context of 32,768 tokens", "gpt-oss-120b", "m4-max-128"),
    ("3060 64gb gen3", "NVMe 3", "gpt-oss-120b", f"rtx-3060 + {D4} + 64GiB + nvme-gen3"),
    ("3060 64gb samsung 870 evo", "870 EVO", "gpt-oss-120b", f"rtx-3060 + {D4} + 64GiB + 870-evo"),
    ("asus rog strix g16 4070 32GB", "RTX 4070 Laptop", "gpt-oss-120b", f"rtx-4070-laptop + {WITH_D4}"),
    (
        *("unsloth/Qwen3.6-35B-A3B-GGUF:UD-Q4_K_XL 4090 32gb", "ud-q4_k_xl"),
        *("unsloth/Qwen3.6-35B-A3B-GGUF:UD-Q4_K_XL", f"rtx-4090 + {WITH_D4}"),
    ),
    ("someone/New-99B-GGUF 4090 32gb", "someone/New-99B-GGUF", "someone/New-99B-GGUF", f"rtx-4090 + {WITH_D4}"),
    (
        *("p40, dual xeon e5-2680 v4, 128gb ddr4-2400 quad channel", "RAM in 4 channels", "gpt-oss-120b"),
        "p40 + 2x xeon e5-2680 v4 + ddr4-2400x4 + 128GiB + nvme-gen4",
    ),
    ('3060"; rm -rf $(x) `id` 32gb', "“rm rf id”", "MODEL", f"rtx-3060 + {WITH_D4}"),
]
CHOSEN = "return ['model','on','gib','ram'].map(name => document.forms[0][name].value)"


@needs_browser
@pytest.mark.parametrize(("typed", "model", "on", "gib", "ram", "beside"), UNDERSTOOD)
def test_what_is_typed_is_understood(
    site: Path, browser: Browser, typed: str, model: str, on: str, gib: int | None, ram: str | None, beside: str
) -> None:
    show(browser, address(site, model="gpt-oss-120b"))
    _type(browser, typed)
    got = browser.run(CHOSEN)
    assert got[:2] == [model, on]
    if gib:
        assert got[2:] == [str(gib), ram]
    assert _is_shown(browser)
    assert beside in (text(browser, "#note p") or "")
    assert browser.run("return document.getElementById('note').hidden") == (not beside)
    if "leaves out" in beside:
        _asks(browser, model, on)


@needs_browser
@pytest.mark.parametrize(("typed", "absent", "model", "machine"), REFUSED)
def test_what_it_does_not_hold_is_asked_in_a_terminal(
    site: Path, browser: Browser, typed: str, absent: str, model: str, machine: str
) -> None:
    """A card or a model is never taken for another one, and no answer to another question stays on the page."""
    show(browser, address(site, model="gpt-oss-120b"))
    _type(browser, typed)
    said = text(browser, "#note p") or ""
    assert "does not hold" in said
    assert absent in said
    assert not _is_shown(browser)
    assert _asks(browser, model, machine) == machine
    places = re.findall(r"\b(?:MODEL|CHIP|CARD|RAM)\b", f"{model} {machine}")
    assert all(f"{place}: " in said for place in places)
    if not places:
        load_machine(machine)


@needs_browser
@pytest.mark.parametrize("typed", [one[0] for one in (*REFUSED[::6], REFUSED[-1])])
def test_a_link_to_what_it_does_not_hold_says_so_again(site: Path, browser: Browser, typed: str) -> None:
    """Until another computer is chosen."""
    show(browser, address(site, model="gpt-oss-120b"))
    _type(browser, typed)
    said = text(browser, "#note p") or ""
    link = browser.run("return location.href")
    show(browser, link)
    assert (text(browser, "#note p") or "") == said
    browser.driver.find_element("css selector", "select[name=on] option[value=rtx-3090]").click()
    browser.wait(f"return {SHOWN} === location.hash")
    assert _is_shown(browser)


def _is_shown(browser: Browser) -> bool:
    """Whether there is an answer, with its tables."""
    seen = [browser.run(f"return document.getElementById('{name}').offsetHeight > 0") for name in ("answer", "tables")]
    assert seen[0] == seen[1]
    return bool(seen[0])


def _asks(browser: Browser, model: str, machine: str) -> str:
    """The machine of the command in the note, which begins like this and can be copied."""
    line = text(browser, "#note pre") or ""
    assert browser.run("return document.querySelector('#note [data-copy]').dataset.copy") == line
    words = shlex.split(line)
    assert words[:4] == ["sim", "recommend", model, "--machine"]
    assert words[4].startswith(machine)
    return words[4]


def _type(browser: Browser, words: str) -> None:
    field = browser.driver.find_element("name", "typed")
    field.clear()
    browser.run("delete document.documentElement.dataset.shown")
    field.send_keys(words + "\n")
    browser.wait(f"return {SHOWN} === location.hash")


@needs_browser
def test_a_link_from_another_day_is_answered_with_a_sentence(site: Path, browser: Browser) -> None:
    show(browser, address(site, model="gpt-9", on="rtx-9090", gib="64"))
    assert "does not hold gpt-9; rtx-9090" in (text(browser, "#note") or "")
    assert _asks(browser, "gpt-9", "rtx-9090 + ddr4-3200x2 + 64GiB")
    assert not _is_shown(browser)
    show(browser, address(site, model='x"; rm -rf "$HOME'))
    assert _asks(browser, "MODEL", "rtx-3060")
    show(browser, address(site, model="gpt-oss-20b", gib="48"))
    assert "does not hold 48 GB of RAM." in (text(browser, "#note") or "")
    assert _asks(browser, "gpt-oss-20b", "rtx-3060 + ddr4-3200x2 + 48GiB")
    show(browser, address(site, model="gpt-oss-20b", gib=""))
    assert browser.run("return document.getElementById('note').hidden")


@needs_browser
@pytest.mark.parametrize("on", ["rtx-4090", "m4-max-128"])
@pytest.mark.parametrize("link", ["quant=q8_0", "rtx-3060/gpt-oss-120b"])
def test_what_a_link_says_in_vain_is_told(site: Path, browser: Browser, link: str, on: str) -> None:
    show(browser, f"{address(site, on=on)}&{link}")
    assert f"knows no “{link}” of the link" in (text(browser, "#note p") or "")
    assert _is_shown(browser)


@needs_browser
def test_a_link_with_more_memory_than_a_mac_has_says_so(site: Path, browser: Browser) -> None:
    show(browser, address(site, model="gpt-oss-20b", on="m4-max-128", gib="32", ram=D5))
    assert "M4 Max, 128 GB, has its own memory" in (text(browser, "#note") or "")
    assert "32 GB of RAM, DDR5" in (text(browser, "#note") or "")
    assert _is_shown(browser)
    show(browser, address(site, model="gpt-oss-20b", on="rtx-4090", gib="32"))
    browser.driver.find_element("css selector", "select[name=on] option[value=m4-max-128]").click()
    browser.wait(f"return {SHOWN} === location.hash")
    assert browser.run("return document.getElementById('note').hidden")
    browser.driver.find_element("css selector", "select[name=on] option[value=rtx-4090]").click()
    browser.wait(f"return {SHOWN} === location.hash")
    assert browser.run(CHOSEN)[2] == "32"


@needs_browser
@pytest.mark.parametrize("on", ["rtx-3060", "m4-max-128"])
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in OTHERWISE for value in list(OTHERWISE[name])[1:]]
)
def test_another_choice_has_its_command_and_no_answer(
    site: Path, browser: Browser, name: str, value: str, on: str
) -> None:
    show(browser, address(site, model="gpt-oss-20b", on=on))
    assert _is_shown(browser)
    browser.driver.find_element("css selector", f'select[name={name}] option[value="{value}"]').click()
    browser.wait(f"return {SHOWN} === location.hash")
    says = {"drive": "{}", "context": "a context of {} tokens", "fast": "the fastest for {}"}[name]
    assert f"does not hold {says.format(OTHERWISE[name][value])}." in (text(browser, "#note") or "")
    assert value in (text(browser, "#note pre") or "")
    _asks(browser, "gpt-oss-20b", on)
    assert not _is_shown(browser)
    browser.driver.find_element("css selector", f"select[name={name}] option:first-child").click()
    browser.wait(f"return {SHOWN} === location.hash")
    assert _is_shown(browser)


@needs_browser
def test_rows_name_their_files_where_files_differ(site: Path, browser: Browser, table: pl.DataFrame) -> None:
    file = pl.col("file").str.split(":").list.last()
    for model in ("glm-4.5-air", "gpt-oss-20b"):
        show(browser, address(site, model=model))
        there = pl.col("machine").str.ends_with(f"{D4} + 64GiB + {DRIVE}") | ~pl.col("machine").str.contains(DRIVE)
        shown = there & (pl.col("tok_s") >= LEAST_TOK_S)
        files = Counter(table.filter((pl.col("model") == model) & shown).select(file).to_series())
        said = browser.run("return [...document.querySelectorAll('#cards th small')].map(one => one.textContent)")
        named = Counter(one.partition("; ")[0] for one in said if "; " in one)
        assert named == (files if len(files) > 1 else Counter())
        assert len(said) == files.total()
        assert ("Files differ" in (text(browser, "#with-what") or "")) == bool(named)


@needs_browser
@pytest.mark.parametrize(("on", "said"), [("rtx-3060", True), ("m4-16", False), ("rtx-5090", False)])
def test_an_answer_that_reads_the_drive_says_that_no_system_was_named(
    site: Path, browser: Browser, on: str, said: bool
) -> None:
    show(browser, address(site, model="gpt-oss-20b" if on == "rtx-5090" else "gpt-oss-120b", on=on, gib="32"))
    below = text(browser, ".card .below") or ""
    assert ("No operating system was named" in below) == said
    if said:
        line = text(browser, ".card .below code") or ""
        assert line == (text(browser, ".card footer code") or "").removesuffix("'") + " + windows'"
        assert "`" not in below


@needs_browser
@pytest.mark.parametrize("damage", ["missing", "cut off", "changed"])
def test_damaged_data_are_a_sentence(site: Path, tmp_path: Path, browser: Browser, damage: str) -> None:
    shutil.copytree(site.parent, tmp_path, dirs_exist_ok=True)
    piece = tmp_path / "data" / "gpt-oss-20b.js"
    whole = piece.read_text()
    if damage == "missing":
        piece.unlink()
    else:
        piece.write_text(whole[: len(whole) // 2] if damage == "cut off" else f"{whole[:400]}AAAA{whole[404:]}")
    show(browser, address(tmp_path / "index.html", model="gpt-oss-20b"))
    assert "data/gpt-oss-20b.js did not load" in (text(browser, "#note") or "")
    assert "sim recommend gpt-oss-20b" in (text(browser, "#note pre") or "")
    assert browser.run("return document.getElementById('answer').offsetHeight") == 0


@needs_browser
def test_without_scripts_there_is_an_answer(site: Path, browser: Browser) -> None:
    browser.open(site, scripts=False)
    assert text(browser, ".card .title") == "gpt-oss-120b:mxfp4 on NVIDIA GeForce RTX 3060 12 GB"
    assert "needs JavaScript" in (text(browser, "noscript") or "")
    assert browser.run("return document.querySelector('noscript a').href").endswith("docs/reference/models/index.html")
    assert browser.run("return document.getElementById('choose').offsetParent === null")


@needs_browser
@pytest.mark.parametrize("width", [360, 390, 768, 1024, 1280])
def test_it_fits_every_screen(site: Path, browser: Browser, width: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    for asked in (
        {"model": "gpt-oss-120b"},
        {"model": "glm-4.5-air", "typed": "2x 3090 48gb"},
        {"model": "deepseek-v3"},
    ):
        show(browser, address(site, **asked))
        assert browser.run("return document.documentElement.scrollWidth") == width
        browser.run(LONG_LABELS)
        assert browser.run(CUT_OFF, browser.driver.find_element("tag name", "body")) == []
    lists = "[...document.querySelectorAll('#choose select')].map(one => one.offsetWidth)"
    assert min(browser.run(f"return {lists}")) > 100  # pixels: a narrower one cuts what is chosen
    heights = f"{CONTROLS}.filter(one => one.tagName !== 'A').map(one => one.getBoundingClientRect().height)"
    assert browser.run(f"return {heights}.filter(height => height && height < 24).length") == 0


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(site: Path, browser: Browser, scheme: str) -> None:
    browser.prefer(scheme)
    show(browser, address(site, model="gpt-oss-120b"))
    papers = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(f"return {papers}") == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(23, 24, 26)")
    paper = browser.run(LUMINANCE, browser.driver.find_element("tag name", "body"), "backgroundColor")
    for one in browser.driver.find_elements("css selector", "#tables a, #tables small, .top p, #choose label"):
        ink = browser.run(LUMINANCE, one, "color")
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 4.5


@needs_browser
def test_it_is_for_keyboards_and_readers(site: Path, browser: Browser) -> None:
    show(browser, address(site, model="gpt-oss-120b"))
    assert browser.run("return document.querySelectorAll('h1').length") == 1
    assert browser.run("return document.documentElement.lang") == "en"
    unnamed = "one => !(one.labels?.length || one.textContent.trim() || one.ariaLabel)"
    assert browser.run(f"return {CONTROLS}.filter({unnamed}).length") == 0
    assert browser.run(f"return {CONTROLS}.filter(one => one.tabIndex < 0).length") == 0
    levels = browser.run("return [...document.querySelectorAll('h1,h2,h3,h4')].map(one => Number(one.tagName[1]))")
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@needs_browser
def test_both_tables_lead_to_their_answers(site: Path, browser: Browser, table: pl.DataFrame) -> None:
    show(browser, address(site, model="gpt-oss-120b", on="rtx-4090"))
    rows = "[...document.querySelectorAll('#models tbody tr')]"
    speeds = [float(cell) for cell in browser.run(f"return {rows}.map(row => row.querySelector('b').textContent)")]
    assert speeds == sorted(speeds, reverse=True)
    machine = "rtx-4090 + ddr4-3200x2 + 64GiB + nvme-gen4"
    there = (pl.col("machine") == machine) & pl.col("model").is_in(FEW)
    fast = table.filter(there & (pl.col("tok_s") >= LEAST_TOK_S))
    assert len(speeds) == len(fast)
    link = browser.driver.find_element("css selector", "#cards tbody a")
    name = re.sub(r",.*", "", link.text)
    browser.run("arguments[0].click()", link)
    browser.wait(f"return {SHOWN} === location.hash")
    assert name.split()[-1] in (text(browser, ".card .title") or "")


@needs_browser
def test_a_model_that_no_card_runs_has_a_sentence(table: pl.DataFrame, tmp_path: Path, browser: Browser) -> None:
    build(tmp_path, table.filter(pl.col("model").is_in(["gpt-oss-120b", "kimi-k2"])))
    show(browser, address(tmp_path / "index.html", model="kimi-k2"))
    assert (text(browser, "#with-what") or "").startswith("kimi-k2 is too large for all of them, with 64 GB of DDR4")
    assert browser.run("return document.getElementById('cards').offsetHeight") == 0
    show(browser, address(tmp_path / "index.html", model="gpt-oss-120b"))
    assert browser.run("return document.getElementById('cards').offsetHeight") > 0
