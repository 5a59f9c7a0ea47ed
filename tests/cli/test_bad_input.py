"""Bad input: one line on stderr that says what is wrong, exit 2, nothing on stdout and nothing written."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from flashmoe_sim.cli.main import main
from tests.geometry.conftest import document, entry, write

OPENING = b'{"seq":0,"layer":0,"n_expert_used":2,"n_tokens":1,"experts":['
LINE = OPENING + b"1,2]}\n"
SECOND, THIRD = LINE.replace(b'"seq":0', b'"seq":1'), LINE.replace(b'"seq":0', b'"seq":2')
WIDE = b'{"seq":3,"layer":1,"n_expert_used":2,"n_tokens":2,"experts":[4,5,6,7]}\n'
GIB_OF_DIGITS = gzip.compress(b"1" * (16 << 20), 1) * 64  # members one after the other: quick to make


def ids(text: bytes) -> bytes:
    """A trace whose second of three lines has these ids."""
    return LINE + SECOND.replace(b"1,2", text) + THIRD


def corrupt(packed: bytes) -> bytes:
    """The beginning of a compressed file, and then something else."""
    return packed[:20] + b"\xff" * 300


FILES = {
    "good": LINE + SECOND + THIRD + WIDE,
    "empty": b"",
    "binary": random.Random(1).randbytes(5000),
    "negative": ids(b"-1,2"),
    "short": ids(b"1"),
    "latin-1": ids(b'1,2],"who":["\xe9"'),
    "torn": LINE + SECOND[:30] + b"\n" + THIRD,
    "torn-last": LINE + SECOND + THIRD[:30],
    "corrupt.gz": corrupt(gzip.compress(LINE * 1000)),
    "cut.gz": gzip.compress(LINE * 1000)[:-20],
    "corrupt.zst": corrupt(zstandard.compress(LINE * 1000)),
    "cut.zst": zstandard.compress(LINE * 1000)[:-5],
    "long-line.gz": gzip.compress(LINE + OPENING) + GIB_OF_DIGITS,
    "long-first-line.gz": gzip.compress(OPENING) + GIB_OF_DIGITS,
    "long-pairs.gz": gzip.compress(b"[[0,") + GIB_OF_DIGITS,
    "digits.gz": GIB_OF_DIGITS,
    "note.txt": b"Dear diary,\n",
    "not.json": b"{",
    "out/results.csv": b"my results",
    "one-expert": b"".join(
        b'{"seq":%d,"layer":%d,"n_expert_used":1,"n_tokens":1,"experts":[1]}\n' % (n, n) for n in range(6)
    ),
}
FAMILIES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


def model(layers: int, experts: int, top_k: int) -> dict[str, object]:
    entries = [entry(layer, family, 100, experts=experts) for layer in range(layers) for family in FAMILIES]
    return document(entries, expert_count=experts, expert_used_count=top_k)


MANIFESTS = {
    "right": model(2, 16, 2),
    "fewer-layers": model(1, 16, 2),
    "fewer-experts": model(2, 4, 2),
    "lower-top-k": model(2, 16, 1),
}


class Bad(NamedTuple):
    """Arguments of `sim`, and what its one line must contain."""

    arguments: str
    fragments: tuple[str, ...]


def trace(name: str, *fragments: str) -> Bad:
    return Bad(f"replay {name} --bank 4", (f"sim: {name}", *fragments))


def sweep(arguments: str, *fragments: str) -> Bad:
    return Bad(f"sweep {arguments}", fragments)


def merge(arguments: str, *fragments: str) -> Bad:
    return Bad(f"trace merge {arguments}", fragments)


def speculate(arguments: str, *fragments: str) -> Bad:
    return Bad(f"trace speculate good {arguments}", fragments)


def synth(arguments: str, *fragments: str) -> Bad:
    return Bad(f"trace synth {arguments} --out new.parquet", fragments)


CASES = [
    trace("empty", "is empty", "expected a routing trace"),
    trace("binary", "a binary file or not UTF-8", "known trace formats: parquet"),
    trace("folder", "is a directory", "give a trace file inside it"),
    trace("missing", "no such file, nor a bundled trace", "python-256"),
    trace("goood", "no such file, nor a bundled trace; did you mean 'good'?"),
    trace("qwen3.5-35b-a3b:q4_k_m", "is a model, not a trace; give --model qwen3.5-35b-a3b:q4_k_m"),
    trace("missing/trace.jsonl", "no such file"),
    trace("good/trace.jsonl", "Not a directory"),
    trace("x" * 300, "no such file, nor a bundled trace"),
    trace("folder/" + "x" * 300, "name too long"),
    trace("note.txt", "begins with 'Dear diary,", "no format claims it"),
    trace("negative", ":2: found expert id -1", "expected an integer from 0 to 32767", "--lenient"),
    trace("short", ":2: found 1 experts, expected 2 (n_expert_used 2 x n_tokens 1)"),
    trace("latin-1", ":2: found bytes that are not UTF-8"),
    trace("torn", ":2: found invalid JSON (unexpected end of data, column 31)"),
    trace("corrupt.gz", "broken gzip data", "copy or record the file again"),
    trace("cut.gz", "its gzip data is cut off; copy or record it again, or read up to there with --lenient"),
    trace("corrupt.zst", "broken zstd data", "copy or record the file again"),
    trace("cut.zst", "its zstd data is cut off; copy or record it again, or read up to there with --lenient"),
    trace("long-line.gz", ":2: found a line longer than 67108864 bytes"),
    trace("long-first-line.gz", ":1: found a line longer than 67108864 bytes"),
    trace("long-pairs.gz", "line 1 is longer than 1 MiB"),
    trace("digits.gz", "begins with '1111", "no format claims it"),
    Bad(
        "recommend --machine rtx-4090 --buy --budget $600",
        ("'$600': expected a number alone, without a unit, such as 600",),
    ),
    Bad(
        "recommend --machine rtx-4090 --buy --target tenfold", ("'tenfold': expected a number alone, without a unit\n",)
    ),
    Bad("recommend --machine rtx-4090 --target inf", ("'--target': 'inf' is not a finite number",)),
    Bad("trace merge good good --step-ms inf --out new.parquet", ("'--step-ms': 'inf' is not a finite number",)),
    # every verb has the same line
    Bad("sweep empty --bank 4", ("sim: empty: is empty",)),
    Bad("curve empty", ("sim: empty: is empty",)),
    Bad("trace inspect empty", ("sim: empty: is empty",)),
    Bad("trace lint empty", ("sim: empty: is empty",)),
    Bad("trace convert empty new.parquet", ("sim: empty: is empty",)),
    Bad("sweep good missing --bank 4", ("sim: missing: no such file",)),
    # the bank
    sweep("--bank 0", "bank 0: expected at least one slot or byte; give --bank 64 or --bank 8GiB"),
    sweep("--bank=-1", "bank '-1': expected slots, bytes or a share"),
    sweep("--bank abc", "bank 'abc': expected slots, bytes or a share of the experts, such as 64, 8GiB or 12.5%"),
    sweep("--bank 16..8", "bank range '16..8' goes down: write the smaller bank first, 8..16"),
    sweep("--bank 16,32 --bank-step x2", "bank step 'x2': --bank 16,32 has no range to step through"),
    sweep("--bank 16 --execution foo", "--execution: how a model runs on a machine; give --machine too"),
    sweep("--bank 16 --direct-io --hot", "--direct-io, --hot: how a model runs on a machine; give --machine too"),
    Bad("replay good --bank 16 --execution sync-install", ("--execution: how a model runs on a machine",)),
    Bad("replay good --bank 16 --dense 2GiB --kv 1GiB", ("--dense, --kv: how a model runs on a machine",)),
    Bad("replay good --bank 16 --context 512", ("--context: how a model runs on a machine",)),
    Bad("replay good --bank 16 --machine rtx-3090 --context -1", ("--context -1; expected a number of tokens from 0",)),
    Bad("sweep good --bank 16 --machine rtx-3090 --kv-type q8", ("unknown --kv-type 'q8'; did you mean 'q8_0'",)),
    sweep("--bank 257", "bank 257: a layer of python-256 has 256 experts; give at most --bank 256"),
    sweep("--bank 257,300", "bank 257"),
    sweep("--bank 99999999999999999999", "bank ", "99999999999999999999"),
    sweep("good --bank 1..3", "bank 1: call 0 of good (layer 0) asks for 2 distinct experts", "needs 4 slots"),
    sweep("good --bank 3", "bank 3: call 3 of good (layer 1) asks for 4 distinct experts", "--contract atomic streams"),
    sweep("good --bank 8GiB", "bank 8GiB", "needs the size of an expert", "--model"),
    sweep("--bank 100B", "bank 100B", "do not hold one expert"),
    sweep("--bank 8..32 --bank-step no", "bank step 'no': expected auto, a number to add such as 16, or a factor"),
    sweep("", "sim sweep: Missing option '--bank'. Give --bank SIZES: 16..256 (a range)"),
    Bad("replay good", ("sim replay: Missing option '--bank'",)),
    Bad("replay good --bank 8..16", ("bank '8..16'",)),
    # the setup
    sweep("--bank 16 --policy lur", "unknown policy 'lur'; did you mean 'lru'?\n"),
    sweep("--bank 16 --policy lru,", "unknown policy ''"),
    sweep("--bank 16 --policy lru:age=3", "policy 'lru:age=3': 'age=3' is not a parameter; lru has: stamp"),
    sweep("--bank 16 --policy random:seed=1_6", "seed is '1_6', expected int"),
    sweep("--bank 16 --policy no.such:Policy", "No module named", "expected a name from `sim policy list` or module"),
    Bad(
        "replay good --bank 4 --policy min",
        ("policy min is undefined under the contract protected", "--contract atomic"),
    ),
    sweep("--bank 16 --contract strict", "unknown contract 'strict'; known: atomic, protected, runtime, sequential"),
    sweep("--bank 16 --contract strict --policy all", "unknown contract 'strict'"),
    sweep("--bank 16 --scope model", "unknown scope 'model'; known: global, layer"),
    sweep("--bank 16 --prefetch psychic", "unknown predictor 'psychic'; known: eam, hot"),
    sweep("--bank 16 --prefetch hot --contract sequential", "predictor hot is undefined under the contract sequential"),
    sweep(
        "--bank 16 --policy hot-window", "hot-window is undefined under the contract protected; use --contract atomic"
    ),
    sweep("--bank 16 --prefetch temporal --policy static", "cannot work: policy static never installs"),
    sweep("--bank 16 --io-split 0", "io-split 0: expected 1 to 8 chunks"),
    sweep("--bank 16 --io-split 9", "io-split 9: expected 1 to 8 chunks"),
    sweep("--bank 16 --io-split x", "'--io-split': 'x' is not a valid integer"),
    sweep("--bank 16 --topk 0", "top-k '0': expected numbers of experts per token, such as 4,8"),
    sweep("--bank 16 --topk 4,x", "top-k '4,x'"),
    sweep("--bank 16 --topk 99", "top-k 99"),
    Bad("curve good --policy fifo", ("policy fifo has no one-pass curve", "lru has one", "sim sweep")),
    Bad("curve good --policy min --contract protected", ("policy min",)),
    Bad("diagnose empty --bank 4", ("sim: empty: is empty",)),
    Bad("diagnose good", ("sim diagnose: Missing option '--bank'",)),
    Bad("diagnose good --bank 4..8", ("bank '4..8': expected slots, bytes or a share",)),
    Bad("diagnose good --bank 3", ("bank 3: call 3 of good", "needs 4 slots", "--contract atomic streams")),
    Bad("diagnose good --bank 8GiB --contract atomic", ("bank 8GiB", "needs the size of an expert")),
    Bad("diagnose --bank 257", ("bank 257: a layer of python-256 has 256 experts",)),
    Bad("diagnose --bank 16 --policy min", ("policy min is undefined under the contract protected",)),
    Bad(
        "diagnose --bank 16 --contract runtime --policy min",
        ("undefined under the contract runtime", "--contract atomic"),
    ),
    Bad("diagnose --bank 16 --scope model", ("unknown scope 'model'; known: global, layer",)),
    Bad("diagnose --bank 40KiB --policy static", ("bank 40KiB", "do not hold one expert")),
    Bad("policy show lur", ("unknown policy 'lur'; did you mean 'lru'?",)),
    # the predictors
    Bad("prefetch show psychic", ("unknown predictor 'psychic'; known: eam, hot",)),
    Bad("prefetch judge good --bank 4 --prefetch eam,psychic", ("unknown predictor 'psychic'; known: eam, hot",)),
    Bad("prefetch judge good --bank 4 --prefetch eam:reach=0", ("predictor eam: reach=0 is not in 1..2147483647",)),
    Bad("prefetch judge good --bank 4 --price=-1", ("price -1.0: expected 0 or more",)),
    Bad("prefetch judge good --bank 4 --price x", ("'--price': 'x' is not a valid float",)),
    Bad("prefetch judge good --bank 4 --policy static", ("policy static never installs a miss",)),
    Bad("prefetch judge good --bank 4 --contract sequential", ("undefined under the contract sequential",)),
    Bad("prefetch judge good --bank 3", ("bank 3: call 3 of good (layer 1) asks for 4 distinct experts",)),
    Bad("prefetch judge empty --bank 4", ("sim: empty: is empty",)),
    # the model
    sweep("good --bank 4 --model qwen3-31b-a3b", "unknown model 'qwen3-31b-a3b'", "qwen3-30b-a3b"),
    sweep("good --bank 4 --model no/such.gguf", "no/such.gguf", "no such file"),
    sweep("good --bank 4 --model fewer-layers", "good: routes layer 1, but", "give the model that was traced"),
    sweep("good --bank 4 --model fewer-experts", "asks for expert 7, but", "has 4 experts there"),
    sweep("good --bank 4 --model lower-top-k", "uses 2 experts a token, but", "routes at most 1"),
    sweep("good --bank 4 --model ./not.json", "not.json"),
    sweep("good --bank 4 --model ./note.txt", "note.txt"),
    sweep("good --bank 4 --model ./empty", "empty"),
    sweep("good --bank 20 --model right", "bank 20: a layer of good has 16 experts"),
    # the results
    sweep("good --bank 4 --out good", "good: is not a folder"),
    sweep("good --bank 4 --out good/results", "good: is not a folder"),
    sweep("good --bank 4 --out out", "out: has results.csv already; give another folder, or --force to overwrite"),
    sweep(f"good --bank 4 --out {'x' * 300}", "name too long"),
    sweep("good --bank 4 --out locked", "locked: may not be written to"),
    sweep("good --bank 4 --out locked/results", "locked: may not be written to"),
    # workloads made of traces
    sweep("--bank 16 --policy lru-k:correlated=10000000000000000000000", "correlated is beyond 1000000000000"),
    sweep("--bank 16 --policy w-tinylfu:sample=9223372036854775807", "sample is beyond 1000000000000"),
    sweep("--bank 16 --prefetch eam:width=10000000000000000000000", "width is beyond 1000000000000"),
    sweep("--bank 16 --prefetch synthetic:steps=-9999999999999", "steps is beyond 1000000000000"),
    sweep("--bank 16 --prefetch synthetic:steps=-9999999999", "steps=-9999999999 is not in 1..2147483647"),
    merge("good good --how union --stagger 10000000000000000000 --out new.parquet", "expected 0 to 2147483647"),
    merge("good good --how interleave --every 10000000000000000000 --out new.parquet", "expected 1 to 2147483647"),
    merge("good --how union --out new.parquet", "sim: one trace only; give at least two to merge"),
    merge("--how union --out new.parquet", "Missing argument 'TRACE...'"),
    merge("good good --out new.parquet", "give --concurrency for a server's batches, or --how union, concat or inter"),
    merge("good good --how union --concurrency 2 --out new.parquet", "give --concurrency for a server's batches, or"),
    merge("good --concurrency 2 --out new.parquet", "good: a single request; give a trace of several sequences, or m"),
    merge("good good --concurrency 0 --out new.parquet", "'--concurrency': 0 is not in the range x>=1"),
    merge("good good --how concat --prefill-chunk 9 --out new.parquet", "belong to --concurrency, not --how concat"),
    merge("good good --concurrency 2 --arrivals good --out new.parquet", "--arrivals needs --step-ms"),
    merge("good good --concurrency 2 --step-ms 3 --out new.parquet", "--step-ms belongs to --arrivals"),
    merge(
        "good good --concurrency 2 --stagger 3 --out new.parquet", "--stagger belongs to --how union, not --concurrency"
    ),
    merge("good good --concurrency 2 --every 3 --out new.parquet", "--every does not belong to --concurrency"),
    merge("good good --how union", "Missing option '--out'"),
    merge("good good --how mix --out new.parquet", "'mix' is not one of 'union', 'concat', 'interleave'"),
    merge("good good --how concat --stagger 3 --out new.parquet", "--stagger belongs to --how union, not --how concat"),
    merge("good good --how union --stagger=-3 --out new.parquet", "'--stagger': -3 is not in the range x>=0"),
    merge("good good --how union --every 3 --out new.parquet", "--every does not belong to --how union"),
    merge("good good --how interleave --out new.parquet", "--how interleave needs --every"),
    merge("good good --how interleave --every 0 --out new.parquet", "'--every': 0 is not in the range x>=1"),
    merge("good good --how union --out new.txt", "new.txt: the name gives no format"),
    merge("good good --how union --to parquet --out out/results.csv", "out/results.csv: exists; give --force"),
    merge("good missing --how union --out new.parquet", "sim: missing: no such file"),
    merge("good short --how union --out new.parquet", ":2: found 1 experts, expected 2"),
    merge(
        "good python-256 --how union --out new.parquet",
        "good and python-256 are of different models: layers 0-1 and 0-5; give traces of one model",
    ),
    # drafts on a machine
    Bad(
        "compare gpt-oss-120b --machine rtx-4090 --draft 3", ("sim: --draft 3: how often is a drafted token accepted",)
    ),
    Bad("compare gpt-oss-120b --machine rtx-4090 --draft=-1 --accept 0.5", ("sim: --draft -1: expected 0 to 64 tok",)),
    Bad("compare gpt-oss-120b --machine rtx-4090 --draft 3 --accept 1.5", ("sim: --accept 1.5: expected a probab",)),
    Bad("compare gpt-oss-120b --machine rtx-4090 --accept 0.5", ("sim: --accept 0.5: says how tokens are drafted",)),
    Bad(
        "recommend gpt-oss-120b --machine rtx-4090 --drafter mtp", ("--drafter mtp: says how tokens are drafted; give",)
    ),
    Bad(
        "recommend gpt-oss-120b --machine rtx-4090 --draft 3 --accept 0.5 --drafter mtp",
        ("gpt-oss-120b:mxfp4 has no layer that drafts tokens; give --drafter ngram",),
    ),
    Bad(
        "compare gpt-oss-120b --machine rtx-4090 --draft 3 --accept 0.5 --drafter 300GiB --system placed,all-gpu",
        ("sim: --drafter 300GiB: takes 301 GiB; rtx-4090 has", "give a smaller draft model, or --drafter ngram"),
    ),
    Bad("predict --hit-rate 0.5 --model qwen3-30b-a3b --machine rtx-4090 --draft 2", ("how often is a drafted token",)),
    sweep("python-256 --bank 16 --draft 2 --accept 0.5", "--draft, --accept: how a model runs on a machine; give"),
    speculate("--draft 2", "Missing option '--out'"),
    speculate("--out new.parquet", "Missing option '--draft'"),
    speculate("--draft x --out new.parquet", "'--draft': 'x' is not a valid integer"),
    speculate("--draft=-1 --out new.parquet", "draft -1 tokens; expected 0 to 64"),
    speculate("--draft 2 --accept 1.2 --out new.parquet", "accept 1.2; expected a probability, 0 to 1"),
    speculate("--draft 2 --accept often --out new.parquet", "'--accept': 'often' is not a valid float"),
    speculate(
        "--draft 2 --rejected best --out new.parquet", "unknown stand-in for rejected tokens 'best'; known: next"
    ),
    speculate("--draft 2 --seed=-1 --out new.parquet", "seed -1; expected at least 0"),
    speculate("--draft 2 --out new.parquet", "good: no two decode steps of one token in a row"),
    # workloads made of nothing
    Bad("trace synth --null uniform", ("sim trace synth: Missing option '--out'",)),
    Bad("trace synth --null uniform --out new.txt", ("new.txt: the name gives no format",)),
    synth("", "sim: give one of a hit curve, a trace to imitate and a null model"),
    synth("--curve 2:0.5 --tokens 9", "layers, experts and top-k are unknown; give them, or a model"),
    synth("--curve 2:0.5 --layers 2", "layers, experts and top-k say what is routed only together"),
    synth("--curve 2:0.5 --layers 2 --model right", "the model gives layers and experts"),
    synth("--curve 2:0.5 --model right", "the number of tokens is unknown; give it"),
    synth("--curve 2:0.5 --model right --tokens x", "'--tokens': 'x' is not a valid integer"),
    synth("--curve 2:0.5 --model right --tokens 0", "0 tokens after a prompt of 0; expected at least 1"),
    synth("--curve 2:0.5 --model right --tokens 9 --topk 3", "top-k 3: ", "routes at most 2 experts a token"),
    synth("--curve 2:0.5 --model right --tokens 9 --seed=-1", "seed -1; expected 0 or a positive number"),
    synth("--curve folder --model right --tokens 9", "sim: folder: Is a directory; give a CSV file"),
    synth("--curve binary --model right --tokens 9", "sim: binary: "),
    synth("--curve out/results.csv --model right --tokens 9", "results.csv: no rows under its header"),
    synth("--like missing", "sim: missing: no such file, nor a bundled trace"),
    synth("--like one-expert", "one-expert: layer 0 has no two tokens in a row"),
    synth("--like good --curve-tokens 9", "tokens of the curve without a curve"),
    synth("--null shuffled --like good --tokens 9", "a null model of a trace has that trace's tokens"),
    # the usage
    Bad("frobnicate", ("unknown verb 'frobnicate'; known: sweep, replay",)),
    Bad("reply", ("unknown verb 'reply'; did you mean 'replay'? known: sweep, replay",)),
    Bad("sweep pyton-256 --bank 16", ("nor a bundled trace; did you mean 'python-256'? bundled traces: python-256",)),
    Bad("sweep --bank 16 --contract Atomc", ("unknown contract 'Atomc'; did you mean 'atomic'? known: atomic, ",)),
    Bad("sweep --bank 16 --prefetch eem", ("unknown predictor 'eem'; did you mean 'eam'?",)),
    Bad("sweep --bank 16 --machine m3-maxx", ("unknown machine 'm3-maxx'; did you mean 'm3-max-64' or 'm3-max-48'",)),
    Bad("sweep --bank 16 --machine m3-max", ("m3-max: no size of RAM; it is sold as m3-max-48, m3-max-64",)),
    Bad("replay --bnk 16", ("No such option '--bnk'", "'--bank'")),
    Bad("trace inspct", ("No such command 'inspct'", "'inspect'")),
    Bad("--frobnicate", ("sim: No such option '--frobnicate'",)),
    Bad("sweep --frobnicate", ("sim sweep: No such option '--frobnicate'",)),
    Bad("policy frobnicate", ("sim policy: No such command 'frobnicate'",)),
    Bad("replay --bank 4", ("sim replay: Missing argument 'TRACE'",)),
    Bad("replay good good --bank 4", ("sim replay: Got unexpected extra argument (good)",)),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the command lines run in."""
    place = tmp_path_factory.mktemp("place")
    for name in ("folder", "out", "locked"):
        (place / name).mkdir()
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    for name, content in MANIFESTS.items():
        write(place / name, content)
    (place / "locked").chmod(0o555)
    return place


