"""Tables whose columns a person names."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, TooLarge, UnknownName
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.trace.check import LEAST_TOKENS, LEAST_USES, always_used, begins_at_1
from flashmoe_sim.trace.lint import lint
from flashmoe_sim.trace.requests import Hints, ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, PHASE_UNKNOWN, RoutingTrace
from flashmoe_sim.trace.table import read_table
from flashmoe_sim.trace.table_columns import Columns
from tests.residency.builders import geometry_of
from tests.support import refused
from tests.trace.recordings import Made, calls, expected, in_file_order, made

ONE = made()


def frame(one: Made = ONE) -> pl.DataFrame:
    """A row for each token and layer, in the order of an engine."""
    rows = in_file_order(one)
    steps = [0 if prompt else position - one.prompt + 1 for prompt, position, _, _ in rows]
    return pl.DataFrame(
        {
            "blk": [layer for _, _, layer, _ in rows],
            "pos": [position for _, position, _, _ in rows],
            "s": steps,
            "stage": ["prefill" if prompt else "generation" for prompt, _, _, _ in rows],
            "ids": [ids for *_, ids in rows],
            **{f"id{rank}": [ids[rank] for *_, ids in rows] for rank in range(3)},
        }
    )


def parquet(table: pl.DataFrame) -> bytes:
    stream = io.BytesIO()
    table.write_parquet(stream)
    return stream.getvalue()


def read(
    tmp_path: Path, content: bytes | str, columns: str, *, hints: Hints | None = None, **more: Any
) -> RoutingTrace:
    path = tmp_path / "table"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    named = dict(part.split("=") for part in columns.split(","))
    return read_table([path], Columns(columns=named, **more), ReadOptions(hints=hints or Hints()))


WRITTEN: dict[str, bytes] = {
    "csv": frame().drop("ids").write_csv().encode(),
    "utf-16": frame().drop("ids").write_csv().encode("utf-16"),
    "utf-16-be": "\ufeff".encode("utf-16-be") + frame().drop("ids").write_csv().encode("utf-16-be"),
    "tabs": frame().drop("ids").write_csv(separator="\t").encode(),
    "jsonl": frame().write_ndjson().encode(),
    "json": json.dumps(frame().to_dicts()).encode(),
    "parquet": parquet(frame()),
}


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("order", ["position=pos", "step=s"])
def test_every_kind_of_table(tmp_path: Path, kind: str, order: str) -> None:
    experts = "id*" if kind in ("csv", "utf-16", "utf-16-be", "tabs") else "ids"
    trace = read(tmp_path, WRITTEN[kind], f"layer=blk,expert={experts},phase=stage,{order}")
    assert calls(trace) == expected([ONE])
    assert trace.top_k == 3


def test_rows_with_positions_may_stand_in_any_order(tmp_path: Path) -> None:
    shuffled = frame().sample(fraction=1, shuffle=True, seed=3)
    trace = read(
        tmp_path, parquet(shuffled), "layer=blk,expert=ids,phase=stage,position=pos", hints=Hints(prefill_chunk=3)
    )
    assert calls(trace) == expected([ONE], chunk=3)


def test_a_row_for_each_expert_and_weights(tmp_path: Path) -> None:
    long = frame().select("blk", "pos", "ids").explode("ids").with_columns(w=pl.col("ids") / 16)
    trace = read(tmp_path, long.write_csv(), "layer=blk,expert=ids,weight=w,position=pos", hints=Hints(prompt_tokens=7))
    assert calls(trace) == expected([ONE])
    assert trace.weight is not None
    assert (trace.weight == (trace.expert / 16).astype(np.float32)).all()


@pytest.mark.parametrize("name", ["e0", "e1"])
def test_one_of_several_experts_is_noted(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("step,layer,e0,e1,e_count\n0,0,1,2,2\n1,0,3,2,2\n")
    other = {"e0": "e1", "e1": "e0"}[name]
    trace = read_table([path], Columns(columns={"step": "step", "layer": "layer", "expert": name}))
    assert trace.notes[-1] == f"expert={name} leaves out {other}; to read all of them as experts of a token: expert=e*"
    whole = read_table([path], Columns(columns={"step": "step", "layer": "layer", "expert": "e*"}))
    assert whole.expert.tolist() == [1, 2, 3, 2]
    assert not any("leaves out" in note for note in whole.notes)


def test_several_requests(tmp_path: Path) -> None:
    other = made(5, prompt=3)
    both = pl.concat([frame().with_columns(r=pl.lit("b")), frame(other).with_columns(r=pl.lit("a"))])
    trace = read(tmp_path, parquet(both), "layer=blk,expert=ids,phase=stage,position=pos,request=r")
    assert calls(trace) == expected([ONE, other])


def test_a_file_for_each_layer(tmp_path: Path) -> None:
    """As the traces of FLAME-MoE are stored."""
    paths = []
    for layer in range(3):
        paths.append(tmp_path / f"layer_{layer + 2}.parquet")
        paths[-1].write_bytes(parquet(frame().filter(pl.col("blk") == layer).drop("blk")))
    columns = Columns(columns={"expert": "ids", "position": "pos"}, layer_from_name=r"layer_(\d+)")
    trace = read_table(paths, columns, ReadOptions(hints=Hints(prompt_tokens=7)))
    assert calls(trace) == expected([ONE], layers=[2, 3, 4])
    columns = Columns(columns={"expert": "ids", "step": "s"}, layer_from_name=r"layer_(\d+)")
    assert [call[3:] for call in calls(read_table(paths, columns))] == [call[3:] for call in expected([ONE])]
    with pytest.raises(Conflict, match="finds no number in its name"):
        read_table(paths, Columns(columns={"expert": "ids"}, layer_from_name="x(y)"))
    with pytest.raises(Incomplete, match="several files without an order"):
        read_table(paths, Columns(columns={"expert": "ids"}, layer_from_name=r"(\d+)"))


def test_events_are_chosen(tmp_path: Path) -> None:
    """The JSON lines of a fork of llama.cpp, which also contain other events."""
    events: list[dict[str, Any]] = [{"event": "start", "layer": 1}]
    for prompt, position, layer, ids in in_file_order(ONE):
        phase = "prefill" if prompt else "generation"
        events.append({"event": "moe_topk", "phase": phase, "token_index": position, "layer": layer, "experts": ids})
    text = "\n".join(map(json.dumps, events))
    columns = "layer=layer,expert=experts,phase=phase,position=token_index"
    assert calls(read(tmp_path, text, columns, where=("event", "moe_topk"))) == expected([ONE])
    with pytest.raises(Malformed, match="no row of it is left; check --where"):
        read(tmp_path, text, columns, where=("event", "none"))


def test_columns_without_names_and_runs(tmp_path: Path) -> None:
    text = frame().select("s", "blk", "id0", "id1", "id2").write_csv(include_header=False)
    trace = read(tmp_path, text, "layer=1,expert=2,step=0", header=False, hints=Hints(top_k=1))
    assert [call[4] for call in calls(trace)] == [call[4][::3] for call in expected([ONE])]
    rows = "a,b\n" + "".join(f"{layer},{expert}\n" for layer in (0, 1, 0, 1) for expert in range(4))
    by_run = read(tmp_path, rows, "layer=a,expert=b", call_by="run", hints=Hints(top_k=2))
    assert by_run.n_tokens.tolist() == [2, 2, 2, 2]


PLAIN, IDS, STEPS = WRITTEN["csv"], "layer=blk,expert=ids", "layer=l,expert=e,step=p"
TEXTS = 'l,e\n0,1 2\n1,"{}"\n'
UNEQUAL = parquet(pl.DataFrame({"l": [0, 1], "e": [[1, 2], [3]]}))


@pytest.mark.parametrize(
    ("content", "columns", "records", "kind", "found"),
    [
        (PLAIN, "layer=blk,expert=nothing", None, UnknownName, "'nothing'; known: blk, "),
        (PLAIN, "layer=blk,expert=x*", None, UnknownName, "'x*'"),
        (PLAIN, "layer=stage,expert=id0", None, Malformed, "row 1: stage is 'prefill'; expected a layer's number"),
        (PLAIN, "layer=blk,expert=id0,phase=pos", None, Malformed, "; expected one of prompt, prefill, decode"),
        (PLAIN, "layer=blk,expert=id*,position=pos", None, Incomplete, "nothing says which of them are the prompt;"),
        (PLAIN, "layer=blk", None, Incomplete, "--columns names no expert"),
        (PLAIN, "layer=blk,expert=id0,size=s", None, UnknownName, "unknown field of --columns 'size'"),
        (PLAIN, "layer=blk,expert=id0,weight=stage", None, Malformed, "row 1: stage is 'prefill'; expected a number"),
        (PLAIN, "layer=blk,expert=id*,weight=s", None, Malformed, "weights and experts are not lists of one length"),
        # a column that is there twice
        ("p,l,e,e\n0,0,1,2\n", STEPS, None, Malformed, "two columns are called 'e'; rename or remove one"),
        ("# made by hand\np;l;e;x;e\n0;0;1;1;2\n", STEPS, None, Malformed, "two columns are called 'e'"),
        ('{"p":0,"l":0,"e":1}\n{"l":0,"e":1,"e":2,"p":0}\n', STEPS, None, Malformed, "line 2: key 'e' occurs twice"),
        ('[{"l":0,"e":1,"e":2,"p":0}]', STEPS, None, Malformed, "key 'e' occurs twice"),
        # lists, and texts that are none
        (UNEQUAL, "layer=l,expert=e", None, Malformed, "column 'e' has lists of 1 and 2 entries (mixed top-k)"),
        (UNEQUAL[:-5], "layer=l,expert=e", None, Malformed, "damaged Parquet"),
        (TEXTS.format("3 x"), "layer=l,expert=e", None, Malformed, "row 2: e is '3 x'; expected a number, or several"),
        (TEXTS.format("[[0, 1], [2, 3]]"), "layer=l,expert=e", None, Malformed, "expected a number, or several"),
        (TEXTS.format("1.5 2"), "layer=l,expert=e", None, Malformed, "row 2: e is 1.5; expected a whole number"),
        (TEXTS.format("1 2 3"), "layer=l,expert=e", None, Malformed, "lists of 2 and 3 entries (mixed top-k)"),
        (TEXTS.format(""), "layer=l,expert=e", None, Malformed, "lists of 0 and 2 entries"),
        # objects and lists where one value is expected
        ('[{"p":0,"l":0,"e":[{"id":1}]}]', STEPS, None, Malformed, "row 1: e is {'id': 1}; expected a whole number"),
        ('[{"p":0,"l":{"n":0},"e":1}]', STEPS, None, Malformed, "row 1: l is {'n': 0}; expected a whole number"),
        ('[{"p":[0],"l":0,"e":1}]', STEPS, None, Malformed, "p is [0]; expected a whole number"),
        ('[{"p":{"t":0},"l":0,"e":1}]', "layer=l,expert=e,time=p", None, Malformed, "expected a time as a number, or"),
        ('[{"p":{"t":0},"l":0,"e":1}]', "layer=l,expert=e,phase=p", None, Malformed, "expected one of prompt, "),
        ('[{"p":{"t":0},"l":0,"e":1}]', "layer=l,expert=e,request=p", None, Malformed, "expected a request's name"),
        ('[{"p":{"t":0},"l":0,"e":1}]', "layer=l,expert=e,weight=p", None, Malformed, "expected a number"),
        # rows under a key of a document
        ('{\n"data": [{"l": 1, "e": 2}]}', STEPS, None, Incomplete, "the key under which its rows are: --records KEY"),
        ('{"data": [{"a": 1}], "meta": 1}', IDS, None, UnknownName, "known: data, meta; rows under a key: --recor"),
        ('{"data": [{"a": 1}]}', IDS, "rows", UnknownName, "--records rows: no key 'rows'; there are data"),
        ('{"data": {"rows": 5}}', IDS, "data.rows", Malformed, "--records data.rows: is 5; expected a list of objects"),
        ('{"data": 5}', IDS, "data.rows", UnknownName, "--records data.rows: no key 'rows'; there are no keys but 5"),
        ('{"data": [1, 2]}', IDS, "data", Malformed, "expected a list of objects"),
        ('{"data": ', IDS, "data", Malformed, "--records data: not one JSON document"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_used(
    tmp_path: Path, content: bytes | str, columns: str, records: str | None, kind: type[BadInput], found: str
) -> None:
    with refused(kind, found):
        read(tmp_path, content, columns, records=records)


def test_a_column_that_is_not_read_may_be_there_twice(tmp_path: Path) -> None:
    assert read(tmp_path, "p,l,e,x,x\n0,0,1,2,3\n", STEPS).expert.tolist() == [1]


def test_a_row_with_a_list_of_experts_for_each_token(tmp_path: Path) -> None:
    """As a hook prints what a pass routes: the same trace as with a row for each token; a call of no token is none."""
    columns = "layer=l,expert=e,step=s,weight=w"
    rows = [
        {"s": 0, "l": 1, "e": [[1, 2], [0, 3]], "w": [[0.75, 0.25], [0.5, 0.5]]},
        {"s": 0, "l": 2, "e": [[4, 5], [6, 7]], "w": [[0.875, 0.125], [1.0, 0.0]]},
        {"s": 1, "l": 1, "e": [], "w": []},
        {"s": 1, "l": 1, "e": [[2, 3]], "w": [[0.5, 0.5]]},
        {"s": 1, "l": 2, "e": [[0, 5]], "w": [[0.25, 0.75]]},
    ]
    one_by_one = [row | {"e": e, "w": w} for row in rows for e, w in zip(row["e"], row["w"], strict=True)]  # type: ignore[call-overload]
    alone = read(tmp_path, "\n".join(map(json.dumps, one_by_one)), columns)
    for content in ("\n".join(map(json.dumps, rows)), json.dumps(rows), parquet(pl.DataFrame(rows))):
        trace = read(tmp_path, content, columns)
        assert calls(trace) == calls(alone)
        assert trace.n_tokens.tolist() == alone.n_tokens.tolist() == [2, 2, 1, 1]
        assert np.array_equal(trace.weight, alone.weight)  # type: ignore[arg-type]
    with refused(Conflict, match="has the experts of several tokens in a row, which has one position; give step="):
        read(tmp_path, json.dumps(rows), "layer=l,expert=e,position=s")
    rows[0]["w"] = [[0.75, 0.25]]
    with refused(Malformed, match="columns e and w differ in their number of tokens"):
        read(tmp_path, json.dumps(rows), columns)


def test_json_lines_that_are_cut_off_or_malformed(tmp_path: Path) -> None:
    """As other readers take them: a torn last line is dropped with a note, others are refused or skipped."""
    lines = [json.dumps({"s": step, "l": 1, "e": [step, step + 1]}) + "\n" for step in range(4)]
    columns = "layer=l,expert=e,step=s"
    cut = read(tmp_path, "".join(lines)[:-6], columns)
    assert (cut.calls, list(cut.notes)) == (3, ["the last line (4) is torn and was dropped"])
    assert read(tmp_path, "\ufeff" + "".join(lines), columns).calls == 4
    malformed = "".join([*lines[:2], '{"s":\n', *lines[2:]])
    with refused(Malformed, match=r"table: line 3: not JSON .*; repair the line, or skip such lines with --lenient"):
        read(tmp_path, malformed, columns)
    path, named = tmp_path / "table", Columns(columns={"layer": "l", "expert": "e", "step": "s"})
    kept = read_table([path], named, ReadOptions(lenient=True))
    assert kept.calls == 4
    assert [note[:25] for note in kept.notes] == ["skipped 1 malformed line;"]


@pytest.mark.parametrize("order", ["", ",position=pos"])
def test_rows_are_put_in_the_order_of_their_times(tmp_path: Path, order: str) -> None:
    """Requests stand in the order they began; rows of one time stay as they are."""
    other = made(5, prompt=3)
    early = frame(other).with_columns(r=pl.lit("z"), at=pl.col("s") * 0.5)
    late = frame().with_columns(r=pl.lit("a"), at=pl.col("s") + 100.0)
    shuffled = pl.concat([late, early]).sample(fraction=1, shuffle=True, seed=3)
    rows = shuffled if order else shuffled.sort("r", "s", "blk", "pos", descending=[False, True, False, False])
    trace = read(tmp_path, parquet(rows), f"layer=blk,expert=ids,phase=stage,request=r,time=at,step=s{order}")
    assert [call[1:] for call in calls(trace)] == [call[1:] for call in expected([other, ONE])]
    assert trace.sequence[0] == 0
    dated = rows.with_columns(at=pl.from_epoch(pl.col("at").cast(pl.Int64) * 2 + pl.col("s")))
    assert read(tmp_path, parquet(dated), f"layer=blk,expert=ids,phase=stage,request=r,time=at{order},step=s").calls
    with pytest.raises(Malformed, match=r"row 1: stage is '\w+'"):
        read(tmp_path, parquet(rows), f"layer=blk,expert=ids,time=stage{order}")


def passes(seed: int = 0) -> list[list[tuple[str, str, np.ndarray]]]:
    """Passes of an engine that reads prompts in chunks beside decoded tokens: request, phase and ids of each token."""
    rng = np.random.default_rng(seed)
    left = {"a": (4, 9), "b": (11, 6), "c": (3, 12)}  # prompt and decoded tokens of each request
    found = []
    while any(sum(tokens) for tokens in left.values()):
        tokens = []
        for request, (prompt, decoded) in left.items():
            chunk = min(prompt, 3)
            tokens += [(request, "prefill")] * chunk or [(request, "decode")] * min(decoded, 1)
            left[request] = (prompt - chunk, decoded) if chunk else (0, max(decoded - 1, 0))
        found.append([(*token, np.argsort(rng.random((2, 12)), axis=1)[:, :2]) for token in tokens])
    return found


MIXED = pl.DataFrame(
    [
        {"it": number, "l": layer, "r": request, "stage": stage, "e0": ids[layer, 0], "e1": ids[layer, 1]}
        for number, tokens in enumerate(passes())
        for layer in range(2)
        for request, stage, ids in tokens
    ]
)


@pytest.mark.parametrize("more", ["", ",phase=stage", ",request=r", ",phase=stage,request=r"])
def test_a_step_is_one_pass_over_all_of_its_tokens(tmp_path: Path, more: str) -> None:
    """A prompt's chunk and the tokens decoded beside it share a call, as they share a read of each expert."""
    trace = read(tmp_path, MIXED.write_csv(), f"layer=l,expert=e*,step=it{more}")
    counted = [[np.concatenate([ids[layer] for *_, ids in tokens]) for layer in range(2)] for tokens in passes()]
    assert [one.tolist() for one in np.split(trace.expert, trace.offset[1:-1])] == [
        layer.tolist() for step in counted for layer in step
    ]
    assert trace.n_tokens.tolist() == [len(tokens) for tokens in passes() for _ in range(2)]
    assert trace.steps.tolist() == np.repeat(np.arange(len(passes())), 2).tolist()
    kept = [note for note in trace.notes if "of the calls have" in note]
    assert len(kept) == more.count("=")
    if "phase" in more:
        stages = [{stage for _, stage, _ in tokens} for tokens in passes()]
        assert trace.phase[::2].tolist() == [
            PHASE_UNKNOWN if len(one) > 1 else PHASE_PROMPT if "prefill" in one else PHASE_DECODE for one in stages
        ]


