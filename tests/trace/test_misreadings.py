"""Files that once were taken for something else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, Incomplete, Malformed
from flashmoe_sim.io.notes import MISREAD, code_of
from flashmoe_sim.trace.formats import find_format
from flashmoe_sim.trace.lint import lint
from tests.support import refused
from tests.trace import recordings
from tests.trace.recordings import Made, calls, expected, made, read


def named(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "recording"
    path.write_bytes(content)
    return find_format(path).name


def test_a_long_prompt_of_megatron_is_not_the_runtime_s(tmp_path: Path) -> None:
    one = made(prompt=4000, k=8, experts=64)
    content = recordings.megatron(one)
    assert content.index(b"\n") > 64 << 10
    assert named(tmp_path, content) == "megatron-jsonl"
    assert read(tmp_path, content).n_tokens[0] == 4000


@pytest.mark.parametrize(
    "document",
    [
        {"top_k": 2, "trace": [[1, 3, 0], [2, 1, 2]]},
        {"trace": [1, 3, 0, 2, 1, 2], "top_k": 2},
        {"model": "m", "data": [[1, 3, 0], [2, 1, 2]]},
        [[1, 3, 0], [2, 1, 2]],
    ],
)
def test_imp_s_document_is_no_pairs(tmp_path: Path, document: object) -> None:
    content = json.dumps(document).encode()
    assert named(tmp_path, content) == "imp-json"
    assert calls(read(tmp_path, content)) == [(0, 1, 2, 1, [3, 0]), (0, 2, 2, 1, [1, 2])]


def test_several_sequences_of_imp_share_a_pass(tmp_path: Path) -> None:
    trace = read(tmp_path, b'{"trace": [[1,3,0],[1,4,5],[2,1,2],[2,0,1],[1,2,3],[2,4,5]]}')
    assert calls(trace) == [
        (0, 1, 2, 2, [3, 0, 4, 5]),
        (0, 2, 2, 2, [1, 2, 0, 1]),
        (1, 1, 2, 1, [2, 3]),
        (1, 2, 2, 1, [4, 5]),
    ]
    assert any("up to 2 tokens in a pass" in note for note in trace.notes)


@pytest.mark.parametrize("again", [False, True])
def test_prompts_of_the_dialect_with_phases_are_read(tmp_path: Path, again: bool) -> None:
    several = [made(1, prompt=5), made(2, prompt=9, generated=4)]
    content = recordings.phase_csv(several[0], again=again)
    content += recordings.phase_csv(several[1], again=again).partition(b"\n")[2]
    assert calls(read(tmp_path, content)) == expected(several)


def test_batches_of_a_dialect_are_as_long_as_recorded(tmp_path: Path) -> None:
    """A prompt of 10 tokens in batches of 4: the file shows it, layer by layer."""
    one = made(prompt=10)
    rows = recordings.in_file_order(one)
    prompt = sorted((row for row in rows if row[0]), key=lambda row: (row[1] // 4, row[2], row[1]))
    text = "".join(
        f"{position - 10},{layer},{','.join(map(str, ids))}\n"
        for _, position, layer, ids in [*prompt, *(row for row in rows if not row[0])]
    )
    assert calls(read(tmp_path, text.encode())) == expected([one], chunk=4)


def test_a_batch_of_the_pull_request_has_several_tokens(tmp_path: Path) -> None:
    """Two tokens without a common expert; they once counted as one token of six experts."""
    experts = np.array([[[0, 1, 2]], [[3, 4, 5]], [[0, 4, 2]]])
    one = Made(experts.repeat(2, axis=1), 2)
    trace = read(tmp_path, recordings.layer_expert_csv(one))
    assert trace.n_tokens.tolist() == [2, 2, 1, 1]
    assert trace.top_k == 3
    torn = recordings.layer_expert_csv(made(k=4)).splitlines(keepends=True)[:-2]
    assert read(tmp_path, b"".join(torn)).n_tokens[-1] == 1  # two rows of four are no token of two
    assert "calls with more rows than the most common number are assumed to hold several tokens" in trace.notes


def test_a_strided_recording_is_known_by_its_mark(tmp_path: Path) -> None:
    """64 experts, 8 a token: in the first 8 tokens read wrongly each expert stands once, read rightly about 43 do."""
    one = made(prompt=30, experts=64, k=8)
    wrong = recordings.strided_misread(one, experts=64)
    for write in (recordings.position_csv, recordings.phase_csv):
        trace = read(tmp_path, write(wrong))
        (note,) = [note for note in trace.notes if code_of(note) == MISREAD]
        assert "the first 8 prompt tokens name each of 64 experts once in every layer" in note
        (finding,) = [finding for finding in lint(trace) if finding.code == MISREAD]
        assert finding.severity == "warning"
        assert not any(code_of(note) for note in read(tmp_path, write(one)).notes)


@pytest.mark.parametrize(
    ("content", "found", "kind"),
    [
        (b"GGUF\x03\0\0\0" + bytes(16) + b"general.type\x08\0\0\0imatrix", "an importance matrix: counts, ", Malformed),
        # imp
        (b'{"trace": [1,3,0,2,1,2]}', "6 numbers, but no top_k to divide them into records; give --top-k ", Incomplete),
        (b'{"top_k": 3, "trace": [1,3,0,2,1,2]}', "6 numbers do not divide into records of a layer and 3 e", Malformed),
        (b'{"trace": [[1,3,0],[2,1]]}', r"records of 1 and 2 experts \(mixed top-k\); expected a single to", Malformed),
        (b'{"trace": [[1,3,0],[2,1,1]]}', r"record 1 is \[2, 1, 1\], which names an expert twice", Malformed),
        (b'{"trace": [[1,3,0],[2,1,99999]]}', "expected whole numbers 0 to 32767", Malformed),
        (b'{"trace": [[1,3,0],[2,1,true]]}', "expected whole numbers 0 to 32767", Malformed),
        (
            b'{"entries": [1,3,0], "trace": []}',
            "holds no records; expected lists of a layer and its experts",
            Malformed,
        ),
        (b'{"trace": [[1,3,0],7]}', "records of 0 and 2 experts", Malformed),
        (b'{"trace": [[1,3,0],', "not a complete JSON document", Malformed),
        # tracers
        (
            b"0,1,1,2\n" + b"".join(b"%d,%d,1,2\n" % (at, at) for at in range(3000)),
            "3,001 rows for 3,000 tokens of 3,000 layers: most",
            Malformed,
        ),
        (b"0,0,1,2\n2000000000,0,1,2\n", "token 1 is missing after 0", Malformed),
        (b"1,2,3,4\n2,1,5\n", "line 2: 3 fields, expected 4", Malformed),
        (b"1,2,3,4\n2,1,x,5\n3,1,2,3\n", "line 2: id0 is 'x'", Malformed),
        (
            b"phase,token,layer,rank,expert\nprefill,0,1,0,3\nlater,0,1,0,3\nprefill,1,1,0,3\n",
            "line 3: phase is 'later'",
            Malformed,
        ),
        (b"phase,token,layer,rank,expert\nprefill,0,1,0,3\nprefill,2,1,0,3\n", "token 1 is missing after 0", Malformed),
        (
            b"phase,token,layer,rank,expert\nprefill,0,1,0,3\nprefill,1,1,0,3\nprefill,1,1,1,4\n",
            "token 1 has 2 experts",
            Malformed,
        ),
        # steps of layers
        (b'[{"0":null}]', "no layer of any step has routing", Malformed),
        (b'[{"1":[[1,2]]},3]', "step 1 is 3; expected an object of layers", Malformed),
        (b'[{"1":[[1,2]],"x":null}]', "step 0 has layer 'x'", Malformed),
        (b'[{"1":[[1,2],[3]]}]', r"step 0, layer 1: tokens of 1 and 2 experts \(mixed top-k\)", Malformed),
        (b'[{"1":[[1,2]]},{"1":[[1]]}]', r"step 1, layer 1: tokens of 2 and 1 experts \(mixed top-k\)", Malformed),
        (b'[{"1":[[1,2]]},{"1":[]}]', r"step 1, layer 1: tokens", Malformed),
        (b'[{"1":[[1,true]]}]', r"expected whole numbers 0 to 32767", Malformed),
        (b'[{"1":[[1,-2]]}]', r"expected whole numbers 0 to 32767", Malformed),
        (b'[{"1":[[1,2]]},{"1":7}]', "expected a list of expert ids for each token", Malformed),
        (b'[{"1":[[1,2]]}', "not a complete JSON document", Malformed),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: bytes, found: str, kind: type[BadInput]) -> None:
    with refused(kind, "recording", match=found):
        read(tmp_path, content)


def test_layers_without_routing_are_named(tmp_path: Path) -> None:
    trace = read(tmp_path, recordings.step_layers(made(), dense=[7, 8]))
    assert calls(trace) == expected([made()])
    assert "layers without routing: 7-8" in trace.notes


GOOD = b'{"step":0,"layer":3,"rank":0,"num_tokens":2,"topk":2,"top_indices":[[4,9],[1,9]]}\n'


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"{\n", "line 2: not JSON"),
        (b"3\n", "line 2: 3; expected an object"),
        (GOOD.replace(b'"step":0', b'"step":-1'), "line 2: step is -1"),
        (GOOD.replace(b'"layer":3', b'"layer":"a"'), "line 2: layer is 'a'"),
        (GOOD.replace(b'"num_tokens":2', b'"num_tokens":3'), "line 2: num_tokens is 3, but top_indices has 2"),
        (GOOD.replace(b'"topk":2', b'"topk":3'), "line 2: topk is 3, but top_indices has 2"),
        (GOOD.replace(b"[1,9]", b"[1]"), r"line 2: top_indices: tokens of 1 and 2 experts \(mixed top-k\)"),
        (GOOD.replace(b"[1,9]", b"7"), "expected a list of expert ids for each token"),
        (GOOD.replace(b"[1,9]", b"[1,99999]"), "expected whole numbers 0 to 32767"),
        (GOOD, "line 2: step 0, layer 3 of rank 0 is also in line 1; expected once: give two recordings as two files"),
        (GOOD.replace(b"[1,9]", b"[3,3]"), r"line 2: a token of \[3, 3\] names an expert twice"),
        (
            b'{"step":1,"layer":3,"top_indices":[[1,2,3]]}\n',
            r"line 2: tokens of 3 experts, but of 2 in line 1 \(mixed top-k\)",
        ),
        (b'{"step":1,"step":5,"layer":3,"top_indices":[[1,2]]}\n', "line 2: key 'step' occurs twice"),
        (b'{"step":1,"layer":3,"top_indices":[[1,2]],"top_indices":[[3,4]]}\n', "'top_indices' occurs twice"),
    ],
)
def test_lines_of_megatron_that_cannot_be_used(tmp_path: Path, line: bytes, found: str) -> None:
    with refused(Malformed, "recording: ", match=found):
        read(tmp_path, GOOD + line + GOOD)
    assert calls(read(tmp_path, GOOD + line, lenient=True))[0][3:] == (2, [4, 9, 1, 9])


def test_ranks_of_megatron(tmp_path: Path) -> None:
    """Ranks that repeat the same tokens count once; others are joined, step by step. Draft layers are left out."""
    one, other = made(1), made(2)
    draft = GOOD.replace(b'"layer"', b'"block":"mtp","mtp_idx":0,"layer"')
    twice = read(tmp_path, recordings.megatron(one) + recordings.megatron(one, rank=1) + draft)
    assert calls(twice) == calls(read(tmp_path, recordings.megatron(one)))
    assert "1 records of multi-token prediction left out" in twice.notes
    joined = read(tmp_path, recordings.megatron(other, rank=1) + recordings.megatron(one))
    both = [np.concatenate([a, b]) for a, b in zip(one.steps, other.steps, strict=True)]
    assert [call[4] for call in calls(joined)] == [
        step[:, layer].ravel().tolist() for step in both for layer in range(3)
    ]
    torn = read(tmp_path, recordings.megatron(one) + b'{"step": 1, "la')
    assert calls(torn) == calls(read(tmp_path, recordings.megatron(one)))
