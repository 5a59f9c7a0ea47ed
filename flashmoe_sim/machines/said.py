"""A machine as people describe it, in any order and with any marks between its parts, as parts joined by plus signs."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from pathlib import Path

from flashmoe_sim.machines.computers import LAPTOPS, instance, sold_as, without_computers
from flashmoe_sim.machines.parts import DESKTOP
from flashmoe_sim.machines.written import (
    CHANNELS,
    COUNTS,
    has_laptop,
    is_certain,
    is_computer,
    is_integrated,
    is_of_a_laptop,
    is_part,
    is_unknown,
    kind_of,
    plain,
    system_in,
    words,
)

MOST_TOKENS = 14
MOST_SIGNS = 500  # of a description
LARGEST_MT_S = 8400  # of a module that says its rate; a larger number is of bytes
JEDEC_MT_S = (1066, 1333, 1600, 1866, 2133, 2400, 2666, 2933, 3200, 4800, 5200, 5600, 6000, 6400)
_LETTERS = str.maketrans(
    "\u00a0\u202f\u2019\u2010\u2011\u2013\u2014\u2716\u2715\uff0b\uff0c\u3001\uff08\uff09\uff1a\uff1b\u3002\n\t",
    "  '----\u00d7\u00d7+,,():;,; ",
    "\u00ae\u2122\u00a9\ufe0f\r",
)
_CHINESE = {"双": 2, "四": 4, "六": 6, "八": 8}
_OTHER_LANGUAGES = (  # words that stand beside parts
    (re.compile(r"(?<=\d)\s*(?:ГБ|Гб|гб|Гиб|ГиБ)(?!\w)"), "GB"),
    (re.compile(r"(?<=\d)\s*(?:ТБ|Тб|тб)(?!\w)"), "TB"),
    (re.compile(r"(?<=\d)\s*МГц(?!\w)"), "MHz"),
    (re.compile(r"(?<=\d)\s*[хХ]\s*(?=\S)"), "x "),
    (re.compile(r"(?<=\d) ?[Gg][Bb]?的?(?=\s*(?:内存|显存))"), "GB"),
    (re.compile(r"(?<=\d) ?[Tt][Bb]?的?(?=\s*内存)"), "TB"),
    (re.compile(r"ОЗУ|(?:оперативной )?памяти|内存|記憶體"), " RAM "),
    (re.compile(r"显存|видеопамяти"), " VRAM "),
    (re.compile(r"双路|双卡|两[张块颗]"), "2x "),
    (re.compile(r"四[路卡]|四[张块]"), "4x "),
    (re.compile(r"八卡|八张"), "8x "),
    (re.compile(r"单[路卡]|一[张块颗]"), " "),
    (re.compile(r"[xX\u00d7*]?\s*(\d{1,2}) ?[张块颗条](?=\s*(?:$|[;,|+/=]))"), r" x\1"),
    (re.compile(r"(\d{1,2}) ?[张块颗](?=\s*\w)"), r"\1x "),
    (re.compile(r"(?<=\d) ?[张块颗条]"), " "),
    (re.compile(r"(\d{1,2})通道"), r" \1-channel "),
    (re.compile(r"([双四六八])通道"), lambda found: f" {_CHINESE[found[1]]}-channel "),
    (re.compile(r"十二通道"), " 12-channel "),
    (re.compile(r"(?:的)?(?:显卡|处理器)(?!\s*:)"), " "),
    (re.compile(r"显卡"), "GPU"),
    (re.compile(r"处理器"), "CPU"),
    (re.compile(r"固态(?:硬盘)?"), " SSD "),
    (re.compile(r"硬盘(?=\s*:)"), "SSD"),
    (re.compile(r"至强"), " Xeon "),
    (re.compile(r"铂金"), " Platinum "),
    (re.compile(r"[金银]牌"), " "),
    (re.compile(r"霄龙"), " EPYC "),
    (re.compile(r"锐龙"), " Ryzen "),
    (re.compile(r"线程撕裂者"), " Threadripper "),
    (re.compile(r"\d+ ?核(?:心)?(?: ?\d+ ?线程)?"), " "),
    (re.compile(r"\s*[加和]\s*(?=\w)"), " + "),
    (re.compile(r"(?<=\d) ?[Gg]o(?!\w)"), "GB"),
    (re.compile(r"(?<=\d) ?To(?!\w)"), "TB"),
    (
        re.compile(
            r"\bde (?=ram\b)|\b(?:RAM[- ]?Speicher|Arbeitsspeicher|(?:de )?(?:mémoire(?: vive)?|memoria))\b",
            re.IGNORECASE,
        ),
        " RAM ",
    ),
    (re.compile(r"\bGrafikkarte\b|\bcarte graphique\b|\btarjeta gráfica\b", re.IGNORECASE), "GPU"),
    (re.compile(r"\bProzessor\b|\bprocesseur\b|\bprocesador\b", re.IGNORECASE), "CPU"),
    (re.compile(r"(?<![\w.])(\d{2}|\d(?=,\d ?T)),(\d)(?= ?[GT]i?B)"), r"\1.\2"),
)
_MEBIBYTES = re.compile(r"(?<![\d.,])(\d{4,9}|\d{1,3}(?:,\d{3})+)(?:\.\d+)? ?([mk])i?b\b(?!/s|ps)", re.IGNORECASE)


def _total(found: re.Match[str]) -> str:
    """The total of `7.2 GiB / 31.1 GiB`, in MiB, of which a computer has a little more."""
    return f"{round(float(found[1]) * 1024 ** (found[2] == 'G'))} MiB"


_SCREENSHOT = (  # what programs print about a computer beside its parts, and how they print these
    (re.compile(r"\bmax-q / mobile\b|\bmobile / max-q\b", re.IGNORECASE), "Mobile"),
    (re.compile(r"(model name:\s*)([^;]*;.*?)socket\(s\):\s*([2-9])(?=\s*(?:;|$))", re.IGNORECASE), r"\1\3x \2"),
    (re.compile(r"\s*\((?:UUID: [^)]*|[\d.,]+ ?GB (?:usable|verwendbar|utilisables?|utilizables?)|\d{1,3}%)\)"), ""),
    (
        re.compile(
            r"\s*\[(?:discrete|integrated)\]|\s*\(10\.0, build \d+\)|\b(?:64[- ]bit|x86_64|amd64|aarch64|x64)\b",
            re.IGNORECASE,
        ),
        "",
    ),
    (re.compile(r"\s*\(\d{1,3}(?: CPUs)?\)(?:,? ?[@~] ?[\d.]+ ?[GM]Hz)?(?=\s*(?:$|[;,|/+@~]))"), ""),
    (re.compile(r"[\d.]+ ?[GM]iB ?/ ?([\d.]+) ?([GM])iB"), _total),
    (
        re.compile(
            r"\b(?:kernel|uptime|packages|shell|resolution|display(?: \([^)]*\))?|de|wm(?: theme)?|theme|icons|font|"
            r"cursor|terminal(?: font)?|swap|disk \([^)]*\)|local ip[^:;]*|battery|locale|bios(?: version)?|"
            r"system type|model (?:identifier|number)|total number of cores|driver[ -]version|device name|socket\(s\)|"
            r"(?:core|thread)\(s\) per (?:socket|core)|numa node\(s\))\s*: *[^;|,]*"
            r"(?:,(?![^;|]*\d ?G)[^;|]*(?=;))?|(?:^|(?<=[;|]))\s*(?:device (?:name|id)|product id|system type|"
            r"version(?= \d\dh\d)|os build|installed on|pen and touch|gerätename|geräte-id|produkt-id|systemtyp)\b"
            r"[^;|]*",
            re.IGNORECASE,
        ),
        "",
    ),
    (
        re.compile(
            r"\b(?:chip|(?:model|card|os|cpu|gpu) name|model|architecture|physical memory|"
            r"operating system|(?:installed|total)(?: physical)? (?:memory(?: \(ram\))?|ram)|adapter|gpu ?#?\d)\s*:\s*|"
            r"\binstall(?:ed|ierter) (?:physical memory \(ram\)|ram|memory) (?=\d)|"
            r"(?:^|(?<=[;|]))\s*(?:processor|graphics card|edition) (?=\S)",
            re.IGNORECASE,
        ),
        " + ",
    ),
)
NEAR_WHOLE, NEAR_SOLD = 0.006, 0.05  # how far below a whole number, or a size that is sold, a system's report may be
_THOUSANDS = re.compile(r"(?<=\b\d),(?=\d{3} ?gi?b\b)", re.IGNORECASE)
_ENDS = re.compile(r"^[\s.]+|[\s.,;]+$")
_LEAD = re.compile(
    r"^(?:(?:i|we)(?:'m| am| are| have|'ve)? |my (?!mac\b)|our |hi,? )?(?:currently )?"
    r"(?:(?:have|got|running|runs?|using|use|tested|testing|"
    r"llama\.?cpp|ik_llama(?:\.cpp)?|ollama|vllm|ktransformers)\b ?)*"
    r"(?:it )?(?:on |with |in )?(?:(?:a|an|my|the|our|single|one) )*(?:(?:gaming )?(?:laptop|desktop|pc|rig|server|"
    r"workstation)(?: pc)? (?:with|has) (?:(?:a|an) )?)?",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:an?|the|my) (?!mac\b)", re.IGNORECASE)
_MARKS = re.compile(r"\((?:r|tm|c)\)", re.IGNORECASE)  # of trademarks
_LAPTOP = re.compile(rf"\b(?:laptop|notebook|{LAPTOPS})\b", re.IGNORECASE)
_ALONE = re.compile(r"(?:(?:a|my|gaming|windows|linux|work)\s+)*(?:laptop|notebook)", re.IGNORECASE)
_OUTSIDE = re.compile(r"\be-?gpu\b|thunderbolt|oculink|usb4", re.IGNORECASE)
_CABLE = re.compile(r"oculink|thunderbolt|usb4|\btb\d\b", re.IGNORECASE)
_E_GPU = re.compile(r"\be-?gpu\b(?: (?:dock|enclosure|case))?", re.IGNORECASE)
_DESKTOP = re.compile(  # also small ones, with a laptop's processor
    r"\b(?:desktop|mini[- ]?(?:pc|itx)|minipc|itx|minisforum|beelink|gmktec|geekom|nuc|ms-0\d|bd\d{3}\w*|server)\b",
    re.IGNORECASE,
)


def _behind(found: re.Match[str]) -> str:
    """`dual` behind the name of a part as `x2`."""
    return f"{found[1]} x{COUNTS[found[2].lower()]}"


def _of_modules(found: re.Match[str]) -> str:
    """`PC4-25600`, which counts bytes, and `PC4-3200` as DDR4-3200."""
    kind, number = found[1], int(found[2])
    mt_s = number if number <= LARGEST_MT_S else min(JEDEC_MT_S, key=lambda one: abs(one - number / 8))
    return f"DDR{kind}-{mt_s}"


_SHORT = (  # what people shorten, and what they write in other words
    (
        re.compile(r"\b(?:gpus?|graphics(?: cards?)?)\s*[:=]\s*(?:none|n/?a|no|-+)(?=\s*(?:$|[;,|/]))", re.IGNORECASE),
        " ",
    ),
    (re.compile(r"\b(wsl ?2?) (?:on|under|in) (?=win)", re.IGNORECASE), r"\1, "),
    (re.compile(r"(\d{4,5}) ?(?:mhz|mt/s) (ddr\d)\b(?![- ]?\d{4})", re.IGNORECASE), r"\2-\1"),
    (re.compile(r"\(\d{1,2} ?x ?(\d{1,3}) ?gb(?: of)? v-?ram\)", re.IGNORECASE), r"(\1GB)"),
    (re.compile(r"\s+-\s+(?=cpu[- ]only\b)", re.IGNORECASE), ", "),
    (re.compile(r"\s*\((?:darwin|kernel)\b[^()]*\)|(?<!linux)[\s,]+kernel:? v?\d[\w.-]*", re.IGNORECASE), ""),
    (
        re.compile(
            r"\b(windows(?: 1[01])?|linux) (?:gaming )?(?:pc|rig|desktop|machine|box) (?:with|has)\b", re.IGNORECASE
        ),
        r"\1 + ",
    ),
    (re.compile(r"\b(?:dual|two|2)[- ]?(?:socket|cpu)(?:s| of)?\b *(?=[a-z])", re.IGNORECASE), "2x "),
    (re.compile(r"\b2[sp] (?=(?:amd |intel )?(?:epyc|xeon)\b)", re.IGNORECASE), "2x "),
    (re.compile(r"(?<=\d) ?gbs\b", re.IGNORECASE), "GB"),
    (re.compile(r"(?<=\d{4}) ?mt(?![/\w])", re.IGNORECASE), "MHz"),
    (
        re.compile(r"(?<!xeon )(?<!xeon  )\b((?:gold|silver|platinum) \d{4}[a-z]?)\b(?! ?[gmt])", re.IGNORECASE),
        r"Xeon \1",
    ),
    (re.compile(r"\bxeon 6 (?=\d{4}[a-z])", re.IGNORECASE), "Xeon "),
    (re.compile(r"\s*\(igpu\)", re.IGNORECASE), ""),
    (re.compile(r"\bdevice \d:\s*", re.IGNORECASE), " + "),
    (re.compile(r"[\s,]*\b(?:compute capability \d+\.\d|vmm: (?:yes|no))", re.IGNORECASE), ""),
    (re.compile(r"\bmod(?:ded|ified) (?=\w)", re.IGNORECASE), ""),
    (
        re.compile(
            r",? running (?=(?:[kx]?ubuntu|linux|windows|debian|fedora|arch|macos|proxmox|unraid)\b)", re.IGNORECASE
        ),
        ", ",
    ),
    (re.compile(r"(?<=framework desktop) (?:with )?(?:amd )?ryzen ai max\+?(?! ?[a-z]* ?3\d\d)", re.IGNORECASE), ""),
    (re.compile(r"(?<=\w\w)\.\s+(?=[A-Z0-9])"), ", "),
    (
        re.compile(
            r"(?<!server )(?<![\w.$-])(?:early |mid |late )?20[12]\d\b(?![.-]?\w| ?[gm]i?b| ?m[ht])", re.IGNORECASE
        ),
        " ",
    ),
    (re.compile(r"(?<=\d)[.,](?=\d{3} ?(?:mhz|mt/s))", re.IGNORECASE), ""),
    (re.compile(r"(?<=\d) ?gi\b", re.IGNORECASE), "GB"),
    (re.compile(r"(?<=\d) ?gi?b ?[x*\u00d7] ?(\d{1,2})\b(?! ?gi?b)", re.IGNORECASE), r"GB x\1"),
    (
        re.compile(
            rf"(?<!\S)(?!ddr|ram|\d+ ?gi?b|\d{{4,5}} )(\S*[\w)]) ({'|'.join(COUNTS)})(?=\s*(?:$|[,;+/|)]|\d+ ?gi?b))",
            re.IGNORECASE,
        ),
        _behind,
    ),
    (re.compile(r"(?:(?<=gb)|(?<=ddr\d)) ?(?:at|@) ?(\d\d(?:00|33|66))\b(?! ?m[ht])", re.IGNORECASE), r" \1MHz"),
    (re.compile(r"(?<!\w)(\d{1,2}) ?[x\u00d7] ?(\d{1,3})(?= (?:ddr\d[- ]?)?\d{4}\b)", re.IGNORECASE), r"\1x\2GB"),
    (re.compile(r"\b(ddr\d) ?@ ?(\d{4,5}) ?mhz\b", re.IGNORECASE), r"\1-\2"),
    (re.compile(r"\bpc(\d)l?[- ]?(\d{4,5})[a-z]{0,2}(?:-\w{1,3})*\b", re.IGNORECASE), _of_modules),
    (re.compile(r"\b(\d{1,2}) ?-?ch(?:annels?)? (\d{4})(?! ?(?:mhz|mt/s))\b", re.IGNORECASE), r"\1ch \2MHz"),
    (
        re.compile(rf"(ddr\d(?:[- ]?\d{{4}})?) ({'|'.join(COUNTS)})(?=\s*(?:$|[,;+/)]))", re.IGNORECASE),
        r"\1 \2-channel",
    ),
    (
        re.compile(
            r"\bcl ?\d\d(?:-\d+)+\b|\b(?:xmp|expo)(?: ?\d(?:\.\d)?| profile)?\b|"
            r"\b(?:single|dual|1|2)[- ]?rank(?:ed)?\b|\b(?:c?u|so|cso|cam)-?dimm\b|(?<=ecc) reg(?:istered)?\b",
            re.IGNORECASE,
        ),
        " ",
    ),
    (re.compile(r"\bTR(?= (?:pro )?\d{4})", re.IGNORECASE), "Threadripper"),
    (re.compile(r"\bR([3579])[ -](?=\d{4})", re.IGNORECASE), r"Ryzen \1 "),
    (
        re.compile(
            r"(?:\b(?:amd|ryzen|ai|framework|desktop|strix[- ]halo|max|pro)\b\+? ?)+395\b\+?(?! ?gi?b)", re.IGNORECASE
        ),
        "strix-halo",
    ),
    (re.compile(r"(?<=\d) ?(?:gigs?|gigabytes?)\b", re.IGNORECASE), "GB"),
    (re.compile(r"\b(?:single|one|1) (?:stick|dimm|module)\b", re.IGNORECASE), "single channel"),
    (re.compile(r"\bsystem (?=ram|memory)", re.IGNORECASE), ""),
    (re.compile(r"\s*[*\u00d7]\s*(\d{1,2})(?=$|[\s,;+/)])"), r" x\1"),  # cards, behind their name
    (re.compile(r"\s*@ ?(?:pcie ?)?(?=x ?(?:16|[1248])\b)", re.IGNORECASE), " + pcie "),
    (re.compile(r"\b(?:(?:graphics?|video) )?cards?\b(?! ?[:=])|\bgpus\b(?! ?[:=])", re.IGNORECASE), "GPU"),
    (re.compile(r"(\d{3}[a-z]{0,2})-(?:cpu|gpu)\b", re.IGNORECASE), r"\1 "),
    (re.compile(r"\b(i[3579])[- ]\d{1,2}th[- ]gen(?:eration)?[- ](?=\d{4,5})", re.IGNORECASE), r"\1-"),
    (re.compile(r"\(\s*\d{1,3}(?:\s*\+\s*\d{1,3})+\s*(?:gi?b)?\s*\)", re.IGNORECASE), " "),
    (re.compile(r"\b(?:cuda|vulkan|rocm|sycl|hip) ?\d:?\s+(?=\S)", re.IGNORECASE), " "),
    (re.compile(r"\b((?:gtx ?)?16[56]0|(?:rtx ?)?[24]0[6-8]0)S\b", re.IGNORECASE), r"\1 Super"),
    (re.compile(r"\b([2-5]0[5-9]0(?: ?ti)?)x(\d{1,2})\b(?! ?gi?b)", re.IGNORECASE), r"\2x \1"),
    (
        re.compile(r"\basus dual(?= (?:\w+ )*?(?:[1-5]0[5-9]0|[67]\d00|a\d{3}|b\d{3})\b(?!s))", re.IGNORECASE),
        "",
    ),  # a line of cards
    (re.compile(r"\bnitro\+(?= )", re.IGNORECASE), "nitro"),
)
_IN_A_MAC = (  # its cores, and its SSD
    (re.compile(r"[\s,]*(?:and )?\b\d+[- ]core neural (?:network )?engine\b", re.IGNORECASE), ""),
    (re.compile(r"\bcentral processing unit\b", re.IGNORECASE), "CPU"),
    (re.compile(r"\bgraphics process(?:or|ing unit)\b", re.IGNORECASE), "GPU"),
    (re.compile(r"(\bm\d(?: pro| max| ultra)?) (?:chip|soc)\b(?: with)?", re.IGNORECASE), r"\1, "),
    (re.compile(r"(?<=ssd) storage\b", re.IGNORECASE), ""),
    (re.compile(r"\b(m3)(?= (?:mac )?studio\b)|(?<=mac studio )(m3)\b(?! (?:max|ultra))", re.IGNORECASE), "m3 ultra"),
    (re.compile(r"\b(m4)(?= (?:mac )?studio\b)|(?<=mac studio )(m4)\b(?! (?:max|ultra))", re.IGNORECASE), "m4 max"),
    (re.compile(r"(\bm\d(?: pro| max| ultra)?) \d{1,2}c?/(\d{1,2})c?\b(?! ?[gt]i?b)", re.IGNORECASE), r"\1 \2core"),
    (re.compile(r"(\d ?gi?b) (\d ?tb|256 ?gb|512 ?gb)\b(?: ssd)?", re.IGNORECASE), r"\1, \2 SSD"),
    (re.compile(r"\(([^()]*\d[- ]?(?:core )?[cg]pu[^()]*)\)", re.IGNORECASE), r", \1, "),
    (re.compile(r"\b\d+[- ]?cores?(?= +\d+[- ]?(?:core )?gpu)", re.IGNORECASE), " "),
    (re.compile(r"\b(?:\d+\+)?\d+[- ]?(?:core )?cpu\b(?: cores?)?\s*/?", re.IGNORECASE), " "),
    (re.compile(r"\b(\d+)[- ]?(?:core gpu|gpu(?:[- ]?cores?)?)\b\s*/?", re.IGNORECASE), r", \1core, "),
    (re.compile(r"[\s,/]*\b(\d+(?:\.\d)? ?[GT]B ssd)\b", re.IGNORECASE), r", \1"),
)
_APPLE = re.compile(r"\bm[1-9]\b|\bmacbook\b", re.IGNORECASE)
_LABEL = re.compile(
    r"\b(?:(?:old|new|my|main|home|work|test|gaming) )*(?:host(?: (?:memory|ram|cpu))?|system(?: (?:memory|ram))?|"
    r"cpus?(?: mem(?:ory)?)?|processors?|gpus?|graphics(?: card)?|"
    r"device|ram|memory|mem(?:total)?|os|storage|ssd|disks?|drives?|machine|server|hardware|specs?|pc|laptop|desktop|rig|setup|hw)\s*[:=]\s*",
    re.IGNORECASE,
)
_VRAM_LABEL = re.compile(r"\b(?:vram|gpu mem(?:ory)?)\s*[:=]\s*(\d+ ?gi?b)", re.IGNORECASE)
_GIGABYTES = re.compile(
    r"(?<![\w.-])(\d{1,3}) ?g(?=\s*(?:of |unified|memory|ram|vram|ddr|x ?\d|$|[,/+)]| \d|rtx|ryzen|i\d-))",
    re.IGNORECASE,
)
_PAIR = re.compile(r"\b(?:pair|couple) of (?=\S)", re.IGNORECASE)
_NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8}
_NUMBER = re.compile(rf"\b({'|'.join(_NUMBERS)}) (?=[\w ]*\d)", re.IGNORECASE)
_LACKS = re.compile(r"[\s,;/+]+(?:and )?(?:no|without)(?: an?)?(?: discrete| dedicated)? gpus?$", re.IGNORECASE)
_PLURAL = re.compile(  # two 3090s
    rf"\b(\d{{1,2}}|{'|'.join(COUNTS)})(?: ?[x\u00d7] ?| )"
    r"((?:(?:nvidia|geforce|rtx|tesla|amd|instinct) )*)"
    r"([2-5]0[5-9]0(?: ti| super)?|[pv]\d{2,3}|mi\d{2,3}|[ah]\d{2,3}|a\d000)'?s\b",
    re.IGNORECASE,
)
_OF_A_MAC = re.compile(r"(\d+ ?gi?b) ?/ ?(\d+ ?[gt]i?b)(?: ssd)?(?=$|[,;)])", re.IGNORECASE)  # its RAM and its SSD
_NOTHING = re.compile(  # cores with threads, two kinds of cores, clocks, what joins cards, and what is absent
    r"(?:\b(?:no|without) )?\bnv-?link(?:ed)?(?: bridge)?\b|"
    r"\b(?:cuda|(?:nvidia[- ])?drivers?|llama\.?cpp|rocm)(?: version)?:? [bv]?\d[\d.]*\b|"
    r"@ ?\d{2,4} ?w\b|\b(?:(?:intel )?u?hd (?:graphics )?\d{3,4}|(?:intel )?u?hd graphics|(?:amd )?radeon graphics)\b|"
    r"\bcpu[- ]only:|\b\d+ ?v-?cpus?\b|\b\d{1,2}th[- ]gen(?:eration)?\b(?= intel)|"
    r"(?<=\w) (?:node|instance|pod)\b|"
    r"\b(?:xe|i915|amdgpu|radv|mesa|nouveau) (?:kernel )?drivers?\b(?: [\d.]+)?|(?:\s*/\s*)?\bgfx\d{3,4}\w?\b|"
    r"\b(?:developer kit|dev ?kit|mini[- ]?pc|am[45]|lga ?\d{3,4}|"
    r"(?:\d{1,2}|two|four|eight) (?:sticks|dimms|modules))\b|(?<=gb) mod(?:ded|ified)?\b|"
    r"\d+\s*c(?:ores?)?\s*/\s*\d+\s*t(?:hreads?)?\b|\b\d+p\+\d+e\b|(?:@ ?)?\b\d(?:\.\d+)? ?ghz\b",
    re.IGNORECASE,
)
_APPLE_CORES = re.compile(r"\b(m\d(?: pro| max| ultra)?) (\d+)c\b", re.IGNORECASE)
_TWO_RATES = re.compile(r"\b((?:lp)?ddr\d\w?[- ]?)(\d{4,5})\s?(?:/|or|and)\s?(\d{4,5})\b(?:\s+mixed\b)?", re.IGNORECASE)
_PER_SECOND = re.compile(r"(?<=[MGmg][TBtb])/s\b")
_BETWEEN = re.compile(
    r"(?<=\bram)\.\s+(?=\S)|\s+/\s+|\s*[;|\n]\s*|(?:\s+|^)(?:w/|with|and|plus|&|mit|und|avec|et)\s+|(?:(?<!\d),|,(?!\d{3}(?!\d)))\s*(?:(?:and|with)\s+)?"
    r"|\s+(?:on|in)\s+(?:an?|my)\s+|\s+(?:e-?gpu\s+)?(?:over|via|through|on)\s+(?=thunderbolt|usb4|oculink|tb\d|pcie)",
    re.IGNORECASE,
)
_MODULES = re.compile(r"(\d{1,2}) channels? (?:of )?(.+?) ?[*x\u00d7] ?(\d{1,4}) ?gi?b", re.IGNORECASE)
_MODULES_OF = re.compile(  # 2x32 or 2x32GB beside 64GB, before what is no card
    r"(?<![\w.])(\d{1,2}) ?[*x\u00d7] ?(\d{1,3}) ?(?:gi?b)?(?: (?:modules|sticks|dimms?|kit))?"
    r"(?=\s*(?:$|[)\],;/|@+]|ddr\d|\d\d(?:00|33|66)\b))",
    re.IGNORECASE,
)
_SIZES = re.compile(r"(?<![\w.])(?<!\dx )(?<!\d x )(\d{1,4}) ?gi?b\b", re.IGNORECASE)
_REMARK = re.compile(
    r"\b(?:(?:early |mid |late )?20[12]\d|unified|shared|rated(?: at)? \d{4,5}|stock|mod(?:ded|ified)?|"
    r"config(?:uration)?|total|combined|each|mixed|es|qs|"
    r"runpod|vast(?:\.ai)?|aws|gcp|gddr\dx?|hbm\d?e?|\d+[- ]?bit|sm_?\d+|"
    r"engineering sample|headless|eco mode|overclocked|oc|undervolted|"
    r"\d+ ?w|(?:power[- ])?limit(?:ed)?(?: to)?(?: \d+ ?w)?|"
    r"\d+ ?(?:p|e)?-?cores?|\d+c(?:/\d+t)?|\d+p\+\d+e|\d+ threads?|smt off|\d ?numa nodes?|\d(?:\.\d+)? ?ghz|avx\d+|"
    r"sapphire rapids|emerald rapids|granite rapids|ice lake|cascade lake|sky ?lake|broadwell|haswell|"
    r"(?:alder|raptor|arrow|meteor|lunar|comet|rocket|coffee) lake|naples|rome|milan|genoa|turin|zen ?\d\+?)\b|[~]",
    re.IGNORECASE,
)
_BARE_COUNT = re.compile(r"(1[0-6]|[1-9]) (?!gpus? )(\S.*)", re.IGNORECASE)  # of cards
_COUNTED = re.compile(r"^\d{1,2} ?x|x ?\d{1,2}$", re.IGNORECASE)
_COUNT = re.compile(r"[x\u00d7] ?(\d{1,2})|(\d{1,2}) ?[x\u00d7]", re.IGNORECASE)
_COMMA = "\x1f"  # one within brackets, which separates no parts
_WSL = re.compile(r"\bwsl", re.IGNORECASE)  # Linux, beside Windows
_CPU_ONLY = re.compile(r"cpu[- ]only", re.IGNORECASE)
_NO_GPU = re.compile(r"(?:no|without)(?: an?)?(?: \w+)? [di]?gpus?|cpu[- ]only", re.IGNORECASE)
_SEVERAL_BEHIND = re.compile(r"^(.+\S)\s+[x\u00d7] ?(\d{1,2})$", re.IGNORECASE)
_BRACKETS = re.compile(r"\s*[(\[]([^()\[\]]*)[)\]]\s*")
_ONLY_CHANNELS = re.compile(rf"(?:\d{{1,2}}|{'|'.join(CHANNELS)})[- ]?(?:channels?|ch)", re.IGNORECASE)
_FILLER = re.compile(
    r"of|sff|cpu|i?gpu|e?cc|with|laptop|desktop|workstation|cl\d\d|at|@|single-socket|gddr\dx?|hbm\d?e?|\d+-?bit|"
    r"w?[bxz]\d{3}[a-z]?|w?rx\d0|trx\d0|x[79]9|z[789]7",
    re.IGNORECASE,
)
_KIND_OF_A_CHIP = re.compile(r"lpddr\dx?", re.IGNORECASE)  # of the memory
_KIND_ALONE = re.compile(r"\blpddr\dx?\b(?![- ]?\d)", re.IGNORECASE)  # without its rate
_OF_WHOM = re.compile(  # makers of cards, and their editions
    r"\b(?:asus|msi|gigabyte|aorus|zotac|evga|palit|gainward|inno3d|pny|sapphire|xfx|powercolor|asrock|galax|kfa2|"
    r"colorful|maxsun|manli|tuf|rog|strix|ventus(?: [23]x)?|suprim(?: x)?|gaming(?: x| oc| pro)?|trio|ftw3?|trinity|"
    r"shadow(?: [23]x)?|gddr\dx?|founders edition|windforce|eagle|"
    r"nitro\+?|pulse|red devil|hellhound|turbo|blower|edition|ultra(?= *$))\b",
    re.IGNORECASE,
)
_OF_WHOM_RAM = re.compile(
    r"\b(?:(?:sk ?)?hynix|micron|samsung|corsair|vengeance|dominator|g\.? ?skill|trident(?: z\d?)?|ripjaws|flare|"
    r"kingston|fury|beast|renegade|crucial|teamgroup|t-?force|patriot|adata|xpg|neo|rgb|lpx|pro|cl ?\d\d)\b",
    re.IGNORECASE,
)
_BOARD = re.compile(
    r"(?:(?:asus|asrock|msi|gigabyte|supermicro|huananzhi) )?.*\b(?:motherboard|mobo|psu|power supply|case|risers?|"
    r"w?[abchxz]\d{3}[a-z]?(?:-\w+)?|x[79]9|z[789]7|w?rx\d0|trx\d0|mz\d\d-\w+|h1[1-3]ssl-?\w*|romed8\S*|x1[0-3][ds]\w+(?:-\w+)?)\b.*",
    re.IGNORECASE,
)
_SAYS_CHANNELS = re.compile(r"\d{4}x\d{1,2}\b", re.IGNORECASE)
_OF_MEMORY = re.compile(r"ddr\d|m(?:cr|r)dimm", re.IGNORECASE)
_NUMBERED = re.compile(r"\b(?:gpu ?#?|device )1\s*:", re.IGNORECASE)  # a list of cards, of which each is another
_LINK_OF_DRIVE = re.compile(r"pcie(?= |-?gen|\d\.)[- ]?(?:gen ?)?([345])(?:\.0)? ?(?:x ?[24])?", re.IGNORECASE)
_NVME = re.compile(r"(?:\d+(?:\.\d)? ?[GT]B )?(?:m\.?2 )?nvme(?: ssd)?(?: \d+(?:\.\d)? ?[GT]B)?", re.IGNORECASE)
_PATH = re.compile(r"^\.+$|^(?:[.~]{0,2}[/\\]|[a-z]:[/\\])|\\|\.toml$", re.IGNORECASE)


def is_path(text: str) -> bool:
    """Whether a text is the path of a file rather than a description."""
    if _PATH.search(text):
        return True
    if "/" not in _PER_SECOND.sub("", text):
        return False
    try:
        if Path(text).exists():
            return True
    except OSError:
        return False
    return not any(sign.isspace() for sign in text) and not all(map(is_part, text.split("/")))


def as_parts(text: str) -> str:
    """A description such as `Host: 2x 3090 / i9-12900K (16c/24t), 64 ГБ` as `2x 3090 + i9-12900K + 64GB`.

    What it does not understand stays, for the reader of parts to refuse. A path stays as it is.
    """
    if len(text) > MOST_SIGNS or is_path(text):
        return text
    return " + ".join(_pieces(text)) if all(words(text)) else text


def _pieces(text: str) -> list[str]:
    """The parts of a description."""
    text, numbered = _MARKS.sub("", text.translate(_LETTERS)), bool(_NUMBERED.search(text))
    for pattern, word in (*_OTHER_LANGUAGES, *_SCREENSHOT):
        text = pattern.sub(word, text)
    text = _THOUSANDS.sub("", _MEBIBYTES.sub(_in_gib, text))
    outside, desktop = bool(_OUTSIDE.search(text)), bool(_DESKTOP.search(text))
    laptop = bool(_LAPTOP.search(text)) and not outside
    if _CABLE.search(text):
        text = _E_GPU.sub(" ", text)
    for pattern, word in (*_SHORT, *(_IN_A_MAC if _APPLE.search(text) else ())):
        text = pattern.sub(word, text)
    text, sold = sold_as(instance(text))
    text = without_computers(text)
    text = _LACKS.sub("", _LEAD.sub("", _ENDS.sub("", text), count=1))
    text = _of_modules_beside(text)
    text = _NUMBER.sub(lambda found: f"{_NUMBERS[found[1].lower()]}x ", text)
    text = _VRAM_LABEL.sub(r" + \1 VRAM", text)
    text = _LABEL.sub(" + ", text).removeprefix(" + ")
    text = _GIGABYTES.sub(r"\1GB", text)
    text = _APPLE_CORES.sub(r"\1 \2core", _NOTHING.sub("", text))
    text = _PLURAL.sub(
        lambda found: f"{COUNTS.get(found[1].lower(), found[1])}x {found[2]}{found[3]}", _PAIR.sub("2x ", text)
    )
    text = _OF_A_MAC.sub(r"\1 + \2 SSD", text) if _APPLE.search(text) else text
    text = _TWO_RATES.sub(lambda found: f"{found[1]}{min(found[2], found[3], key=int)}", text)
    inside = _BRACKETS.sub(lambda found: found[0].replace(",", _COMMA), text)
    whole = [piece for between in words(inside) for piece in _BETWEEN.split(between)]
    found = chain.from_iterable(map(_without_remarks, chain.from_iterable(map(_slashes, map(_counted, whole)))))
    found = chain.from_iterable(map(_segments, _joined(list(found))))
    tidy = [_ARTICLE.sub("", _ENDS.sub("", piece)) for piece in found]
    parts = [_bare(piece) for piece in tidy if piece and not (_NO_GPU.fullmatch(piece) or _is_board(piece))]
    if any(is_part(piece) and kind_of(piece) in ("gpu", "chip") for piece in parts):
        parts += filter(_CPU_ONLY.fullmatch, tidy)
    if _WSL.search(text):
        parts = [piece for piece in parts if system_in(piece) != "windows"]
    if any(is_part(piece) and kind_of(piece) == "chip" for piece in parts):
        parts = [piece for piece in parts if not is_computer(piece)]
    parts = _without_links_of_drives(parts)
    parts += _as_sold(parts, sold)
    if numbered:
        parts = [f"{number}x {piece}" if number > 1 else piece for piece, number in Counter(parts).items()]
    if any(is_part(piece) and kind_of(piece) == "gpu" for piece in parts):
        parts = [piece for piece in parts if not is_integrated(piece)]
    if laptop:
        parts = _of_a_laptop(parts)
    elif any(map(is_of_a_laptop, parts)):
        parts = _beside_a_laptop_cpu(parts, desktop=desktop or outside)
    if any(map(_KIND_OF_A_CHIP.search, parts)):
        parts = _without_kind(parts)
    return _with_channels(parts) or [text]


def _of_modules_beside(text: str) -> str:
    """`256GB (4x64GB)` as 4x64GB."""
    for found in _MODULES_OF.finditer(text):
        number, gib = int(found[1]), int(found[2])
        if number * gib in map(int, _SIZES.findall(text)):
            without = f"{text[: found.start()]} {text[found.end() :]}"
            total = re.compile(rf"(?<![\w.])(?<!\dx )(?<!\d x ){number * gib} ?gi?b\b", re.IGNORECASE)
            return total.sub(f"{number}x{gib}GB", without, count=1)
    return text


def _in_gib(found: re.Match[str]) -> str:
    """The size in GB that a report, such as `65458 MB`, is of: the system or the card keeps some of it."""
    gib = int(found[1].replace(",", "")) / (1024 if found[2].lower() == "m" else 1024**2)
    sold = next(size for size in sorted(m * 2**n for m in (1, 3) for n in range(16)) if size >= gib)
    if sold - gib <= NEAR_SOLD * sold:
        return f"{sold}GB"
    return f"{round(gib) if abs(round(gib) - gib) <= NEAR_WHOLE * gib else round(gib, 1):g}GB"


def _bare(piece: str) -> str:
    """A piece without the maker and the edition of a card, or of RAM, if it names one without them only."""
    if not is_unknown(piece):
        return piece
    for makers, kinds in ((_OF_WHOM, ("gpu",)), (_OF_WHOM_RAM, ("memory", "RAM"))):
        bare = " ".join(makers.sub(" ", piece).split())
        if bare and is_part(bare) and kind_of(bare) in kinds:
            return bare
    return piece


def _counted(piece: str) -> str:
    """A piece such as `2 RTX 3090` as `2x RTX 3090`."""
    found = _BARE_COUNT.fullmatch(piece.strip())
    return f"{found[1]}x {found[2]}" if found and is_part(found[2]) and kind_of(found[2]) == "gpu" else piece


def _is_board(piece: str) -> bool:
    """Whether a piece is a motherboard, or what else holds parts, and names no part."""
    return bool(_BOARD.fullmatch(piece)) and is_unknown(piece) and not any(map(is_certain, piece.split()))


def _without_links_of_drives(parts: list[str]) -> list[str]:
    """The parts without the link behind a drive, which is no GPU's, unless it is written as a part, such as pcie4x4."""
    kept: list[str] = []
    for piece in parts:
        found = _LINK_OF_DRIVE.fullmatch(piece)
        if found is None or not kept or not is_part(kept[-1]) or kind_of(kept[-1]) != "storage":
            kept.append(piece)
        elif _NVME.fullmatch(kept[-1]):
            kept[-1] = f"nvme-gen{found[1]}"
    return kept


