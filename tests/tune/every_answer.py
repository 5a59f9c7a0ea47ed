"""Answers that can be followed: what holds of every answer, and every named model on every preset asked for one.

`python -m tests.tune.every_answer` takes half an hour; names of machines after it ask only for those.
"""

from __future__ import annotations

import sys
import time
from functools import cache
from itertools import product

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.named import model_names
from flashmoe_sim.geometry.recordings import find_shape
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.systems.files import placeholders
from flashmoe_sim.trace.synth import synthesize
from flashmoe_sim.verbs.recommend import Recommend
from tests.tune.test_one_answer import check

TOKENS = 64  # the least of which an answer is given


def can_be_followed(best: Compared, case: Case) -> None:
    """Its engine serves the model and fits the machine, can be had, and is started with words that are explained."""
    system, launch = best.system, best.launch
    assert system.why_not(case) == ""
    assert system.changes_text(case) == ""
    assert system.why_not_slots(getattr(system, "slots", None), case) == ""
    system.check(case)
    get = system.get_row(case.machine)
    assert get["building"] or get["prebuilt"]
    words = (*launch.words, *launch.first_start)
    assert {word for word in words if word.isupper() and len(word) > 3} <= placeholders(launch).keys()
    assert ("gguf" in system.facts.formats.reads) == any(".gguf" in word for word in words)


@cache
def by_chance(model: str) -> Workload:
    """A trace whose experts are all as likely, which takes no time to make."""
    of = load_model(model)
    return prepare(synthesize(null="uniform", shape=find_shape(of), tokens=TOKENS)[0], of)


def answer(model: str, machine: str) -> str:
    """The setting that an answer names, or the line in its place."""
    try:
        found = Recommend(trace=by_chance(model).trace, model=model, machine=machine).advise()
    except BadInput as error:
        line = str(error)
    else:
        can_be_followed(found.best.best, found.case)
        check(found)
        line = found.best.best.system.spec
    assert line
    assert "\n" not in line
    return line


def models() -> list[str]:
    """Every named model once, under the first of its names."""
    return list({load_model(name).name: name for name in reversed(list(model_names()))}.values())


if __name__ == "__main__":
    for machine, model in product(sys.argv[1:] or PRESETS, models()):
        start = time.perf_counter()
        line = answer(model, machine)
        print(f"{time.perf_counter() - start:5.1f} s  {model} on {machine}: {line}", flush=True)
