"""`sim recommend`: the page, JSON, saved files, several machines, and errors."""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest

from flashmoe_sim import api
from flashmoe_sim.cli.main import main
from flashmoe_sim.io.provenance import today
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.facts import facts_of
from flashmoe_sim.tune import runs_here
from tests.support import document, printed_by, refusal

pytestmark = pytest.mark.usefixtures("answered_once")

ASKED = ["recommend", "deepseek-v2-lite", "--machine", "rtx-3060", "--system", "static-profile,placed,slot-bank"]
PARTS = "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + nvme-gen4"


def test_the_page_names_what_to_run_its_size_and_its_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--why"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert max(len(line) for line in printed.out.splitlines() if not line.startswith("    ")) <= 80
    for title in ("How large", "What holds it back", "Other systems", "Is the trace enough?", "What this rests on"):
        assert f"\n{title}" in printed.out
    assert "\n\n\n" not in printed.out
    assert "take this" in printed.out
    assert "atomic: a call is served as a whole, and what exceeds the bank" in " ".join(printed.out.split())
    assert "\x1b" not in printed.out


def test_facts_older_than_three_months_are_said_to_be_old(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the text, on a page and in JSON, in the same sentence; not on the last day of three months."""
    asked = ["recommend", "deepseek-v2-lite", "--machine", "rtx-3060", "--system", "static-profile"]
    looked_up = date.fromisoformat(facts_of("static-profile").looked_up)
    sentence = (
        f"What is known of thecodacus/llama.cpp (https://github.com/thecodacus/llama.cpp) is of {looked_up}, more than "
        "three months ago; it may have changed since."
    )
    for days, said in ((92, False), (93, True)):
        monkeypatch.setenv("FLASHMOE_TODAY", str(looked_up + timedelta(days)))
        assert (sentence in " ".join(printed_by(capsys, *asked).split())) == said
        page = tmp_path / f"{days}.md"
        assert main([*asked, "--save", str(page)]) == 0
        assert ("more than three months ago" in " ".join(page.read_text().split())) == said
        capsys.readouterr()
        answer = document(capsys, *asked)
        assert answer["old_facts"] == (sentence if said else None)
        assert answer["get"]["looked_up"] == str(looked_up)


def test_what_the_machine_was_taken_as_stands_below_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["recommend", "deepseek-v2-lite", "--system", "cpu", "--machine"]
    output = " ".join(printed_by(capsys, *asked, "ryzen-5600 + 64GiB", "--why").split())
    sentence = (
        "Given: ryzen-5600 and 64GiB; guessed: the speed of the RAM (18.4 to 48.6 GB/s) and the SSD (0.5 to 7 GB/s); "
        'name them, as in `--machine "ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4"`.'
    )
    assert output.count(sentence) == 1
    assert output.index("Run ") < output.index("llama-") < output.index(sentence) < output.index("It takes ")
    assert "guessed" not in printed_by(capsys, *asked, "ryzen-5600 + ddr4-3200 + 64GiB + nvme-gen4")
    preset = " ".join(printed_by(capsys, *asked, "rtx-3060", "--why").split())
    assert preset.count("From the preset rtx-3060: 32 GiB of RAM at 45 GB/s, ") == 1
    assert document(capsys, *asked, "rtx-3060")["notes"][0].startswith("From the preset rtx-3060: ")


def test_a_table_says_what_its_machines_were_taken_as(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["recommend", "--model", "deepseek-v2-lite", "--system", "cpu", "--machine"]
    printed = printed_by(capsys, *asked, "rtx-3060,rtx-3060 + 32GiB")
    assert "\nFrom the preset rtx-3060: 32 GiB" in printed
    assert "\nGiven: rtx-3060 and 32GiB; assumed: a pcie4x16 link; guessed: the CPU" in printed
    notes = document(capsys, *asked, "rtx-3060,rtx-3060 + 32GiB")["notes"]
    assert [note.partition(";")[0] for note in notes] == [
        "From the preset rtx-3060: 32 GiB of RAM at 45 GB/s, a CPU at 33 GB/s, a link of 20 GB/s and storage of 3 GB/s",
        "Given: rtx-3060 and 32GiB",
    ]


def test_json_has_every_part_and_the_api_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(capsys, *ASKED)
    assert answer["best"]["command"].startswith(("llama-server", "llama-cli"))
    assert {row["system"] for row in answer["systems"]} == {"static-profile", "placed", "slot-bank"}
    assert answer["sizes"]["chosen"]["setting"] == answer["best"]["setting"]
    assert answer["enough"]["parts"][-1]["setting"] == answer["best"]["setting"]
    assert all(row["gain"] <= answer["levers"][0]["gain"] for row in answer["levers"])
    assert answer["bought"] is None
    found = api.recommend("deepseek-v2-lite", machine="rtx-3060", systems="static-profile,placed,slot-bank")
    assert found.best.best.system.spec == answer["best"]["setting"]
    assert found.best.best.tok_s == answer["best"]["tok_s"]
    assert found.found.evaluations == answer["evaluations"]
    assert answer["best"]["setting"] in repr(found)
    assert len(repr(found)) < 200
    assert found.table()["setting"].to_list() == [row["setting"] for row in answer["systems"]]


def test_a_saved_page_and_the_files_of_its_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal names them from where it is, the page from where it is itself."""
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    asked = [*ASKED[:-1], "static-profile", "--save"]
    for suffix in (".md", ".html"):  # the same answer as another page needs the same files
        assert main([*asked, f"mine/advice{suffix}"]) == 0
        printed = capsys.readouterr()
        assert "wrote mine/advice" in printed.err
        assert "--moe-cache-profile mine/advice-profile.csv" in printed.out
        page = re.sub("</?span>", "", Path(f"mine/advice{suffix}").read_text())
        assert "--moe-cache-profile advice-profile.csv" in page
        assert f"{today()}, flashmoe-sim " in page.replace("\\", "")
        assert ("<html" in page) == (suffix == ".html")
        assert Path("mine/advice-profile.csv").stat().st_size
        assert "exists" in refusal(capsys, *asked, f"mine/advice{suffix}")
    assert main([*asked, "mine/advice.md", "--force"]) == 0


def test_a_saved_page_shows_the_systems_in_a_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Below the command, by their names in words; what does not run is in the table. A preview says the verdict."""
    out = tmp_path / "advice.html"
    assert main([*ASKED[:-1], "placed,cpu,all-gpu,turbofieldfare", "--save", str(out)]) == 0
    verdict = next(line for line in capsys.readouterr().out.splitlines() if "most likely" in line)
    page = out.read_text()
    assert f'<meta property="og:description" content="{verdict.partition(", with")[0]}, with ' in page
    assert page.count('<figure id="systems">') == 1
    assert page.index("llama-server") < page.index('<figure id="systems">') < page.index("It takes ")
    chart = re.search(r'<script type="application/json">(.*?)</script>', page)[1]
    assert "llama.cpp, experts placed by layer" in chart
    assert "TurboFieldfare" not in chart
    assert "turbofieldfare" in page


def test_what_exists_is_refused_before_the_search(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("advice-profile.csv").write_text("mine")
    assert "advice-profile.csv: exists" in refusal(capsys, *ASKED, "--save", "advice.md")
    assert [path.name for path in tmp_path.iterdir()] == ["advice-profile.csv"]


def test_a_prompt_that_the_trace_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["recommend", "--model", "olmoe-1b-7b", "--machine", "rtx-3060", "--system", "placed,slot-bank"]
    asked += ["--objective", "both", "--prompt-tokens", "4000"]
    best = document(capsys, *asked)["best"]
    assert "-c 4500" in best["command"]
    assert best["prompt_tok_s_lo"] < best["prompt_tok_s"] < best["prompt_tok_s_hi"]
    output = " ".join(printed_by(capsys, *asked, "--why").split())
    assert "a prompt of 4,000 tokens and an answer of 500 take" in output
    assert "The prompt consists of 1,024 decoded tokens, repeated up to 4,000 tokens." in output
    assert "prompt and answer have 4,500 tokens; give at least as many" in refusal(capsys, *asked, "--context", "4096")
    assert "are assumed to be as fast" not in output
    after = 4000 / best["prompt_tok_s"] + 500 / best["filled_tok_s"]  # -c 4500 is full at the end of the answer
    took = re.search(r"an answer of 500 take ([0-9.]+) s", output)
    assert took is not None
    assert goal_s(best, 4000, 500) < float(took[1]) < after * 1.005
    deep = refusal(capsys, *asked, "--depth", "4000", "--context", "8000")
    assert "--context 8000: depth, prompt and answer have 8,500 tokens; give at least as many" in deep
    assert "-c 8500" in document(capsys, *asked, "--depth", "4000")["best"]["command"]


def goal_s(best: dict[str, float], prompt: int, answer: int) -> float:
    """Seconds of a prompt and an answer at an empty context."""
    return prompt / best["prompt_tok_s"] + answer / best["tok_s"]


def test_a_model_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(capsys, "recommend", "--model", "olmoe-1b-7b", "--machine", "rtx-3060", "--system", "placed,cpu")
    assert "no trace of olmoe-1b-7b:q4_k_m is at hand" in answer["notes"][0]
    assert answer["enough"] is None
    with pytest.warns(UserWarning, match="no trace of olmoe-1b-7b:q4_k_m is at hand"):
        api.recommend(model="olmoe-1b-7b", machine="rtx-3060", systems="cpu")


def test_the_name_of_a_model_in_the_place_of_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("recommend", "compare"):
        asked = ["--machine", "rtx-3060", "--system", "cpu"]
        assert document(capsys, verb, "olmoe-1b-7b", *asked) == document(capsys, verb, "--model", "olmoe-1b-7b", *asked)
        assert main([verb, "olmoe-1b-7b", "--model", "olmoe-1b-7b:f16", *asked]) == 2
        assert "is a model, not a trace; give --model olmoe-1b-7b, and a trace of it" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="no trace of olmoe-1b-7b:q4_k_m is at hand"):
        api.recommend("olmoe-1b-7b", machine="rtx-3060", systems="cpu")


def test_what_to_buy(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["recommend", "deepseek-v2-lite", "--machine", PARTS, "--system", "placed,cpu", "--buy"]
    answer = document(capsys, *asked, "--target", "60")
    assert answer["best"]["tok_s"] < 60
    assert {len(row["kinds"]) for row in answer["bought"]["rows"]} == {1}
    assert all(row["tok_s"] >= 60 for row in answer["bought"]["rows"])
    assert "there is nothing to buy" in printed_by(capsys, *asked, "--target", "1")
    assert "A card stands for all better ones" in printed_by(capsys, *asked, "--target", "60")


def test_several_machines_and_several_models(capsys: pytest.CaptureFixture[str]) -> None:
    rows = document(capsys, "recommend", "deepseek-v2-lite", "--machine", "rtx-3060,m1-8", "--system", "cpu")["rows"]
    assert [row["machine"] for row in rows] == ["rtx-3060", "m1-8"]
    asked = ["recommend", "--model", "olmoe-1b-7b,deepseek-v2-lite", "--machine", "rtx-3060", "--system", "cpu"]
    models = [row["model"] for row in document(capsys, *asked)["rows"]]
    assert models == ["olmoe-1b-7b:q4_k_m", "deepseek-v2-lite:q4_k_m"]
    assert "2 settings were timed" in printed_by(capsys, *asked)


def test_an_engine_that_is_shown_with_another_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["recommend", "--model", "gemma-4-26b-a4b", "--machine", "m3-max-48", "--system", "cpu,turbofieldfare"]
    output = " ".join(printed_by(capsys, *asked, "--why").split())
    instead = "give --model gemma-4-26b-a4b:mlx-4bit, 14.3 GiB, nearest in size."
    assert f"TurboFieldfare loads mlx-4bit only, not q4_k_m; {instead}" in output
    state = facts_of("llama-cpp").state.words
    assert f"Get it llama.cpp: {state}; licence MIT; for Linux, macOS and Windows." in output


def test_a_system_that_memory_cannot_hold_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["recommend", "--model", "olmoe-1b-7b", "--machine", "m1-8", "--system", "all-gpu,cpu"]
    assert "Too large for this machine: all-gpu." in " ".join(printed_by(capsys, *asked, "--why").split())


def test_an_engine_that_would_ignore_its_flags_is_never_advised(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["recommend", "gpt-oss-120b", "--machine", "rtx-4090", "--system", "bounded-insert,static-profile,placed"]
    answer = document(capsys, *asked)
    assert answer["best"]["system"] == "placed"
    assert answer["get"]["address"] == "https://github.com/ggml-org/llama.cpp"
    assert answer["get"]["building"] == "https://github.com/ggml-org/llama.cpp/blob/master/docs/build.md"
    refused = {row["system"]: row["why_not"] for row in answer["systems"] if row["tok_s"] is None}
    assert set(refused) == {"bounded-insert", "static-profile"}
    assert all("never uses" in reason for reason in refused.values())


def test_a_row_of_several_models_says_what_the_limit_of_the_gpu_keeps_from_running(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["recommend", "--model", "glm-4.6,gpt-oss-120b", "--system", "all-gpu,cpu"]
    asked += ["--machine", "m3-ultra + 256GiB"]
    said = " ".join(printed_by(capsys, *asked).split())
    assert "glm-4.6:q4_k_m: llama.cpp, all on the GPU: takes 200.9 GiB of the GPU" in said
    assert "`sudo sysctl iogpu.wired_limit_mb=205824` lets the GPU use 201.0 of 256 GiB" in said
    limits = {row["model"]: row["limited"] for row in document(capsys, *asked)["rows"]}
    assert limits["gpt-oss-120b:mxfp4"] is None
    assert limits["glm-4.6:q4_k_m"] in said


def only_small(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let a machine be asked about these models alone."""
    monkeypatch.setattr(runs_here, "what_runs", partial(runs_here.what_runs, names=names))


def test_without_a_machine_it_is_for_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("recommend", "qwen3-30b-a3b", "--system", "cpu")
    here = load_machine("this").name
    assert document(capsys, *asked)["machine"] == document(capsys, *asked, "--machine", "this")["machine"] == here


def test_a_machine_without_a_model_gets_the_models_that_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    only_small(monkeypatch, "olmoe-1b-7b", "gpt-oss-20b", "mixtral-8x7b", "kimi-k3")
    asked = ["recommend", "--machine", "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 16GiB + nvme-gen4"]
    assert main(asked) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    well, slowly, rest = printed.split("\n\n")[:3]
    assert "likely 10 tok/s or more\n" in well
    names = [line.split()[0] for line in well.splitlines() if "tok/s" not in line and ":" in line]
    assert names == ["gpt-oss-20b:mxfp4", "olmoe-1b-7b:q8_0"]
    assert slowly.startswith("Runs, but perhaps below 10 tok/s\n")
    assert "mixtral-8x7b:q2_k" in slowly
    assert rest.startswith("Does not run, or below a token a second: 1 of 4 models.")
    rows = document(capsys, *asked)["rows"]
    assert [row["runs"] for row in rows] == ["well", "well", "slowly", "no"]
    assert rows[0]["tok_s_lo"] < rows[0]["tok_s"] < rows[0]["tok_s_hi"]
    assert rows[3]["why_not"]


def test_a_speed_that_is_asked_for_leaves_out_slower_models(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    only_small(monkeypatch, "olmoe-1b-7b", "gpt-oss-20b")
    asked = ["recommend", "--machine", "rtx-3060 + 16GiB", "--at-least"]
    assert main([*asked, "90"]) == 0
    printed = capsys.readouterr().out
    assert "gpt-oss-20b:" not in printed
    assert "olmoe-1b-7b:" in printed
    assert "Slower, or does not run: 1 of 2 models." in printed
    assert main([*asked, "9000"]) == 0
    assert "None; the fastest is olmoe-1b-7b:q2_k, " in " ".join(capsys.readouterr().out.split())


def test_a_star_is_explained_where_one_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    only_small(monkeypatch, "olmoe-1b-7b", "gpt-oss-120b")
    for options, is_starred in ([], True), (["--at-least", "90"], False):
        assert main(["recommend", "--machine", "rtx-3060 + 16GiB", *options]) == 0
        printed = capsys.readouterr().out
        assert ("gpt-oss-120b:mxfp4*" in printed) == is_starred
        assert ("*: some experts are read" in " ".join(printed.split())) == is_starred


def test_a_context_in_thousands(capsys: pytest.CaptureFixture[str]) -> None:
    """As engines' pages write it; a depth too."""
    asked = ("recommend", "gpt-oss-20b", "--machine", "m2-16", "--system", "cpu", "--context")
    written, plain = (
        document(capsys, *asked, tokens, "--depth", depth) for tokens, depth in (("8k", "1K"), (8192, 1024))
    )
    assert written == plain
    assert "'8kk' is not a valid integer" in refusal(capsys, *asked, "8kk")
    beyond = ("recommend", "gpt-oss-20b", "--machine", "m2-16", "--system", "cpu", "--depth", "2m", "--context", "1m")
    assert "beyond --context 1048576" in refusal(capsys, *beyond)