def _as_sold(parts: list[str], sold: str) -> list[str]:
    """The parts with which a computer is sold, of kinds that nobody named; none if the processor was."""
    named = {kind_of(piece) for piece in parts if is_part(piece)}
    if not sold or named & {"cpu", "chip"}:
        return []
    return [piece for piece in words(sold) if (kind := kind_of(piece)) not in named or not kind]


def _of_a_laptop(parts: list[str]) -> list[str]:
    """The parts of a laptop: its card is not the one of a desktop computer with the same number."""
    others = [piece for piece in parts if not _ALONE.fullmatch(piece)]
    if any(map(_LAPTOP.search, others)):
        return others
    return [f"{piece} laptop" if has_laptop(piece) else piece for piece in others]


def _beside_a_laptop_cpu(parts: list[str], *, desktop: bool) -> list[str]:
    """The parts beside a laptop's CPU: the card is a laptop's too, if there is one with this memory and it is alone.

    desktop: whether something says that it is not in a laptop.
    """
    cards = [piece for piece in parts if has_laptop(piece)]
    if not cards or any(plain(piece) == DESKTOP for piece in parts):
        return parts
    of_laptop = f"{cards[0]} laptop"
    if not desktop and len(cards) == 1 and not _COUNTED.search(cards[0]) and is_part(of_laptop):
        return [of_laptop if piece == cards[0] else piece for piece in parts]
    outside = any(
        is_part(piece) and kind_of(piece) == "link" and not piece.lower().startswith("pcie") for piece in parts
    )
    return parts if outside else [*parts, DESKTOP]


