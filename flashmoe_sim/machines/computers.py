"""Names of whole computers: makers' models, which say nothing of their parts, and instances of a cloud."""

from __future__ import annotations

import re

from flashmoe_sim.machines.written import is_certain

MOST_WORDS = 4  # of a model's name
# Laptops; names that makers give desktop computers too are followed by the size of a laptop's screen, or its letter.
LAPTOPS = (
    r"thinkpad|ideapad|vivobook|zenbook|zbook|(?:rog )?zephyrus|rog (?:strix )?[gx]\d\d\w?|rog flow|predator helios|"
    r"legion(?! (?:tower|t\d))|(?:razer )?blade(?= 1\d)|xps(?= 1\d)|tuf (?:gaming )?(?=[af]1\d)|alienware(?= [mx]\d\d)|"
    r"(?:omen|victus)(?= 1\d)|(?<=msi )(?:raider|vector|stealth|katana|crosshair|titan(?= 1[4-8]))|"
    r"surface (?:laptop|pro|book)|yoga|inspiron|latitude|framework laptop"
)
_MAKERS = re.compile(
    rf"\b(?:(?:(?:asus|msi|acer|hp) )?(?:{LAPTOPS})|(?:intel )?nuc|"
    r"dell|hpe?|lenovo|supermicro|beelink|gmktec|minisforum|bosgame|nimo|acer|alienware|razer|"
    r"tinybox|ms-(?:01|a\d)|"
    r"thinkstation|proliant|poweredge|legion|geekom|framework(?= 1[36]\b))\b(?!-)",
    re.IGNORECASE,
)
_HOSTS = re.compile(  # who rent computers, and the names of what they rent; a cloud's instance is in the table below
    r"(?<![\w-])(?:hetzner|ovh(?:cloud)?|vast\.?ai|run ?pod(?:\.io)?|lambda(?: labs)?|paperspace|tensordock|scaleway|"
    r"vultr|linode|(?:google )?colab|kaggle|modal|salad|aws|gcp|azure)\b(?!-)[ :]*",
    re.IGNORECASE,
)
_PARTS_BEGIN = re.compile(
    r"(?:rtx|gtx|gt|rx|arc|radeon|geforce|nvidia|amd|intel|ryzen|epyc|xeon|core|ultra|threadripper|apple|quadro|tesla|"
    r"instinct|titan|with|w/|has|and|\d+x|i[3579]\b.*|e[357]-.*|dual|quad|2p|strix-halo)$",
    re.IGNORECASE,
)
# Words of a processor rather than of a laptop's name.
_TOGETHER = re.compile(r"(?:hx (?:pro )?\d{3}|x2? (?:elite|plus))\b", re.IGNORECASE)
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
    "p6-b200.48xlarge": "8x b200 + 2048GiB",
    "p6-b300.48xlarge": "8x b300 + 4096GiB",
    "g7e.2xlarge": "rtx-pro-6000 + 64GiB",
    "g7e.4xlarge": "rtx-pro-6000 + 128GiB",
    "g7e.8xlarge": "rtx-pro-6000 + 256GiB",
    "g7e.12xlarge": "2x rtx-pro-6000 + 512GiB",
    "g7e.24xlarge": "4x rtx-pro-6000 + 1024GiB",
    "g7e.48xlarge": "8x rtx-pro-6000 + 2048GiB",
}
# Microsoft's, by the number of virtual processors: the card, how many, and the RAM; learn.microsoft.com/azure, sizes of
# virtual machines, GPU accelerated, November 2025.
_AZURE = {
    "nc24ads-a100-v4": "a100-80gb + 220GiB",
    "nc48ads-a100-v4": "2x a100-80gb + 440GiB",
    "nc96ads-a100-v4": "4x a100-80gb + 880GiB",
    "nc40ads-h100-v5": "h100-nvl + 320GiB",
    "nc80adis-h100-v5": "2x h100-nvl + 640GiB",
    "nd96asr-v4": "8x a100-sxm-40gb + 900GiB",
    "nd96amsr-a100-v4": "8x a100-sxm-80gb + 1900GiB",
    "nd96isr-h100-v5": "8x h100 + 1900GiB",
    "nc4as-t4-v3": "t4 + 28GiB",
    "nc8as-t4-v3": "t4 + 56GiB",
    "nc16as-t4-v3": "t4 + 110GiB",
    "nc64as-t4-v3": "4x t4 + 440GiB",
}
# Computers that a service lends with one card, by linux-blog.anracom.com, 2023-05-04: RAM of 12.7 GB beside a T4.
_LENT = re.compile(
    r"\b(?:free )?(?:google )?colab(?: free| tier)*[ :,(]+(?:tesla )?t4\b\)?(?!.*\d ?gi?b)", re.IGNORECASE
)
_INSTANCE = re.compile(
    r"\b(?:(?:aws|amazon|ec2)\s+)*((?:g4dn|g5|g6e?|g7e|p3|p4de?|p5e?n?|p6-b[23]00)\.(?:\d*xlarge|metal))\b(?:\s*\([^)]*\))?",
    re.IGNORECASE,
)
# Google's, by a pattern of the name: the card, and the RAM of one; cloud.google.com/compute/docs/accelerator-optimized
# -machines. The number in a name is of cards, or of virtual processors.
_GOOGLE = {
    "a2-highgpu": ("a100-sxm-40gb", 85),
    "a2-megagpu": ("a100-sxm-40gb", 85),
    "a2-ultragpu": ("a100-sxm-80gb", 170),
    "a3-highgpu": ("h100", 234),
    "a3-megagpu": ("h100", 234),
    "a3-ultragpu": ("h200", 369),
    "a4-highgpu": ("b200", 496),
}
_STANDARD = {  # cards by virtual processors, the card, and the RAM of a processor
    "g2": ({4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8}, "l4", 4),
    "g4": ({48: 1, 96: 2, 192: 4, 384: 8}, "rtx-pro-6000", 3.75),
}
_OF_GOOGLE = re.compile(
    rf"\b(?:(?:google|gcp|gce)\s+)*(?:({'|'.join(_GOOGLE)})-(\d{{1,2}})g|({'|'.join(_STANDARD)})-standard-(\d{{1,3}}))\b",
    re.IGNORECASE,
)
_IN_BRACKETS = re.compile(rf"(?<=\S)\s*\((?:{_INSTANCE.pattern}|{_OF_GOOGLE.pattern})\)", re.IGNORECASE)
_CARD = re.compile(r"(?:\d+x )?([a-z]*\d+[a-z]*) \+")  # as an instance's parts begin with it, without a socket
_RAM = re.compile(r"\d ?gi?b (?:of )?(?:system )?(?:ram|memory)\b", re.IGNORECASE)
# Computers that are sold with one processor, or with one best known; of some RAM and cards too.
_SOLD = {
    r"steam ?deck oled": "van-gogh-oled + 16GiB + linux",
    r"steam ?deck(?: lcd)?": "van-gogh + 16GiB + linux",
    r"(?:asus )?(?:rog )?xbox ally x": "ryzen-ai-z2-extreme + 24GiB",
    r"(?:asus )?rog ally x": "ryzen-z1-extreme + 24GiB",
    r"(?:asus )?rog ally": "ryzen-z1-extreme + lpddr5-6400x2 + 16GiB",
    r"(?:lenovo )?legion go 2": "ryzen-z2-extreme",
    r"(?:lenovo )?legion go(?! s)": "ryzen-z1-extreme + 16GiB",
    r"(?:msi )?claw 8 ai\+?": "ultra-7-258v + 32GiB",
    r"(?:asus )?(?:rog )?flow z13(?: 395)?": "strix-halo",
    r"(?:hp )?zbook ultra(?: g1a)?(?: 395)?": "strix-halo",
    r"(?:hp )?z2 mini g1a": "strix-halo",
    r"bosgame m5": "strix-halo",
    r"corsair ai workstation(?: 300)?": "strix-halo",
    r"(?:beelink )?ser7": "ryzen-7840hs",
    r"(?:beelink )?ser8": "ryzen-8845hs",
    r"(?:beelink )?ser9(?! pro)": "ryzen-ai-370",
    r"(?:minisforum )?um780 ?xtx": "ryzen-7840hs",
    r"(?:minisforum )?um790(?: pro)?": "ryzen-7940hs",
    r"(?:minisforum )?um890(?: pro)?": "ryzen-8945hs",
    r"(?:minisforum )?n5 pro": "ryzen-ai-370",
    r"(?:minisforum )?ai x1 pro": "ryzen-ai-370",
    r"(?:gmktec )?k8 plus": "ryzen-8845hs",
    r"(?:gmktec )?evo-?x1": "ryzen-ai-370",
    r"(?:nvidia )?dgx a100(?: 640 ?gb)?": "8x a100-sxm-80gb + 2x epyc-7742 + 2048GiB + linux",
    r"(?:nvidia )?dgx h100": "8x h100 + 2x xeon-8480 + 2048GiB + linux",
    r"(?:nvidia )?dgx h200": "8x h200 + 2x xeon-8480 + 2048GiB + linux",
    r"(?:nvidia )?dgx b200": "8x b200 + 2x xeon-8570 + 2048GiB + linux",
}
_COMPUTERS = tuple((re.compile(rf"\b{name}(?![\w-])", re.IGNORECASE), parts) for name, parts in _SOLD.items())
_OF_AZURE = re.compile(
    r"\b(?:(?:microsoft|azure|standard)[ _])*(n[cd]\d+[a-z]+(?:[ _-][ath]\d+)?[ _-]v\d)\b", re.IGNORECASE
)


