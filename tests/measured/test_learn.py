"""What measured speeds teach about a machine, and which are not used."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, TooLarge, UnknownName, Unsupported
from flashmoe_sim.machines.belief import at, error_loads
from flashmoe_sim.machines.learning import Learner, Observation
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import SIZES, Machine
from flashmoe_sim.machines.write import write_machine
from flashmoe_sim.measured.learn import MOST, learn_from
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import Compared, at_setting, case_of, speed_of
from flashmoe_sim.systems.table import parse_system
from flashmoe_sim.trace.load import load_trace
from native_bridge.cli.main import main as bridge
from tests.measured.bench import WRITTEN, row
from tests.support import printed_by, refusal, refused

FILES = Path(__file__).parents[2] / "data" / "measured"
PARTS = "rtx-3060 + ryzen-5600 + 64GiB"
OWNER = "rtx-4070 + i5-12600k + ddr5-5600x2 + 64GiB"
PLACED = "placed:cpu_layers=32"


@cache
def workload() -> Workload:
    return prepare(load_trace("gpt-oss-120b"), named_model("gpt-oss-120b"))


@cache
def machine(parts: str = PARTS) -> Machine:
    return load_machine(parts)


def case(on: Machine) -> Case:
    geometry = workload().geometry
    assert geometry is not None
    return replace(case_of(geometry, on, workload=workload()), context=512)


def predicted(on: Machine, setting: str = PLACED) -> Compared:
    return at_setting(workload(), case(on), parse_system(setting))


def tok_s(on: Machine, setting: str = PLACED) -> float:
    found = predicted(on, setting).tok_s
    assert found is not None
    return found


def width(on: Machine, setting: str = PLACED) -> float:
    found = predicted(on, setting)
    assert found.tok_s_lo
    assert found.tok_s_hi
    return found.tok_s_hi / found.tok_s_lo


def learnt(*measured: str | Path, parts: str = PARTS) -> Machine:
    return learn_from(measured, machine(parts), workload=workload())


def notes_of(on: Machine) -> tuple[str, ...]:
    return on.learnt.notes


def test_a_measurement_as_predicted_changes_no_speed_and_narrows_all() -> None:
    before = machine()
    now = learnt(f"{PLACED}={tok_s(before)!r}")
    for setting in (PLACED, "cpu", "placed-ik:cpu_layers=32"):
        assert tok_s(now, setting) == pytest.approx(tok_s(before, setting), rel=1e-6)
        assert width(now, setting) < width(before, setting)
    assert width(now) < 1.5
    assert width(before) > 4


def test_more_measurements_narrow_more() -> None:
    speeds = {setting: 1.2 * tok_s(machine(), setting) for setting in (PLACED, "placed:cpu_layers=35", "cpu")}
    texts = [f"{setting}={speed}" for setting, speed in speeds.items()]
    widths = [width(learnt(*texts[:count]), "placed-ik:cpu_layers=34") for count in range(1, 4)]
    assert widths == sorted(widths, reverse=True)


def test_a_faster_measurement_makes_other_settings_faster() -> None:
    now = learnt(f"{PLACED}={1.3 * tok_s(machine())}")
    assert tok_s(now) == pytest.approx(1.3 * tok_s(machine()), rel=0.05)
    for setting in ("cpu", "placed-ik:cpu_layers=34"):
        assert tok_s(machine(), setting) < tok_s(now, setting) < 1.4 * tok_s(machine(), setting)


@pytest.mark.parametrize("times", [0.25, 4.0])
def test_a_wrong_measurement_is_not_used(times: float) -> None:
    before = machine(OWNER)
    now = learnt(f"{PLACED}={times * tok_s(before)}", parts=OWNER)
    assert replace(now, learnt=None) == before
    assert notes_of(now)[0].startswith(f"not used: {PLACED}")
    assert predicted(now).tok_s_lo == predicted(before).tok_s_lo


def test_two_that_contradict_each_other() -> None:
    near, far = 0.95 * tok_s(machine()), 0.5 * tok_s(machine())
    now = learnt(f"{PLACED}={near}", f"{PLACED}={far}")
    assert [text.partition(" ")[0] for text in notes_of(now)] == ["learnt", "not"]
    assert "after the other measurements" in notes_of(now)[1]
    assert tok_s(now) == pytest.approx(near, rel=0.05)


def test_copies_count_once(tmp_path: Path) -> None:
    copy = tmp_path / "copy.log"
    copy.write_bytes((FILES / "gpt-oss-120b-rtx-4070-slow-ram.log").read_bytes())
    once = learnt(FILES / "gpt-oss-120b-rtx-4070-slow-ram.log", parts=OWNER)
    twice = learnt(FILES / "gpt-oss-120b-rtx-4070-slow-ram.log", copy, parts=OWNER)
    assert tok_s(once) == tok_s(twice)
    assert width(once) == width(twice)


def test_the_real_cause_is_named_first() -> None:
    """Its owner found after five months that the RAM ran at 2,000 instead of 5,867 MT/s."""
    now = learnt(FILES / "gpt-oss-120b-rtx-4070-slow-ram.log", parts=OWNER)
    assert any("slow for these parts: perhaps the RAM runs in one channel" in text for text in notes_of(now))
    with_both = learnt(*sorted(FILES.glob("gpt-oss-120b-rtx-4070*")), parts=OWNER)
    refused = next(text for text in notes_of(with_both) if "10.9 tok/s" in text)
    assert refused.startswith("not used: ")
    assert "Most likely the RAM runs in one channel" in refused


def test_a_file_keeps_what_was_learnt(tmp_path: Path) -> None:
    now = learnt(f"{PLACED}={1.2 * tok_s(machine())}", "cpu=8")
    write_machine(now, tmp_path / "mine.toml")
    again = load_machine(tmp_path / "mine.toml")
    assert dict(again.quantities()) == dict(now.quantities())
    assert notes_of(again) == notes_of(now)
    for setting in (PLACED, "cpu"):
        assert predicted(again, setting).tok_s == predicted(now, setting).tok_s
        assert predicted(again, setting).tok_s_lo == pytest.approx(predicted(now, setting).tok_s_lo)


def test_learning_again_goes_on_from_what_is_known() -> None:
    first, second = f"{PLACED}={1.2 * tok_s(machine())}", "cpu=8"
    together = learnt(first, second)
    one_by_one = learn_from(second, learn_from(first, machine(), workload=workload()), workload=workload())
    assert tok_s(one_by_one, "placed:cpu_layers=35") == pytest.approx(tok_s(together, "placed:cpu_layers=35"), rel=0.02)
    assert len(notes_of(one_by_one)) == len(notes_of(together)) == 2


def test_the_posterior_is_that_of_weighted_draws() -> None:
    """Beside 2,000 draws of machine and errors, each weighted by the likelihood of the measurement."""
    on, random = machine(), np.random.default_rng(3)
    settings = [parse_system(text) for text in (PLACED, "cpu")]
    seen = [_observation(case(on), one) for one in settings]
    measured = 1.25 * seen[0].speed_on(on)
    vary = {path: q for path, q in on.quantities() if path not in SIZES and q.lo != q.hi}
    logs, draws = [], 2_000
    moves = {path: random.standard_normal(draws) for path in vary}
    errors = {name: random.standard_normal(draws) for one in seen for name in one.loads}
    for draw in range(draws):
        drawn = on
        for path, quantity in vary.items():
            drawn = drawn.varied(path, at(quantity, moves[path][draw]))
        logs.append([math.log(one.speed_on(drawn)) for one in seen])
    speeds = np.array(logs).T
    speeds += np.array([sum(load * errors[name] for name, load in one.loads.items()) for one in seen])
    weights = np.exp(-0.5 * ((math.log(measured) - speeds[0]) / seen[0].sd) ** 2)
    mean = float(np.average(speeds[1], weights=weights))
    sd = math.sqrt(np.average((speeds[1] - mean) ** 2, weights=weights))
    now = predicted(Learner(on).after([replace(seen[0], tok_s=measured)]), "cpu")
    assert now.draws is not None
    assert float(np.log(now.draws).mean()) == pytest.approx(mean, abs=0.35 * sd)
    assert float(np.log(now.draws).std()) == pytest.approx(sd, rel=0.2)


def _observation(of: Case, system: Any) -> Observation:
    whose = system.whose(of.model.base_name)
    return Observation(1.0, speed_of(workload(), of, system), error_loads(of.machine, whose), 0.05)


@pytest.mark.parametrize(
    ("measured", "parts", "words", "kind"),
    [
        ("cpu=7 model=nothing-known", PARTS, "unknown model 'nothing-known'", UnknownName),
        ("all-gpu=100", PARTS, "all-gpu cannot have run on", TooLarge),
        ("placed:cpu_layers=20=18.3", PARTS, "would fit; check the setting and the parts", TooLarge),
        ("flash-moe=9", "m3-max-48", "flash-moe", Unsupported),
        (str(FILES / "gpt-oss-20b-m5-max.log"), PARTS, "does not say where the model was", Incomplete),
    ],
)
def test_what_cannot_be_is_one_line(measured: str, parts: str, words: str, kind: type[BadInput]) -> None:
    with refused(kind, words):
        learn_from(measured, load_machine(parts), workload=workload())


def test_a_model_of_unknown_attention_is_measured_at_an_empty_context() -> None:
    """Its context counts as no memory, as in an answer without a measurement; a few tokens in it as none."""
    on, model = load_machine("m1-max + 64GiB"), replace(named_model("gpt-oss-20b"), attention=None)
    found = [learn_from(f"cpu=60{depth}", on, model=model) for depth in ("", " depth=26")]
    for one in found:
        assert one.learnt is not None
        assert one.learnt.notes[0].startswith("learnt from cpu, 60.0 tok/s")
    with refused(Incomplete, "what attention of gpt-oss-20b:mxfp4 reads is not known"):
        learn_from("cpu=60 depth=4096", on, model=model)


def test_another_quantization_is_refused(tmp_path: Path) -> None:
    rows = json.loads((FILES / "gpt-oss-120b-rtx-4070.json").read_text())
    for one in rows:
        one["model_size"] = one.get("model_size", 0) // 3 or 20 * 2**30
    (tmp_path / "bench.json").write_text(json.dumps(rows))
    with pytest.raises(Conflict, match=r"a file of .* of gpt-oss-120b"):
        learnt(tmp_path / "bench.json", parts=OWNER)


def test_a_file_of_another_gpu_is_asked_about(tmp_path: Path) -> None:
    """Once; nothing is said of the machine's own."""
    rows = json.loads((FILES / "gpt-oss-120b-rtx-4070.json").read_text())
    (tmp_path / "bench.json").write_text(json.dumps([row | {"gpu_info": "NVIDIA GeForce RTX 3090"} for row in rows]))
    asked = [note for note in learnt(tmp_path / "bench.json", parts=OWNER).notes if "leave it out if" in note]
    assert len(asked) == 1
    assert "bench.json: ran on 'NVIDIA GeForce RTX 3090', and this is NVIDIA GeForce RTX 4070" in asked[0]
    assert not any(
        "leave it out if" in note for note in learnt(FILES / "gpt-oss-120b-rtx-4070.json", parts=OWNER).notes
    )