def _without_kind(parts: list[str]) -> list[str]:
    """The parts without `LPDDR5X`, which says nothing beside a chip that has its own memory."""
    bare = [" ".join(_KIND_ALONE.sub("", piece).split()) for piece in parts]
    beside = any(is_part(piece) and kind_of(piece) == "chip" for piece in bare)
    return [piece for piece in bare if piece] if beside else parts


def _slashes(piece: str) -> list[str]:
    """A piece at slashes without spaces, if parts of different kinds are on all sides; `Nobara/Fedora` is one."""
    sides = _PER_SECOND.sub("", piece).split("/")
    if len(sides) > 1 and all(map(is_part, sides)) and any(map(_COUNTED.search, sides)):
        return sides  # 5090x2/3090x2: a list, no choice
    if len(sides) == 1 or not all(map(is_part, sides)) or len(set(map(kind_of, sides))) < len(sides):
        return sides[:1] if all(map(system_in, sides)) and len(set(map(system_in, sides))) == 1 else [piece]
    return sides


def _without_remarks(piece: str) -> list[str]:
    """A piece with what its brackets add: a size or cores beside a name, other parts, or nothing of interest."""
    modules = _MODULES.fullmatch(piece.strip())
    if modules:
        return [f"{modules[1]}x{modules[3]}GB {modules[2]} {modules[1]}-channel"]
    brackets = _BRACKETS.findall(piece)
    if not brackets or is_part(piece):
        return [piece.replace(_COMMA, " ")]
    name = _SEVERAL_BEHIND.sub(r"\2x \1", _BRACKETS.sub(" ", piece).strip())
    remarks = (_REMARK.sub(" ", one) for bracket in brackets for one in bracket.split(_COMMA))
    said = [rest for remark in remarks if (rest := _ENDS.sub("", " ".join(remark.split())))]
    if not said:
        return [name]
    if len(said) == 1 and (counted := _COUNT.fullmatch(said[0])) and not _COUNTED.search(name):
        return [f"{counted[1] or counted[2]}x {name.rstrip('+ ')}"]
    if is_computer(name):
        return said
    piece = piece.replace(_COMMA, ",")
    together = " ".join([name, *said])
    if is_part(together):
        return [together]
    return [name, *said] if is_part(name) and all(map(is_part, said)) else [piece]


