"""Names of whole computers: makers' models, which say nothing of their parts, and instances of a cloud."""

from __future__ import annotations

import re

from flashmoe_sim.machines.written import is_certain

MOST_WORDS = 4  # of a model's name
_MAKERS = re.compile(
    r"\b(?:dell|hpe?|lenovo|supermicro|beelink|gmktec|minisforum|bosgame|nimo|acer|alienware|razer|thinkpad|"
    r"thinkstation|proliant|poweredge|legion|zephyrus|rog zephyrus|geekom|framework(?= 1[36]\b))\b(?!-)",
    re.IGNORECASE,
)
_PARTS_BEGIN = re.compile(
    r"(?:rtx|gtx|gt|rx|arc|radeon|geforce|nvidia|amd|intel|ryzen|epyc|xeon|core|ultra|threadripper|apple|quadro|tesla|"
    r"instinct|titan|with|w/|has|and|\d+x|i[3579]\b.*|e[357]-.*|dual|quad|2p|strix-halo)$",
    re.IGNORECASE,
)
_NO_PART = re.compile(r"[am]\d+|p\d{3}", re.IGNORECASE)  # a computer's model rather than Apple's chip or a Quadro
# GPUs of Amazon's instances, and the RAM by size; docs.aws.amazon.com/ec2, accelerated computing, November 2025.
_SIZES = {"xlarge": 1, "2xlarge": 2, "4xlarge": 4, "8xlarge": 8, "16xlarge": 16}
_FOUR, _EIGHT = {"12xlarge": 12, "24xlarge": 24}, {"48xlarge": 48}
_BY_SIZE = {"g4dn": ("t4", 16), "g5": ("a10g", 16), "g6": ("l4", 16), "g6e": ("l40s", 32)}
_WHOLE = {
    "g4dn.metal": "8x t4 + 384GiB",
    "p3.2xlarge": "v100-sxm2-16gb + 61GiB",
    "p3.8xlarge": "4x v100-sxm2-16gb + 244GiB",
    "p3.16xlarge": "8x v100-sxm2-16gb + 488GiB",
    "p4d.24xlarge": "8x a100-sxm-40gb + 1152GiB",
    "p4de.24xlarge": "8x a100-sxm-80gb + 1152GiB",
    "p5.4xlarge": "h100 + 256GiB",
    "p5.48xlarge": "8x h100 + 2048GiB",
    "p5e.48xlarge": "8x h200 + 2048GiB",
    "p5en.48xlarge": "8x h200 + 2048GiB",
}
_INSTANCE = re.compile(
    r"\b(?:(?:aws|amazon|ec2)\s+)*((?:g4dn|g5|g6e?|p3|p4de?|p5e?n?)\.(?:\d*xlarge|metal))\b", re.IGNORECASE
)


def without_computers(text: str) -> str:
    """A description without the models of computers, as `Dell R730`: a maker's name and what follows to the next part.

    A name that is a part's alias, such as `GMKtec EVO-X2`, stays.
    """
    at = 0
    while found := _MAKERS.search(text, at):
        rest = re.split(r"(?=[,;(/+|\n])", text[found.end() :], maxsplit=1)[0]
        words = rest.split()
        if words and not _NO_PART.fullmatch(words[0]) and is_certain(" ".join(words[:2])):  # a part's alias
            text, at = f"{text[: found.start()]} {text[found.end() :]}", found.start()
            continue
        end = found.end()
        for number, word in enumerate(words[:MOST_WORDS]):
            model = number == 0 and _NO_PART.fullmatch(word)
            if _PARTS_BEGIN.match(word) or (is_certain(word) and not model):
                break
            end = text.index(word, end) + len(word)
        text, at = f"{text[: found.start()]} {text[end:]}", found.start()
    return text


def instance(text: str) -> str:
    """A description with the parts of a cloud's instance instead of its name, as `g5.2xlarge`."""
    return _INSTANCE.sub(lambda found: _parts(found[1].lower()) or found[0], text)


def _parts(name: str) -> str:
    family, _, kind = name.partition(".")
    if name in _WHOLE or family not in _BY_SIZE:
        return _WHOLE.get(name, "")
    card, gib = _BY_SIZE[family]
    for cards, sizes in ((1, _SIZES), (4, _FOUR), (8, _EIGHT)):
        if kind in sizes:
            return f"{f'{cards}x ' if cards > 1 else ''}{card} + {gib * sizes[kind]}GiB"
    return ""
