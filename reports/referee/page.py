"""The page of the referee: every estimator on the same published speeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flashmoe_sim.field.estimators import DEEPEST
from flashmoe_sim.field.rows import WAYS
from flashmoe_sim.field.scores import COLUMNS, MEANING, AnswerBeside, answered_by_all, cells, of_way, score
from reports.pages import joined, table, wrapped
from reports.referee import memory
from reports.referee.estimators import estimators
from reports.referee.questions import questions, seal

UNSEEN = "flashmoe-sim, before it saw the row"
HINDSIGHT = ("flashmoe-sim, without who measured it", "flashmoe-sim, without its machine", "flashmoe-sim on paper")
FEW = ("moe-fit 0.1.0", "llm-checker 3.8.1")  # answer few questions
PAGE = Path(__file__).with_name("README.md")
HEAD = """# Who estimates speeds best?

Programs that say how fast a model will run are rarely checked on the same machines. Here each answers {asked} published
speeds of {people} people: one GPU or none, no drafts, at most {deepest:,} tokens in the context. Each is told what the
row tells (model, bits, sizes, GPU, bandwidths, RAM, drive, where the experts were) as far as it can be told, and no
more. The questions are sealed as `{seal}`. `python -m reports.referee questions` writes them, `python -m
reports.referee ask` asks other people's programs again, each in an environment of its own, `python -m reports.referee`
writes this page from their kept answers. `sim referee FILE.csv` asks those that are installed about rows of your own.
"""
SEALED = """The only rows on which flashmoe-sim is as blind as the others, or blinder: each was typed, answered by the
commit that [first.csv](../field/first.csv) names, and only then used. They are odd engines and machines more often than
the rest.
"""
FAIR = """## What is fair, and what is not

- flashmoe-sim's constants were set while many of these rows were in view; what each row taught is left out with its
source or machine. *On paper* leaves out what published speeds say of an engine, but not those constants.
- llmfit is asked by `llmfit plan`, which takes the placement and looks nothing up; it cannot be told how many layers
are on the CPU, the link, the drive, or how large a cache is. Quantizations that it does not know are told as the
nearest in bits. Some of its constants are of published runs.
- modelscout chooses the placement itself, and is asked only where it chooses the row's; it prints 0.5 to 180.
- moe-fit speaks only of reads from a drive, and wants the drive's rate at small random reads, which few rows tell. Of
its range the geometric mean counts; where the range is open above, that is a refusal.
- bytes over bandwidth is the calculation of most calculators: a token's bytes over the bandwidth of the data sheet, the
GPU's memory filled first, then RAM, then the drive. It knows no cache.
- llm-checker (of npm; that of PyPI has no speed) is asked by the selector behind its `recommend`, with the row's model
as the only candidate. It knows a model whole on the GPU, or in RAM without one; what does not fit, or would be taken in
another quantization, is a refusal. It cannot be told a bandwidth.
"""


def outcomes() -> dict[str, list[AnswerBeside]]:
    """What every estimator answered, by its name."""
    asked = questions()
    return {name: [AnswerBeside(one, estimator(one)) for one in asked] for name, estimator in estimators().items()}


def markdown() -> str:
    """The page."""
    found = outcomes()
    asked = next(iter(found.values()))
    everywhere = answered_by_all({name: each for name, each in found.items() if name not in (*FEW, UNSEEN)})
    unseen = {one.question["id"] for one in found[UNSEEN] if one.estimate.value}
    of_unseen = {
        name: [one for one in each if one.question["id"] in unseen]
        for name, each in found.items()
        if name not in HINDSIGHT
    }
    together = answered_by_all({name: each for name, each in of_unseen.items() if name not in FEW})
    parts = [
        HEAD.format(
            asked=len(asked), people=len({one.question["source"] for one in asked}), deepest=DEEPEST, seal=seal()
        ),
        "## All of them",
        table(COLUMNS, _rows(found), left=(0,)),
        MEANING,
        f"## On the {len(unseen)} that flashmoe-sim answered before it saw them",
        SEALED,
        table(COLUMNS, _rows(of_unseen), left=(0,)),
        f"Of these, on the {len(together[UNSEEN])} that the others answer too, without {' and '.join(FEW)}:",
        table(COLUMNS, _rows(together), left=(0,)),
        f"## On the {len(next(iter(everywhere.values())))} that all of these answer",
        table(COLUMNS, _rows(everywhere), left=(0,)),
        "## By the way the model is run",
    ]
    for way in WAYS:
        parts += [
            f"### {way[:1].upper()}{way[1:]}",
            table(COLUMNS, _rows({name: of_way(each, way) for name, each in found.items()}), left=(0,)),
        ]
    return wrapped(joined(*parts, memory.section(), FAIR))


def _rows(found: dict[str, list[AnswerBeside]]) -> Iterator[tuple[str, ...]]:
    for name, each in found.items():
        yield (name, *cells(score(each)))


def write() -> None:
    PAGE.write_text(markdown(), encoding="utf-8")