def test_a_measurement_of_another_model_is_learnt_from_by_its_name() -> None:
    on, asked = load_machine(PARTS), named_model("gpt-oss-120b")
    notes = learn_from(["cpu=11 model=gpt-oss-20b", "cpu=7 model=gpt-oss-120b"], on, model=asked).learnt.notes
    assert any("from cpu with gpt-oss-20b:mxfp4, 11.0 tok/s" in note for note in notes)
    assert any("from cpu, 7.00 tok/s" in note for note in notes)


RTX_3090 = "rtx-3090 + ryzen-5950x + 64GiB"
PASTED = Path(__file__).parent / "pasted"


def notes_on(*measured: str | Path, model: str = "gpt-oss-20b", parts: str = RTX_3090) -> list[str]:
    """Without folders, such as `learnt from a.md: line 3: all-gpu, 180 tok/s; ...`."""
    learnt = learn_from(measured, load_machine(parts), model=named_model(model)).learnt
    assert learnt is not None
    return [note.replace(f"{PASTED}/", "") for note in learnt.notes]


@pytest.mark.parametrize(
    ("file", "model", "expected"),
    [
        ("dense-distill.txt", "gpt-oss-20b", ["not used: dense-distill.txt: line 4: unknown model 'deepseek-r1:8b'"]),
        ("described-model.md", "qwen3-30b-a3b", ["learnt from described-model.md: line 3: all-gpu, 150 tok/s"]),
        (
            "fewer-experts.log",
            "qwen3-30b-a3b",
            ["not used: fewer-experts.log: line 9: computes 4 experts for each token, and qwen3-30b-a3b:q4_k_m has 8"],
        ),
        ("perplexity.log", "qwen3-30b-a3b", ["not used: perplexity.log: line 7: is of perplexity, 200 chunks of 512"]),
        (
            "several-models.md",
            "gpt-oss-20b",
            [
                "not used: several-models.md: line 3: unknown model 'llama 8B Q4_K - Medium'",
                "learnt from several-models.md: line 4: all-gpu, 180 tok/s",
            ],
        ),
    ],
)
def test_what_only_some_speeds_lack_is_a_note(file: str, model: str, expected: list[str]) -> None:
    notes = notes_on(PASTED / file, model=model)
    assert [note[: len(start)] for note, start in zip(notes, expected, strict=True)] == expected


