"""`sim trace capture --server`, against a double of vLLM and of SGLang on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from native_bridge.cli.main import main
from tests.native_bridge.served_double import (
    DENSE,
    LAYERS,
    MODEL,
    OWNERS,
    TOP_K,
    Double,
    routing,
    serving,
    templated,
)
from tests.support import refusal

PROMPTS = ["The bank is full.", "Experts come and go;\u2028few stay.", "ä"]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def run(double: Double, folder: Path, *options: str, prompts: list[str] = PROMPTS) -> int:
    file = folder / "prompts.jsonl"
    lines = [json.dumps(one if at % 2 else {"prompt": one}, ensure_ascii=False) for at, one in enumerate(prompts)]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return main(
        [
            *("trace", "capture", "--server", double.url, "--prompt-file", str(file)),
            *("--tokens", "6", "--out", str(folder / "answers.jsonl"), *options),
        ]
    )


def expected(prompts: list[str], tokens: int = 6) -> list[tuple[int, int, int, list[int], int, int]]:
    """(step, layer, tokens, experts, phase, sequence) of every call: a prompt in one step, then token by token."""
    calls: list[tuple[int, int, int, list[int], int, int]] = []
    step = 0
    for sequence, prompt in enumerate(prompts):
        chosen, length = routing(prompt, tokens), len(prompt.encode())
        for rows, phase in [(chosen[:length], 1), *((row[np.newaxis], 2) for row in chosen[length:])]:
            for layer in range(DENSE, LAYERS):
                calls.append((step, layer, len(rows), rows[:, layer].ravel().tolist(), phase, sequence))
            step += 1
    return calls


def calls_of(trace: RoutingTrace) -> list[tuple[int, int, int, list[int], int, int]]:
    assert trace.phase is not None
    assert trace.sequence is not None
    columns = (trace.steps, trace.layer, trace.n_tokens, trace.phase, trace.sequence)
    experts = np.split(trace.expert, trace.offset[1:-1])
    rows = zip(*(column.tolist() for column in columns), experts, strict=True)
    return [(step, layer, tokens, one.tolist(), phase, sequence) for step, layer, tokens, phase, sequence, one in rows]


@pytest.mark.parametrize("dialect", [name for name in OWNERS if name != "vllm-0.21"])
def test_the_trace_is_what_was_routed(dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [] if dialect == "vllm" else ["--top-k", str(TOP_K)]
    with serving(Double(dialect)) as double:
        assert run(double, tmp_path, *sizes) == 0
    printed = capsys.readouterr()
    assert f"{MODEL}, in " in printed.out
    assert "3 answered now\n" in printed.out
    assert "layer 0 left out: no routing in any token, as in dense layers" in printed.err
    trace = load_trace(tmp_path / "answers.jsonl")
    assert calls_of(trace) == expected(PROMPTS)
    assert trace.top_k == TOP_K
    assert [one["prompt"] for one in double.asked] == PROMPTS
    assert {one.get("return_routed_experts") for one in double.asked} == {None if dialect == "vllm" else True}


@pytest.mark.parametrize("dialect", ["vllm", "vllm-0.21", "sglang"])
def test_a_chat_is_put_into_the_template(dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Double(dialect)) as double:
        assert run(double, tmp_path, "--chat", "--top-k", str(TOP_K)) == 0
        assert run(double, tmp_path, "--top-k", str(TOP_K)) == 2
        assert "holds answers of another capture (chat True, now False); give another" in capsys.readouterr().err
    assert [one["messages"] for one in double.asked] == [[{"role": "user", "content": one}] for one in PROMPTS]
    found = calls_of(load_trace(tmp_path / "answers.jsonl"))
    first = DENSE if dialect == "vllm-0.21" else 0
    in_template = [templated([{"role": "user", "content": one}]) for one in PROMPTS]
    assert found == [(step, layer - first, *rest) for step, layer, *rest in expected(in_template)]


KEY = "sk-secret-0123456789"


@pytest.mark.parametrize(("variable", "options"), [("OPENAI_API_KEY", ()), ("MINE", ("--api-key-env", "MINE"))])
def test_a_key_is_sent_and_kept_nowhere(
    variable: str,
    options: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, f"{KEY}\n")
    with serving(Double("vllm", key=KEY)) as double:
        assert run(double, tmp_path, *options) == 0
        assert run(double, tmp_path, *options, "--json", "--force") == 0
        assert len(double.asked) == 6
        double.instead = lambda _: (400, f'{{"error": {{"message": "no quota for {KEY}"}}}}'.encode())
        assert run(double, tmp_path, *options, "--force") == 2
        double.instead = lambda _: (200, f"{KEY} is what you sent".encode())
        assert run(double, tmp_path, *options, "--force") == 2
        double.key = "another"
        assert run(double, tmp_path, *options, "--force") == 2
    printed = capsys.readouterr()
    assert "answers 400 to /v1/completions: no quota for *** (prompt 1 of 3)" in printed.err
    assert "answers b'*** is what you sent'" in printed.err
    assert "refuses the key (401); check the environment variable that holds it" in printed.err
    trace = load_trace(tmp_path / "answers.jsonl")
    kept = [path.read_text("utf-8") for path in tmp_path.iterdir()]
    assert not any(KEY in text for text in (printed.out, printed.err, *trace.notes, *kept))


@pytest.mark.parametrize(
    ("value", "name", "found"),
    [
        (None, "MINE", "--api-key-env MINE: the variable is not set"),
        ("", "MINE", "--api-key-env MINE: the variable is not set"),
        (f"{KEY}\r\nHost: evil", "MINE", "MINE: holds no API key: one line of ASCII expected"),
        (f"{KEY}ü", "MINE", "MINE: holds no API key"),
        (None, KEY, "--api-key-env takes the name of an environment variable"),
    ],
)
def test_keys_that_cannot_be(
    value: str | None, name: str, found: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("MINE", value)
    asked = ("trace", "capture", "--server", "http://127.0.0.1:9", "--prompt", "x", "--api-key-env", name)
    line = refusal(capsys, *asked)
    assert found in line
    assert KEY not in line


def test_vllm_0_21_numbers_its_routed_layers_only(tmp_path: Path) -> None:
    with serving(Double("vllm-0.21")) as double:
        assert run(double, tmp_path) == 0
    shifted = [(step, layer - DENSE, *rest) for step, layer, *rest in expected(PROMPTS)]
    assert calls_of(load_trace(tmp_path / "answers.jsonl")) == shifted


def test_a_text_file_is_one_prompt_and_json_says_what_was_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.txt").write_text("One prompt.\nOf two lines.")
    with serving(Double("vllm")) as double:
        ask = ["trace", "capture", "--server", f"{double.url}/v1/", "--prompt-file", "p.txt", "--tokens", "2", "--json"]
        assert main([*ask, "--temp", "0.5", "--seed", "4"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["out"], report["engine"], report["prompts"], report["kept_prompts"]) == (
        "answers.jsonl",
        "vLLM",
        1,
        0,
    )
    assert (report["layers"], report["tokens"], report["steps"]) == (LAYERS - DENSE, 26, 2)
    assert report["bytes"] == Path("answers.jsonl").stat().st_size
    assert double.asked == [
        {"model": MODEL, "prompt": "One prompt.\nOf two lines.", "max_tokens": 2, "temperature": 0.5, "seed": 4}
    ]


def test_what_was_asked_can_be_batched(tmp_path: Path) -> None:
    """Also by the times at which the answers say that the requests came: all in the same second, or two."""
    with serving(Double("vllm")) as double:
        assert run(double, tmp_path) == 0
    answers, out = str(tmp_path / "answers.jsonl"), tmp_path / "batched.parquet"
    merge = ["trace", "merge", answers, "--concurrency", "2", "--prefill-chunk", "8", "--out", str(out)]
    assert main([*merge, "--arrivals", answers, "--step-ms", "100000"]) == 0
    trace = load_trace(out)
    assert trace.tokens == load_trace(answers).tokens
    assert trace.n_tokens.max() == 9  # a chunk, and a token of the other request


def test_it_goes_on_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also after a kill in the middle of a line; a prompt asked twice needs two answers."""
    out = tmp_path / "answers.jsonl"
    with serving(Double("sglang", instead=lambda number: (503, b"busy") if number == 2 else None)) as double:
        assert run(double, tmp_path, "--top-k", "4") == 1
        stderr = capsys.readouterr().err
        assert stderr == (
            f"sim: {double.url}: answers 503 to /v1/completions: busy (prompt 3 of 3); "
            "2 answers are kept, the same command goes on\n"
        )
        whole = out.read_bytes()
        assert whole.count(b"\n") == 2
        out.write_bytes(whole + b'{"id": "cmpl-1", "choi')
        assert run(double, tmp_path, "--top-k", "4", prompts=[*PROMPTS, PROMPTS[0]]) == 0
        printed = capsys.readouterr()
        assert "2 answered now, 2 before\n" in printed.out
        assert [one["prompt"] for one in double.asked[3:]] == [PROMPTS[2], PROMPTS[0]]
        assert out.read_bytes().startswith(whole)
        assert calls_of(load_trace(out)) == expected([*PROMPTS, PROMPTS[0]])
        out.write_bytes(out.read_bytes() + b'{"id": ')
        assert run(double, tmp_path, "--top-k", "4") == 0
        assert len(double.asked) == 5
        assert calls_of(load_trace(out)) == expected([*PROMPTS, PROMPTS[0]])
        capsys.readouterr()
        assert run(double, tmp_path, "--top-k", "4", "--seed", "9") == 2
        assert (
            "holds answers of another capture (seed 1, now 9); give another --out, or --force"
            in capsys.readouterr().err
        )
        assert run(double, tmp_path, "--top-k", "4", "--seed", "9", "--force", prompts=PROMPTS[:1]) == 0
        assert calls_of(load_trace(out)) == expected(PROMPTS[:1])


