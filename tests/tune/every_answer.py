"""Answers that can be followed: what holds of every answer, and every named model on every preset asked for one.

`python -m tests.tune.every_answer` takes half an hour; names of models after it ask only for those.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.named import model_names
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.systems.files import placeholders
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.verbs.recommend import Recommend
from tests.systems.cases import workload
from tests.tune.test_one_answer import check

TOKENS = 64  # the least of which an answer is given


def can_be_followed(best: Compared, case: Case) -> None:
    """Its engine serves the model and fits the machine, can be had, and is started with words that are explained."""
    system, launch = best.system, best.launch
    assert system.facts is not None
    assert launch is not None
    assert system.why_not(case) == ""
    system.check(case)
    get = system.how_to_get(case.machine)
    assert get is not None
    assert get.commands or (system.facts.get is not None and system.facts.get.downloads)
    words = (*launch.words, *launch.first_start)
    assert {word for word in words if word.isupper() and len(word) > 3} <= placeholders(launch).keys()
    assert ("gguf" in system.facts.formats.reads) == any(".gguf" in word for word in words)


def answer(trace: RoutingTrace, model: str, machine: str) -> str:
    """The setting that an answer names, or the line in its place."""
    try:
        found = Recommend(trace=trace, model=model, machine=machine).run()
    except BadInput as error:
        said = str(error)
    else:
        can_be_followed(found.best.best, found.case)
        check(found)
        said = found.best.best.system.spec
    assert said
    assert "\n" not in said
    return said


def every_answer(models: list[str]) -> Iterator[tuple[str, str, str, float]]:
    """Model, machine, answer and the seconds that it took, for every preset."""
    for model in models:
        trace = workload(load_model(model), tokens=TOKENS).trace
        for machine in PRESETS:
            start = time.perf_counter()
            yield model, machine, answer(trace, model, machine), time.perf_counter() - start


def models() -> list[str]:
    """Every named model once, under the first of its names."""
    return list({load_model(name).name: name for name in reversed(list(model_names()))}.values())


if __name__ == "__main__":
    for model, machine, said, took_s in every_answer(sys.argv[1:] or models()):
        print(f"{took_s:5.1f} s  {model} on {machine}: {said}", flush=True)