def bench(folder: Path, *changed: dict[str, Any]) -> Path:
    """Tests of gpt-oss-20b on an RTX 3090."""
    common = {"model_filename": "gpt-oss-20b-mxfp4.gguf", "model_size": 12101000000, "gpu_info": "", "avg_ts": 170.0}
    text = WRITTEN["jsonl"]([row(n_cpu_moe=0, **{**common, **one}) for one in changed])
    (folder / "bench.jsonl").write_text(text)
    return folder / "bench.jsonl"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"type_k": "q8_0", "n_depth": 8192}, "has keys of q8_0 and values of f16"),
        ({"flash_attn": 0, "n_depth": 8192}, "has no flash attention at this depth"),
        ({"n_prompt": 512, "n_gen": 0, "n_ubatch": 64, "avg_ts": 900.0}, "reads its prompt 64 tokens at a time"),
        ({"backends": "CUDA,RPC"}, "ran on several machines (RPC)"),
        ({"model_filename": "gpt-oss-20b.gguf", "model_size": 2 * 2**30}, "a file of 2.00 GiB of gpt-oss-20b"),
    ],
)
def test_other_work_than_is_predicted(changed: dict[str, Any], reason: str, tmp_path: Path) -> None:
    refused, learnt = notes_on(bench(tmp_path, changed, {}))
    assert refused.startswith(f"not used: {tmp_path / 'bench.jsonl'}: line 1: {reason}")
    assert learnt.startswith("learnt from")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '{"model": "gpt-oss-20b", "timings": {"predicted_n": 99, "predicted_per_second": 80, "draft_n": 9}}',
            "was measured with drafts",
        ),
        (
            '{"hardware": {"unifiedMemory": true}, "results": [{"model": "gpt-oss-20b-mlx", "avgTps": 80, '
            '"provider": "ollama", "avgOutputTokens": 99}]}',
            "ran Ollama's MLX, which is no system",
        ),
    ],
)
def test_no_machine_makes_a_system_of_what_is_none(text: str, reason: str, tmp_path: Path) -> None:
    """One memory leaves one place for experts, but another engine or drafts stay what they are."""
    (tmp_path / "r.json").write_text(text)
    (note,) = notes_on(tmp_path / "r.json", parts="m5-max-48")
    assert note.startswith("not used: ")
    assert reason in note