def test_two_captures_into_one_file_lose_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second is refused while the first waits for an answer."""
    codes = []

    def meanwhile(number: int) -> None:
        if number == 1:
            codes.append(run(double, tmp_path))

    with serving(Double("vllm")) as double:
        double.instead = meanwhile
        assert run(double, tmp_path) == 0
    assert codes == [2]
    assert "answers.jsonl: another capture is writing to it; wait for its end, or" in capsys.readouterr().err
    assert calls_of(load_trace(tmp_path / "answers.jsonl")) == expected(PROMPTS)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with serving(Double("vllm")) as double:
        assert run(double, tmp_path, "--out", str(tmp_path / "pipe.jsonl")) == 2
    assert "pipe.jsonl: is not a regular file" in capsys.readouterr().err


def test_answers_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("native_bridge.capture.server.MOST_BYTES", 1000)
    with serving(Double("vllm", instead=lambda _: (200, b" " * 1000))) as double:
        assert run(double, tmp_path) == 1
    assert "answers more than 0 MiB to /v1/completions; ask for fewer --tokens" in capsys.readouterr().err


def test_a_killed_capture_keeps_its_answers(tmp_path: Path) -> None:
    def slow(number: int) -> None:
        time.sleep(0.02 if number < 2 else 60)

    with serving(Double("vllm", instead=slow)) as double:
        (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, PROMPTS)))
        code = "import sys; from native_bridge.cli.main import main; sys.exit(main(sys.argv[1:]))"
        asking = ["trace", "capture", "--server", double.url, "--prompt-file", "p.jsonl", "--tokens", "6"]
        for number, ending in enumerate((signal.SIGTERM, signal.SIGKILL)):
            command = [sys.executable, "-c", code, *asking, "--out", f"{number}.jsonl"]
            process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
            out = tmp_path / f"{number}.jsonl"
            give_up = time.monotonic() + 120
            while not (out.exists() and out.read_bytes().count(b"\n") == 2) and time.monotonic() < give_up:
                time.sleep(0.05)
            os.kill(process.pid, ending)
            _, stderr = process.communicate(timeout=30)
            if ending == signal.SIGTERM:
                assert process.returncode == 130
                assert stderr == f"sim: interrupted; {number}.jsonl has 2 answers, the same command goes on\n"
            assert calls_of(load_trace(out)) == expected(PROMPTS[:2])
            double.asked.clear()


def test_what_the_model_says_of_its_routing_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Double("vllm")) as double:
        assert run(double, tmp_path, "--model", "qwen3-30b-a3b") == 2
    assert "5 layers, but the model routes in 48" in capsys.readouterr().err
    assert not (tmp_path / "answers.jsonl").exists()


def body(change: dict[str, Any]) -> bytes:
    answer = Double("vllm").answer({"prompt": PROMPTS[0], "max_tokens": 6, "model": MODEL})
    return json.dumps(answer | change).encode()


# What a server answers, the exit code, and what the line says.
OTHER_ROWS = body({"usage": {"prompt_tokens": 9, "completion_tokens": 6}})
FAULTS: dict[str, tuple[int, bytes, int, str]] = {
    "fails": (500, b'{"error": {"message": "out\\nof memory"}}', 1, "500 to /v1/completions: out of memory (prompt 1"),
    "refuses": (400, b'{"object": "error", "message": "too long"}', 2, "400 to /v1/completions: too long (prompt 1"),
    "invalid": (422, b'{"detail": [{"msg": "no seed"}]}', 2, "422 to /v1/completions: [{'msg': 'no seed'}]"),
    "no JSON": (200, b"<html>", 2, "b'<html>' to /v1/completions; expected a server of vLLM or SGLang"),
    "a list": (200, b"[]", 2, "b'[]' to /v1/completions"),
    "a key": (401, b"{}", 2, "asks for a key (401)"),
    "other rows": (200, OTHER_ROWS, 2, "22 rows of routing, but 9 prompt"),
    "no counts": (200, body({"usage": None}), 2, "neither usage.prompt_tokens nor prompt_token_ids"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_and_nothing_is_left(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, content, code, found = FAULTS[fault]
    with serving(Double("vllm", instead=lambda _: (status, content))) as double:
        assert run(double, tmp_path) == code
    stderr = capsys.readouterr().err
    assert len(stderr.splitlines()) == 1
    assert stderr.startswith(f"sim: {double.url}: ")
    assert found in stderr
    assert not (tmp_path / "answers.jsonl").exists()


@pytest.mark.parametrize(
    ("dialect", "found"),
    [
        ("vllm", "routed_experts is null: "),
        ("vllm-0.21", "routed_experts is null: "),
        ("sglang", "routed_experts is not"),
    ],
)
def test_a_server_without_the_flag(
    dialect: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Double(dialect, with_flag=False)) as double:
        assert run(double, tmp_path, "--top-k", "4") == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith(f"sim: {double.url}: the answer to prompt 1: {found}")
    assert len(stderr.splitlines()) == 1
    assert len(double.asked) == 1


def test_no_answer_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Double("vllm", instead=lambda _: time.sleep(2))) as double:  # type: ignore[func-returns-value]
        assert run(double, tmp_path, "--timeout", "0.2") == 1
        assert "no whole answer in 0.2 s; give it more with --timeout (prompt 1 of 3)\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
    ],
    ids=["headers", "length", "until it closes"],
)
def test_an_answer_byte_by_byte_is_not_waited_for(
    head: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(head)
            while True:
                connection.sendall(b" ")
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        url, begun = f"http://127.0.0.1:{server.getsockname()[1]}", time.monotonic()
        assert run(Double("vllm", url=url), tmp_path, "--timeout", "0.4") == 2
        assert time.monotonic() - begun < 60
        thread.join()
    assert f"{url}: no whole answer in 0.4 s; give it more with --timeout; start the" in capsys.readouterr().err


def test_a_list_of_models_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("native_bridge.capture.server.MOST_LISTED_BYTES", 1 << 20)
    with serving(Double("vllm")) as double:
        double.models = lambda: {"data": [{"id": "x" * (2 << 20)}]}  # type: ignore[method-assign]
        assert run(double, tmp_path) == 2
    message = f"sim: {double.url}: answers more than 1 MiB to /v1/models; expected a server of vLLM or SGLang"
    assert capsys.readouterr().err.startswith(message)


def test_who_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(double: Double, *options: str) -> str:
        assert run(double, tmp_path, *options) == 2
        return capsys.readouterr().err

    with serving(Double("vllm")) as double:
        gone = double.url
        assert f"no model 'other'; --served-model takes: {MODEL}" in refused(double, "--served-model", "other")
        for listed, found in (
            ([{"id": MODEL}, {"id": "lora"}], f"serves 2 models: {MODEL}, lora; choose one with --served-model"),
            ([], "its list of models is empty"),
        ):
            double.models = lambda listed=listed: {"data": listed}  # type: ignore[misc]
            assert found in refused(double)
        double.url += "/other"
        assert "answers 404 to /v1/models: Not Found" in refused(double)
    no_server = f"sim: {gone}: no server there (connection refused); start the server, or check the address\n"
    assert refused(Double("vllm", url=gone)) == no_server
    with serving(Double("sglang")) as double:
        assert "SGLang does not send a token's number of experts; give --model or --top-k" in refused(double)


def test_a_prompt_file_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("native_bridge.verbs.capture.MOST_BYTES", 1000)
    asked = ("trace", "capture", "--server", "http://127.0.0.1:1", "--prompt-file", "/dev/zero")
    assert "/dev/zero: more than 0 MiB" in refusal(capsys, *asked)


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("t.jsonl.zst", b"", "t.jsonl.zst: answers of a server are kept in a file whose name ends in .jsonl"),
        ("t.jsonl", b'{"layer": 1}\n', "t.jsonl: line 1 was not written by a capture"),
        ("t.jsonl", b"[1]\n", "line 1 was not written by a capture"),
        ("t.jsonl", b'{"flashmoe_sim": {"prompt_sha256": [], "asked": 5}}\n', "line 1 was not written by a capture"),
        ("t.jsonl", b"Dear diary", "t.jsonl: holds no whole answer of a server; give another --out, or --force"),
        ("no/t.jsonl", b"", "no/t.jsonl: cannot be written"),
    ],
)
def test_files_that_are_no_answers(
    name: str,
    content: bytes,
    found: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if content:
        Path(name).write_bytes(content)
    with serving(Double("vllm")) as double:
        assert run(double, tmp_path, "--out", name) == 2
    assert found in capsys.readouterr().err
    assert not content or Path(name).read_bytes() == content
    assert double.asked == []
