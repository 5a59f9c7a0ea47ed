"""The folder of a run that `sim bridge run` recorded: `run.json`, and the log beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import Malformed, Unusable
from flashmoe_sim.measured import llama_log
from flashmoe_sim.measured.documents import NamedValues, document
from flashmoe_sim.measured.value import FoundSpeeds
from flashmoe_sim.systems.llama_flags import settings_of_command, system_of

RUN, LOG = "run.json", "log.txt"


def read(run: str, log: str, folder: Path) -> FoundSpeeds:
    """The speeds of the log, with the system that run.json tells."""
    fields = document(run, f"{folder / RUN}")
    if not fields.text("mode"):
        raise Malformed("has no `mode`", where=fields.where, advice="give the folder of a run of `sim bridge run`")
    if fields.text("rc") != "0":
        raise Unusable(f"has exit status {fields.text('rc')}", where=fields.where, advice="give a run that finished")
    if not llama_log.detect(log):
        raise Unusable("has no timings", where=f"{folder / LOG}", advice="give a run that finished")
    found = llama_log.read(log, f"{folder / LOG}")
    placed = [replace(one, **_system(fields, prompt=one.prompt)) for one in found.measured]
    return FoundSpeeds(placed, found.left_out)


def _system(fields: NamedValues, *, prompt: bool) -> dict[str, Any]:
    record, mode = fields.values, fields.text("mode")
    threads = fields.text("threads")
    settings = {"mode": mode} | ({"threads": threads} if threads else {})
    extra = record.get("extra")
    words = " ".join(word for word in extra if isinstance(word, str)) if isinstance(extra, list) else ""
    if (fields.count("topk") or 0) or record.get("environment") or record.get("flags") or "moe" in words:
        return {"unplaced": "changes the model or the runtime, as run.json says", "system": "", "settings": settings}
    if mode == "slot-bank":
        bank, ubatch = fields.count("bank"), fields.count("ubatch") or 1
        system = "slot-bank" + (f":slots={bank}" if bank else "") + (f":ubatch={ubatch}" if ubatch > 1 else "")
        return {"system": system, "unplaced": "", "settings": settings}
    if mode != "stock":
        return {"unplaced": f"ran in the mode {mode}, which no system has", "system": "", "settings": settings}
    runtime = record.get("runtime")
    if isinstance(runtime, dict) and runtime.get("backends") == ["CPU"]:
        settings["backend"] = "CPU"
    settings |= settings_of_command(words)
    system, unplaced = system_of(settings, engine="llama.cpp", prompt=prompt)
    return {"system": system, "unplaced": unplaced, "settings": settings}