def test_steps_that_each_request_counts_for_itself(tmp_path: Path) -> None:
    rows = MIXED.sort("r", "it", "l", maintain_order=True)
    own = rows.with_columns(it=pl.col("it") - pl.col("it").min().over("r"))
    trace = read(tmp_path, own.write_csv(), "layer=l,expert=e*,step=it,phase=stage,request=r")
    assert trace.calls == 2 * own.select("r", "it").n_unique()
    assert trace.sequence is not None
    assert any("each request counts its own steps" in note for note in trace.notes)


def test_the_user_is_told_if_a_step_may_be_one_pass(tmp_path: Path) -> None:
    """Rows that go through the layers for each request are as many passes, unless they are sorted."""
    text = MIXED.sort("it", "r", "l", maintain_order=True).write_csv()
    trace = read(tmp_path, text, "layer=l,expert=e*,step=it,phase=stage,request=r")
    assert any("of the steps go over the layers more than once" in note for note in trace.notes)
    placed = MIXED.with_columns(p=pl.col("it").cum_count().over("r", "l") - 1)
    trace = read(tmp_path, placed.write_csv(), "layer=l,expert=e*,step=it,phase=stage,request=r,position=p")
    assert any("step= is not used beside position=" in note for note in trace.notes)


def test_a_shared_step_in_several_files(tmp_path: Path) -> None:
    whole = read(tmp_path, MIXED.write_csv(), "layer=l,expert=e*,step=it")
    paths = [tmp_path / f"layer_{layer}.csv" for layer in range(2)]
    for layer, path in enumerate(paths):
        path.write_text(MIXED.filter(pl.col("l") == layer).write_csv())
    columns = {"layer": "l", "expert": "e*", "step": "it", "request": "r"}
    assert calls(read_table(paths, Columns(columns=columns))) == calls(whole)