def test_rows_split_otherwise_than_by_layer(tmp_path: Path) -> None:
    file = bench(tmp_path, {"split_mode": "row"}, {})
    assert not any("splits the model" in note for note in notes_on(file))
    assert "splits the model by row between GPUs" in notes_on(file, parts="2x rtx-3090 + ryzen-5950x + 64GiB")[0]


def test_many_speeds_are_looked_at_in_a_few(tmp_path: Path) -> None:
    """Of both kinds and at both ends of the depths; the rest would take minutes."""
    decode = [{"n_depth": 256 * number, "avg_ts": 170.0 - number} for number in range(50)]
    prompts = [{"n_prompt": 512, "n_gen": 0, "n_depth": 256 * number, "avg_ts": 3000.0} for number in range(10)]
    said, *notes = notes_on(bench(tmp_path, *decode, *prompts))
    assert said == f"{MOST} of 60 speeds are used, spread over settings and depths; more teach little"
    assert len(notes) == MOST
    assert sum("prompt at" in note for note in notes) == MOST / 2
    assert any("at a depth of 12,544" in note for note in notes)


def test_a_missing_place_is_asked_for_the_answer_s_speed(tmp_path: Path) -> None:
    """A prompt stands first in a log, and few ask about it."""
    log = "".join((PASTED / "windows-path.log").read_text().splitlines(keepends=True)[-2:])
    (tmp_path / "three.log").write_text(log)
    with refused(
        Incomplete, 'line 2: does not say how many layers were on the GPU; give it by hand: --measured "all-gpu=180'
    ):
        notes_on(tmp_path / "three.log")