def files(place: Path) -> dict[str, bytes | None]:
    """Everything in a folder, at any depth."""
    found = sorted(place.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() and path.stat().st_size < 10_000 else None for path in found}


@pytest.mark.parametrize(("arguments", "fragments"), CASES, ids=[case.arguments[:60] for case in CASES])
def test_bad_input_is_one_line(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    fragments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(place)
    if "locked" in arguments and os.geteuid() == 0:
        # root may write anywhere; what the program asks is answered as for anybody else
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK or path.name != "locked")
    before = files(place)
    code = main(arguments.split())
    printed = capsys.readouterr()
    assert printed.err.startswith("sim")
    assert printed.err.endswith("\n")
    assert printed.err.count("\n") == 1
    assert [fragment for fragment in fragments if fragment.lower() not in printed.err.lower()] == [], printed.err
    assert printed.out == ""
    assert code == 2
    assert files(place) == before


def test_the_good_ones_are_good(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the table changes works as it is, so that each entry fails for its own reason."""
    monkeypatch.chdir(place)
    assert main(["sweep", "good", "--bank", "4", "--model", "right"]) == 0
    assert main(["replay", "torn-last", "--bank", "4"]) == 0
    assert "torn-last: last line incomplete" in capsys.readouterr().err
    assert main(["replay", "torn", "--bank", "4", "--lenient"]) == 0
    assert "1 malformed line" in capsys.readouterr().err