def test_an_expert_that_every_token_uses_is_asked_about(tmp_path: Path) -> None:
    rows = [
        {"l": layer, "it": step, "e0": step * 5 % 12, "e1": (step * 3 + 1) % 12, "e2": 12}
        for step in range(40)
        for layer in range(2)
    ]
    table = pl.DataFrame(rows)
    shared = read(tmp_path, table.write_csv(), "layer=l,expert=e*,step=it")
    assert always_used(shared) == 12
    (finding,) = [finding for finding in lint(shared) if finding.code == "shared-expert"]
    assert finding.message == "every token of every layer uses expert 12"
    assert finding.advice == "is it a shared one? `sim trace import --shared 12` leaves it out"
    once_less = table.with_columns(e2=pl.when(pl.int_range(pl.len()) == 30).then(11).otherwise(pl.col("e2")))
    without = read(tmp_path, table.drop("e2").write_csv(), "layer=l,expert=e*,step=it")
    for other in (read(tmp_path, once_less.write_csv(), "layer=l,expert=e*,step=it"), without):
        assert always_used(other) is None
    for tokens, found in ((LEAST_USES // 2, 12), (LEAST_USES // 2 - 1, None)):  # of two layers
        few = read(tmp_path, table.head(2 * tokens).write_csv(), "layer=l,expert=e*,step=it")
        assert always_used(few) == found
    one = read(tmp_path, table.filter(pl.col("l") == 0).head(LEAST_TOKENS).write_csv(), "layer=l,expert=e*,step=it")
    assert always_used(one) is None
    assert always_used(read(tmp_path, table.drop("e0", "e1").write_csv(), "layer=l,expert=e2,step=it")) is None


def test_ids_that_begin_at_1(tmp_path: Path) -> None:
    one = MIXED.with_columns(pl.col("e0", "e1") + 1)
    right = read(tmp_path, MIXED.write_csv(), "layer=l,expert=e*,step=it")
    wrong = read(tmp_path, one.write_csv(), "layer=l,expert=e*,step=it")
    assert begins_at_1(wrong)
    assert not begins_at_1(right)
    (finding,) = [finding for finding in lint(wrong) if finding.code == "no-expert-0"]
    assert "do your ids begin at 1?" in finding.advice
    assert calls(read(tmp_path, one.write_csv(), "layer=l,expert=e*,step=it", first_id=1)) == calls(right)
    with pytest.raises(Malformed, match=r"row 1: e\d+ is .*; expected a whole number 5\.\.32772"):
        read(tmp_path, MIXED.with_columns(e0=pl.lit(4)).write_csv(), "layer=l,expert=e0,step=it", first_id=5)
    model = geometry_of({0: 1, 1: 1}, {0: 12, 1: 12})
    with pytest.raises(Conflict, match=r"has 12 experts there; give the model .*; do your ids begin at 1\?"):
        prepare(wrong, model)
    with pytest.raises(Malformed, match=r"it has 12, numbered from 0; do your ids begin at 1\?"):
        prepare(wrong.with_(n_experts={0: 12, 1: 12}))
    few = one.head(6)
    assert not begins_at_1(read(tmp_path, few.write_csv(), "layer=l,expert=e*,step=it"))


@pytest.mark.parametrize("columns", ["layer=l,expert=e*,step=it", "layer=l,expert=e*,position=it"])
def test_a_model_is_checked(tmp_path: Path, columns: str) -> None:
    rows = MIXED.group_by("it", "l", maintain_order=True).first().with_columns(pl.col("e0", "e1") + 1)
    hints = Hints(model={0: 12, 1: 12}, phase="decode")
    with pytest.raises(Conflict, match=r"expert 12 in layer \d, which has 12 in the model.*do your ids begin at 1\?"):
        read(tmp_path, rows.write_csv(), columns, hints=hints)
    right = read(tmp_path, rows.write_csv(), columns, hints=hints, first_id=1)
    assert (dict(right.n_experts), right.n_experts_known) == ({0: 12, 1: 12}, True)
    with pytest.raises(Conflict, match="layers 1 are routed, but the model routes in 0"):
        read(tmp_path, rows.write_csv(), columns, hints=Hints(model={0: 12}, phase="decode"), first_id=1)


def test_a_table_that_grows_beyond_its_bytes(tmp_path: Path) -> None:
    """Repeated values take nearly no bytes in Parquet; and a row of a table that was misread may have any length."""
    zeros = np.zeros(4_000_000, np.int64)
    table = parquet(pl.DataFrame({"p": zeros, "l": zeros, "e": zeros}))
    with pytest.raises(TooLarge, match=r"12,000,000 values in [0-9,]+ bytes"):
        read(tmp_path, table, "layer=l,expert=e,position=p", hints=Hints(phase="decode"))
    with pytest.raises(Malformed, match=r"token of it has routing|names an expert twice|mixed") as error:
        read(tmp_path, parquet(pl.DataFrame({"p": zeros, "l": zeros, "e": zeros}).head(6000)),
             "layer=l,expert=e,position=p", hints=Hints(phase="decode"))  # fmt: skip
    assert len(str(error.value)) < 400


def test_many_requests_of_one_token(tmp_path: Path) -> None:
    """Each is a sequence of its own; ten times as many take about ten times the memory."""
    peaks = []
    for count in (500, 500, 5_000):  # the first one imports and compiles
        lines = [f'{{"r":{number},"pos":0,"blk":0,"ids":{number % 64}}}' for number in range(count)]
        tracemalloc.start()
        trace = read(
            tmp_path, "\n".join(lines), "layer=blk,expert=ids,position=pos,request=r", hints=Hints(phase="decode")
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (trace.calls, trace.tokens) == (count, count)
        assert trace.expert.tolist() == [number % 64 for number in range(count)]
        assert np.unique(trace.sequence).size == count
    assert peaks[2] < 12 * peaks[1]


@pytest.mark.parametrize("text", ["model.layers.{}.mlp.experts", "blk.{}", "layer_{}"])
def test_layers_and_phases_as_logs_write_them(text: str, tmp_path: Path) -> None:
    words = {"prefill": " PREFILL", "generation": "Decode"}
    named = frame().with_columns(blk=pl.format(text, "blk"), stage=pl.col("stage").replace_strict(words))
    found = read(tmp_path, named.drop("ids").write_csv(), "layer=blk,expert=id*,step=s,phase=stage")
    plain = read(tmp_path, frame().drop("ids").write_csv(), "layer=blk,expert=id*,step=s,phase=stage")
    assert calls(found) == calls(plain)
    with pytest.raises(Malformed, match=r"row 1: blk is 'b0.c1'"):
        read(tmp_path, "blk,e\nb0.c1,2\n", "layer=blk,expert=e")


def test_rows_under_a_key_of_a_document(tmp_path: Path) -> None:
    document = {"meta": {"version": 3}, "run": {"data": frame().to_dicts()}}
    found = read(tmp_path, json.dumps(document), "layer=blk,expert=ids,step=s", records="run.data")
    assert calls(found) == calls(read(tmp_path, WRITTEN["json"], "layer=blk,expert=ids,step=s"))


def test_shared_experts_are_dropped_from_lists_and_from_rows(tmp_path: Path) -> None:
    plain = read(tmp_path, WRITTEN["jsonl"], "layer=blk,expert=ids,step=s")
    lists = frame().with_columns(ids=pl.col("ids").list.concat(pl.lit(200)))
    dropped = Hints(shared=(200,))
    found = read(tmp_path, lists.write_ndjson(), "layer=blk,expert=ids,step=s", hints=dropped)
    assert calls(found) == calls(plain)
    one_a_row = [table.explode("ids").write_csv() for table in (lists, frame())]
    found = read(tmp_path, one_a_row[0], "layer=blk,expert=ids,step=s", hints=dropped)
    assert calls(found) == calls(read(tmp_path, one_a_row[1], "layer=blk,expert=ids,step=s"))
    with pytest.raises(Conflict, match="expected each shared one once: 200, 201"):
        read(tmp_path, lists.write_ndjson(), "layer=blk,expert=ids,step=s", hints=Hints(shared=(200, 201)))


@pytest.mark.parametrize("row", ["[np.int64(4), np.int64(7)]", "['4', '7']", "array([4, 7], dtype=int32)", "{4, 7}"])
def test_lists_as_python_prints_them(tmp_path: Path, row: str) -> None:
    trace = read(tmp_path, f'p,l,e\n0,1,"{row}"\n1,1,"{row}"\n', STEPS)
    assert (trace.calls, trace.expert.tolist()) == (2, [4, 7, 4, 7])


def test_whole_numbers_as_pandas_writes_those_of_a_column_with_gaps(tmp_path: Path) -> None:
    trace = read(tmp_path, "i,p,l,e\n0,0.0,1.0,3.0\n1,1.0,1.0,4.0\n", STEPS)
    assert (trace.calls, trace.layer.tolist(), trace.expert.tolist()) == (2, [1, 1], [3, 4])


@pytest.mark.parametrize("time", ["2026-05-01T12:00:{:02}.5Z", "2026-05-01 12:00:{:02},500", "2026-05-01T12:00:{:02}"])
def test_times_as_logs_write_them(tmp_path: Path, time: str) -> None:
    rows = "".join(f"{time.format(second).replace(',', '.')},1,{second}\n" for second in (3, 1, 2))
    assert read(tmp_path, f"t,l,e\n{rows}", "layer=l,expert=e,time=t", hints=Hints(top_k=1)).expert.tolist() == [
        1,
        2,
        3,
    ]


def test_positions_that_may_count_from_1(tmp_path: Path) -> None:
    rows = "".join(f"{position},1,{position % 4}\n" for position in range(1, 8))
    trace = read(tmp_path, f"p,l,e\n{rows}", "layer=l,expert=e,position=p", hints=Hints(prompt_tokens=3))
    assert any("if they count from 1, give --prompt-tokens 4" in note for note in trace.notes)


AROUND = ["{}", "[{}]", "({})", '"{}"', "' {} '", "tensor([{}])", "tensor([{}], device='cuda:0')", "[{}]  ", "<{}>"]


@pytest.mark.parametrize("between", [" ", "  ", ", ", ",", ";", "|", " | ", ":", "/", "-", "_"])
@pytest.mark.parametrize("written", AROUND)
def test_lists_in_texts(tmp_path: Path, written: str, between: str) -> None:
    experts = [[0, 3, 6, 9], [1, 4, 17, 10], [5, 8, 11, 14], [6, 9, 12, 15]]
    path = tmp_path / "a.parquet"
    texts = [written.format(between.join(map(str, row))) for row in experts]
    pl.DataFrame({"layer_id": [0, 1, 0, 1], "expert_ids": texts}).write_parquet(path)
    trace = read_table([path], Columns(columns={"layer": "layer_id", "expert": "expert_ids"}))
    assert trace.expert.reshape(-1, 4).tolist() == experts
    assert (trace.calls, trace.tokens, trace.top_k) == (4, 2, 4)


def test_lists_of_weights_in_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("l;e;w\n0;3,1;0.75 2.5e-1\n1;2,0;[5e-1 .5]\n")
    trace = read_table([path], Columns(columns={"layer": "l", "expert": "e", "weight": "w"}))
    assert trace.weight is not None
    assert trace.weight.tolist() == [0.75, 0.25, 0.5, 0.5]