def without_computers(text: str) -> str:
    """A description without the models of computers, as `Dell R730`: a maker's name and what follows to the next part.

    Those of computers that are rented too, as `Hetzner AX102`. A name that is a part's alias, such as `GMKtec EVO-X2`,
    stays.
    """
    at = 0
    while found := _MAKERS.search(text, at) or _HOSTS.search(text, at):
        rents = _HOSTS.match(text, found.start()) is not None
        rest = re.split(r"(?=[,;(/+|\n])", text[found.end() :], maxsplit=1)[0]
        words = rest.split()
        if words and (rents or not _NO_PART.fullmatch(words[0])) and is_certain(" ".join(words[:2])):  # a part's alias
            text, at = f"{text[: found.start()]} {text[found.end() :]}", found.start()
            continue
        end = found.end()
        for number, word in enumerate(words[:MOST_WORDS]):
            model = not rents and number == 0 and _NO_PART.fullmatch(word)
            if (
                _PARTS_BEGIN.match(word)
                or _TOGETHER.match(" ".join(words[number:]))
                or (is_certain(word) and not model)
            ):
                break
            end = text.index(word, end) + len(word)
        text, at = f"{text[: found.start()]} {text[end:]}", found.start()
    return text


def sold_as(text: str) -> tuple[str, str]:
    """A description without the name of a computer that is sold with certain parts, and those parts."""
    for name, parts in _COMPUTERS:
        if name.search(text):
            return name.sub(" ", text), parts
    return text, ""