def _joined(pieces: list[str]) -> list[str]:
    """The pieces with a number of cores that stands alone beside the chip before it, and without other remarks."""
    joined: list[str] = []
    for piece in pieces:
        if not _REMARK.fullmatch(piece.strip()):
            joined.append(piece)
        elif joined and is_part(both := f"{joined[-1]} {piece.strip().replace(' ', '-')}"):
            joined[-1] = both
    return joined


def _segments(piece: str) -> list[str]:
    """A piece that names no part at the places where parts meet without a mark, if every word belongs to one."""
    tokens = piece.split()
    if not 2 <= len(tokens) <= MOST_TOKENS or not is_unknown(piece):
        return [piece]
    best: list[list[str] | None] = [[]] + [None] * len(tokens)
    for end in range(1, len(tokens) + 1):
        for start in range(end):
            segment, before = " ".join(tokens[start:end]), best[start]
            if before is None or (best[end] is not None and len(best[end] or ()) <= len(before)):
                continue
            if end - start == 1 and _FILLER.fullmatch(segment):
                best[end] = before
            elif is_certain(segment) or _ONLY_CHANNELS.fullmatch(segment):
                best[end] = [*before, segment]
    return best[-1] or [piece]


def _with_channels(pieces: list[str]) -> list[str]:
    """The pieces with channels that stand alone, as `8 channels`, beside the memory that they are of."""
    alone = [piece for piece in pieces if _ONLY_CHANNELS.fullmatch(piece)]
    others = [piece for piece in pieces if piece not in alone]
    memories = [at for at, piece in enumerate(others) if _OF_MEMORY.search(piece) and not _SAYS_CHANNELS.search(piece)]
    if len(alone) != 1 or len(memories) != 1:
        return pieces
    others[memories[0]] += f" {alone[0]}"
    return others