def test_a_first_look_leaves_out_only_what_does_nothing() -> None:
    """A rough answer has the same numbers as one in which each number of the machine is moved in each round."""
    on, of = machine(), case(machine())
    seen = [_observation(of, parse_system(text)) for text in (PLACED, "cpu")]
    seen = [replace(one, tok_s=1.2 * one.speed_on(on)) for one in seen]
    learner = Learner(on)
    rough, exact = learner.after(seen, roughly=True), learner.after(seen)
    for (path, one), (_, other) in zip(rough.quantities(), exact.quantities(), strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-9), path


@pytest.mark.parametrize(
    "words",
    [
        ["recommend", "gpt-oss-120b", "--system", "placed"],
        ["sweep", "gpt-oss-120b", "--bank", "64"],
        ["ceilings", "gpt-oss-120b", "--bank", "16"],
        ["predict", "--hit-rate", "0.5", "--model", "gpt-oss-120b"],
    ],
)
def test_every_verb_with_seconds_takes_a_measurement(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--machine", PARTS, "--measured", f"{PLACED}=15", "--json"]) == 0
    printed = capsys.readouterr()
    assert "learnt from placed:cpu_layers=32, 15.0 tok/s" in printed.out + printed.err


def test_answers_say_what_was_learnt_and_what_was_not_used(capsys: pytest.CaptureFixture[str]) -> None:
    files = [word for file in sorted(FILES.glob("gpt-oss-120b-rtx-4070*")) for word in ("--measured", str(file))]
    asked = ("recommend", "--why", "gpt-oss-120b", "--system", "placed", "--machine", OWNER)
    printed = " ".join(printed_by(capsys, *asked, *files, quiet=False).split()).lower()
    assert "learnt from" in printed
    assert "not used: " in printed
    assert "most likely the ram runs in one channel" in printed


@pytest.mark.parametrize("verb", ["sweep prose-256 --bank 64", "recommend prose-256"])
def test_speeds_are_of_one_machine(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, *verb.split(), "--machine", "rtx-3090,rtx-4090", "--measured", "cpu=9")
    assert "--measured: speeds are of one machine" in line


def test_fit_writes_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.toml"
    fit = ["machine", "fit", f"{PLACED}=15", "--machine", PARTS, "--model", "gpt-oss-120b", "--out", str(out)]
    assert bridge(fit) == 0
    assert "cpu.weights_gb_s" in capsys.readouterr().out
    assert bridge(["machine", "show", str(out)]) == 0
    assert "learnt from placed:cpu_layers=32" in capsys.readouterr().out
    assert bridge([*fit, "--force", "--row", "bank=16"]) == 2


def test_fit_writes_no_file_if_nothing_was_learnt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.toml"
    fit = ["machine", "fit", str(PASTED / "perplexity.log"), "--machine", RTX_3090, "--model", "qwen3-30b-a3b"]
    assert bridge([*fit, "--out", str(out)]) == 2
    assert "no speed taught anything: not used: " in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("names = [", "names = [3,"), "expected a list of texts"),
        (("mean = [", "mean = [0.5, "), "with a number in mean for each"),
        (("covariance = [", "covariances = ["), "expected a table with notes, names, mean, covariance"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    write_machine(learnt(f"{PLACED}=15"), tmp_path / "mine.toml")
    text = (tmp_path / "mine.toml").read_text()
    assert change[0] in text
    (tmp_path / "mine.toml").write_text(text.replace(*change))
    with refused(Malformed, words):
        load_machine(tmp_path / "mine.toml")