def instance(text: str) -> str:
    """A description with the parts of a cloud's instance instead of its name, as `g5.2xlarge`.

    A name in brackets behind its card and RAM says nothing new.
    """
    if (within := _IN_BRACKETS.search(text)) is not None:
        named = _CARD.match(instance(within[0].strip(" ()")))
        before = text[: within.start()]
        if named and _RAM.search(before) and re.search(rf"\b{named[1]}\b", before, re.IGNORECASE):
            text = f"{before} {text[within.end() :]}"
    text = _LENT.sub("t4 + 12.7GiB", text)
    text = _OF_AZURE.sub(lambda found: _AZURE.get(re.sub(r"[ _]", "-", found[1].lower()), found[0]), text)
    text = _OF_GOOGLE.sub(_of_google, text)
    return _INSTANCE.sub(lambda found: _parts(found[1].lower()) or found[0], text)


def _of_google(found: re.Match[str]) -> str:
    """The parts of an instance of Google's; the name itself if there is none with this number."""
    if found[1]:
        card, gib = _GOOGLE[found[1].lower()]
        number, ram_gib = int(found[2]), gib * int(found[2])
    else:
        by_processors, card, of_one = _STANDARD[found[3].lower()]
        number, ram_gib = by_processors.get(int(found[4]), 0), int(of_one * int(found[4]))
    return f"{number}x {card} + {ram_gib}GiB" if number else found[0]


def _parts(name: str) -> str:
    family, _, kind = name.partition(".")
    if name in _WHOLE or family not in _BY_SIZE:
        return _WHOLE.get(name, "")
    card, gib = _BY_SIZE[family]
    for cards, sizes in ((1, _SIZES), (4, _FOUR), (8, _EIGHT)):
        if kind in sizes:
            return f"{f'{cards}x ' if cards > 1 else ''}{card} + {gib * sizes[kind]}GiB"
    return ""
