"""Recorded answers of computers, written out from short lines into the forms of the programs that are read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashmoe_sim.machines.here.texts import Told, parse_seen

MACHINES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("recorded.toml").read_text("utf-8"))["machine"]
KINDS = {"DDR3": 0x18, "DDR4": 0x1A, "DDR5": 0x22, "LPDDR5": 0x23}


def seen_of(recorded: str) -> dict[str, Told]:
    """What was seen, with every line `cpus:` and `modules:` written out."""
    found = dict(parse_seen(recorded.strip()))
    writers = {"/proc/cpuinfo": cpuinfo, "dmidecode": dmidecode, "/run/udev/data/+dmi:id": udev, "smbios": smbios}
    for name, write in writers.items():
        if name in found and re.match("cpus:|modules:|sockets:", found[name].text):
            found[name] = replace(found[name], text=write(found[name].text))
    return found


def rows(text: str) -> Iterator[list[str]]:
    """The fields of each line, with as many lines as the first field says, counted from 0 and from A."""
    for line in text.splitlines():
        if line.startswith("modules:"):
            number, *fields = [word.strip() for word in line.removeprefix("modules:").split("|")]
            for at in range(int(number)):
                yield [word.replace("{n}", str(at)).replace("{L}", chr(ord("A") + at)) for word in fields]


def cpuinfo(text: str) -> str:
    name, sockets, cores, threads, flags = (word.strip() for word in text.removeprefix("cpus:").split("|"))
    each = [(s, c) for _ in range(int(threads)) for s in range(int(sockets)) for c in range(int(cores))]
    return "\n\n".join(
        f"processor\t: {at}\nmodel name\t: {name}\nphysical id\t: {socket}\ncore id\t\t: {core}\nflags\t\t: fpu {flags}"
        for at, (socket, core) in enumerate(each)
    )


def dmidecode(text: str) -> str:
    lines = ["# dmidecode 3.3", "Getting SMBIOS data from sysfs.", ""]
    lines += ["Handle 0x000A, DMI type 16, 23 bytes", "Physical Memory Array", "\tUse: System Memory", ""]
    for at, (size, kind, runs, rated, bits, place, bank) in enumerate(rows(text)):
        lines += [f"Handle 0x{at:04X}, DMI type 17, 92 bytes", "Memory Device", f"\tData Width: {bits}"]
        lines += [f"\tSize: {size}", f"\tLocator: {place}", f"\tBank Locator: {bank}", f"\tType: {kind}"]
        lines += [f"\tSpeed: {rated}", f"\tConfigured Memory Speed: {runs}", "\tPart Number: Not Specified", ""]
    return "\n".join(lines)


def udev(text: str) -> str:
    lines = ["I:2814893", "E:MEMORY_ARRAY_LOCATION=System Board Or Motherboard"]
    for at, (size, kind, runs, rated, bits, place, bank) in enumerate(rows(text)):
        says = {"SIZE": int(size.split()[0]) * 2**30, "TYPE": kind, "LOCATOR": place, "BANK_LOCATOR": bank}
        says |= {"SPEED_MTS": rated.split()[0], "CONFIGURED_SPEED_MTS": runs.split()[0], "DATA_WIDTH": bits.split()[0]}
        lines += [f"E:MEMORY_DEVICE_{at}_{key}={value}" for key, value in says.items()]
    return "\n".join([*lines, "E:MEMORY_DEVICE_9_PRESENT=0", "E:MEMORY_DEVICE_9_LOCATOR=DIMM 9"])


def smbios(text: str) -> str:
    """Structures of other types, the modules with their names behind them, and the end."""
    table = bytes((0, 4, 0, 0)) + b"a maker\0\0" + bytes((1, 6, 1, 0, 1, 2)) + b"\0\0"
    for number, cores in re.findall(r"^sockets: (\d) \| (\d+)$", text, re.MULTILINE):
        one = bytearray(0x30)
        one[0], one[1], one[0x18] = 4, len(one), 0x41
        one[0x23], one[0x2A:0x2C] = min(int(cores), 255), int(cores).to_bytes(2, "little")
        empty = bytearray(one)
        empty[0x18] = 0
        table += (bytes(one) + b"\0\0") * int(number) + bytes(empty) + b"a socket\0\0"
    for size, kind, runs, rated, bits, place, bank in rows(text):
        one = bytearray(0x28)
        one[0], one[1] = 17, len(one)
        one[0x0A:0x0C] = int(bits.split()[0]).to_bytes(2, "little")
        mib = int(size.split()[0]) * 1024
        one[0x0C:0x0E] = min(mib, 0x7FFF).to_bytes(2, "little")  # from 32 GiB on it is in the extended size
        one[0x1C:0x20] = mib.to_bytes(4, "little")
        one[0x10], one[0x11], one[0x12] = 1, 2, KINDS[kind]
        one[0x15:0x17] = int(rated.split()[0]).to_bytes(2, "little")
        one[0x20:0x22] = int(runs.split()[0]).to_bytes(2, "little")
        table += bytes(one) + place.encode() + b"\0" + bank.encode() + b"\0\0"
    return (table + bytes((127, 4, 0, 0, 0, 0))).hex()
