"""Every column that leaves the program: name, type, unit and meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import polars


class Column(NamedTuple):
    """One column of a result row; an unknown value is null."""

    name: str
    dtype: str
    unit: str
    meaning: str


BANK = (
    Column("bank", "str", "", "slots of each layer, bytes of all banks with a unit, or a share of the experts"),
    Column("bank_slots", "int", "slots", "slots of each layer, of the largest for a share; null for a bank in bytes"),
    Column("bank_bytes", "int", "bytes", "bytes of all banks; null otherwise"),
)

IDENTITY = (
    Column("id", "str", "", "hash of everything that changes the result; null if your own code has no hash"),
    Column("trace", "str", "", "name of the trace"),
    Column("trace_id", "str", "", "hash of the trace's content"),
    Column("model", "str", "", "model whose geometry was used"),
    Column("policy", "str", "", "eviction policy with its parameters"),
    Column("contract", "str", "", "replay contract"),
    Column("prefetch", "str", "", "prefetch predictor"),
    Column("scope", "str", "", "`layer`: a bank for each layer; `global`: one bank"),
    *BANK,
    Column("io_split", "int", "chunks", "most chunks in one read of a tensor family"),
    Column("version", "str", "", "program version"),
)

COUNTS = (
    Column("tokens", "int", "tokens", "tokens of the workload"),
    Column("calls", "int", "calls", "routed calls"),
    Column("refs", "int", "references", "expert ids in the routed calls, with repeats"),
    Column("requests", "int", "experts", "distinct experts of each call, summed (`sequential`: references)"),
    Column("hits", "int", "experts", "requests with a resident expert"),
    Column("misses", "int", "experts", "requests with an expert that was not resident"),
    Column(
        "cold_installs",
        "int",
        "experts",
        "first fills: misses installed into an empty slot; a prefetch is none of them",
    ),
    Column("evictions", "int", "experts", "experts that misses evicted; those that a prefetch evicts are not counted"),
    Column("bypassed", "int", "experts", "misses served without an install"),
    Column("minor_misses", "int", "experts", "misses of minor experts, which a rule makes cheaper (`minor`)"),
    Column("aliased_refs", "int", "experts", "experts of a call that share a slot with another expert of the call"),
    Column("full_hit_calls", "int", "calls", "calls without a miss, calls without tokens included"),
    Column("hit_rate", "float", "1", "hits / requests"),
    Column("full_hit_rate", "float", "1", "full_hit_calls / calls"),
    Column("misses_per_call", "float", "experts", "misses / calls"),
    Column("misses_per_token", "float", "experts", "misses / tokens"),
    Column("bytes_read", "int", "bytes", "bytes of the misses, without prefetches"),
    Column("bytes_per_token", "float", "bytes", "bytes_read / tokens"),
    Column("read_ops", "int", "reads", "reads of the misses, after `io_split`"),
    Column("prefetch_calls", "int", "calls", "prefetches requested, each of one layer"),
    Column("prefetch_requests", "int", "experts", "distinct experts of these prefetches, summed"),
    Column("prefetch_issued", "int", "experts", "prefetched experts that had to be read"),
    Column("prefetch_useful", "int", "experts", "prefetch_issued that were hit before their eviction"),
    Column("prefetch_late", "int", "experts", "prefetch_issued that the very next call asked for"),
    Column("prefetch_precision", "float", "1", "share of the predicted experts that their call asked for"),
    Column("prefetch_recall", "float", "1", "share of the requests that were predicted for their call"),
    Column("prefetch_bytes", "int", "bytes", "bytes of prefetch_issued"),
    Column("prefetch_read_ops", "int", "reads", "reads of prefetch_issued, after `io_split`"),
    Column("prefetch_wasted_bytes", "int", "bytes", "bytes prefetched and never hit"),
    Column(
        "union_over_slots_p50",
        "float",
        "1",
        "median of requests / slots over calls with tokens; null for a bank without slots",
    ),
    Column(
        "union_over_slots_p99",
        "float",
        "1",
        "its 99th percentile; null for a bank without slots",
    ),
    Column("resident_bytes", "int", "bytes", "memory of the banks"),
    Column(
        "best_hit_rate",
        "float",
        "1",
        "hit rate of `min` in the same banks, under `atomic` (or `sequential` if the row is)",
    ),
    Column("best_bytes_per_token", "float", "bytes", "bytes per token that `min` reads"),
)

TIMING = (
    Column("machine", "str", "", "machine of the seconds"),
    Column("execution", "str", "", "execution model"),
    Column("tok_s", "float", "1/s", "decode speed"),
    Column("tok_s_p50", "float", "1/s", "decode speed at the median step"),
    Column("tok_s_lo", "float", "1/s", "lower end of the 90% interval of tok_s"),
    Column("tok_s_hi", "float", "1/s", "upper end of the 90% interval of tok_s"),
    Column("ms_per_token", "float", "ms", "1000 / tok_s"),
    Column(
        "bottleneck",
        "str",
        "",
        "`read`, `cpu`, `upload`, `compute` or `none`; `does-not-fit` if the model does not fit",
    ),
)

SAMPLED = (
    Column("trace", "str", "", "name of the trace"),
    Column("policy", "str", "", "eviction policy with its parameters"),
    Column("contract", "str", "", "replay contract"),
    Column("bank_slots", "int", "slots", "slots of each layer; null for a bank in bytes"),
    Column("hit_rate", "float", "1", "hits / requests, estimated"),
    Column("hit_rate_lo", "float", "1", "lower end of its 90% interval"),
    Column("hit_rate_hi", "float", "1", "upper end of its 90% interval"),
    Column("misses_per_token", "float", "experts", "misses / tokens, estimated"),
    Column("lru_hit_rate", "float", "1", "exact hit rate of LRU in the same bank under `atomic`"),
    Column("sampled_layers", "int", "layers", "layers in which the policy was replayed"),
    Column("layers", "int", "layers", "layers of the trace"),
    Column("seed", "int", "", "seed of the draw"),
)

PREDICTED = (
    Column("source", "str", "", "line of the table, or the given hit rate"),
    *BANK,
    Column("top_k", "int", "experts", "experts of a routed call"),
    Column("hit_rate", "float", "1", "1 - misses_per_call / top_k"),
    Column("misses_per_call", "float", "experts", "experts of a routed call outside the bank"),
    Column(
        "page_cache_share",
        "float",
        "1",
        "assumed share of the misses served by the page cache; null if nothing is read",
    ),
    Column("tok_s", "float", "1/s", "decode speed"),
    Column("tok_s_lo", "float", "1/s", "lower end of the 90% interval of tok_s"),
    Column("tok_s_hi", "float", "1/s", "upper end of the 90% interval of tok_s"),
    Column("ms_per_token", "float", "ms", "1000 / tok_s"),
    Column("measured_tok_s", "float", "1/s", "decode speed in the table, or the middle of its range"),
    Column("measured_tok_s_lo", "float", "1/s", "lower end of the range in the table"),
    Column("measured_tok_s_hi", "float", "1/s", "upper end of the range in the table"),
    Column("error", "float", "1", "tok_s / measured_tok_s - 1"),
    Column("does_not_fit", "str", "", "why the bank does not fit the machine; null if it does"),
)

JUDGED = (
    Column("trace", "str", "", "name of the trace; null for the mean over several"),
    Column("traces", "int", "", "traces of the row"),
    *(column for column in IDENTITY if column.name in ("bank", "policy", "prefetch")),
    Column("against", "str", "", "policy that it is judged against, in the same bank"),
    *(column for column in IDENTITY if column.name == "contract"),
    *(column for column in TIMING if column.name == "machine"),
    *(column for column in COUNTS if column.name == "hit_rate"),
    Column("more_hits", "float", "1", "hit_rate minus the hit rate of `against`"),
    Column("more_hits_lo", "float", "1", "lower end of its interval; null if too few steps are known"),
    Column("more_hits_hi", "float", "1", "upper end of its interval"),
    Column("ahead", "int", "", "traces on which it hits more"),
    Column("tok_s", "float", "1/s", "decode speed on the machine; null without one"),
    Column("gain", "float", "1", "how many times as fast as `against` it decodes; null without a machine"),
    Column("gain_lo", "float", "1", "lower end of its interval"),
    Column("gain_hi", "float", "1", "upper end of its interval"),
    Column("faster", "int", "", "traces on which it is faster; null without a machine"),
    Column(
        "p",
        "float",
        "1",
        "chance of a gain this large if there is none, without a machine of such a difference in hits; corrected for "
        "all policies, banks and machines",
    ),
)

FITTED = (
    Column("trace", "str", "", "trace that the parameters are judged on"),
    Column("fitted_on", "str", "", "traces that they are fitted on, or `its first half`"),
    *(column for column in IDENTITY if column.name in ("bank", "policy")),
    Column("against", "str", "", "the policy with the parameters that it was given with"),
    *(column for column in IDENTITY if column.name == "contract"),
    *(column for column in COUNTS if column.name == "hit_rate"),
    *(column for column in JUDGED if column.name.startswith(("more_hits", "tok_s", "gain"))),
    Column("best_policy", "str", "", "the best candidate on the text it is judged on: hindsight"),
    Column("hindsight_hit_rate", "float", "1", "its hit rate"),
    Column("hindsight_tok_s", "float", "1/s", "its decode speed on the machine; null without one"),
)

VICTIMS = (
    *(column for column in IDENTITY if column.name in ("trace", "bank", "policy", "contract")),
    Column("layer", "int", "", "layer of the bank; null for all layers together"),
    *(column for column in COUNTS if column.name in ("hit_rate", "misses")),
    Column(
        "misses_over_min", "int", "experts", "how many more misses than `min` has in the same banks; null if unknown"
    ),
    Column("victims", "int", "experts", "residents that the policy chose to evict"),
    Column("optimal_victims", "float", "1", "share of victims whose next use is the latest of all candidates"),
    Column("victim_rank", "float", "1", "mean share of the other candidates whose next use is later than the victim's"),
)

COMPARED = (
    Column("system", "str", "", "name of the system"),
    Column("setting", "str", "", "the system with its settings other than defaults, as --system takes them"),
    Column("engine", "str", "", "the engine"),
    Column("why_not", "str", "", "why it cannot run on the machine; null if it can"),
    Column("gpu_bytes", "int", "bytes", "GPU memory that it uses"),
    Column("ram_bytes", "int", "bytes", "RAM that it uses, without mapped files"),
    Column("held_bytes", "int", "bytes", "RAM that it uses, with what RAM holds of mapped files"),
    Column(
        "gpu_free_bytes", "int", "bytes", "GPU memory that it leaves free, of which a driver and a desktop use some"
    ),
    Column("ram_free_bytes", "int", "bytes", "RAM that it leaves free beside the system's, if mapped files are in it"),
    Column("page_cache_bytes", "int", "bytes", "RAM left for the page cache"),
    Column(
        "hit_rate",
        "float",
        "1",
        "hits / requests; without a bank, the share found in the page cache",
    ),
    Column(
        "aliased_share",
        "float",
        "1",
        "share of the references computed with another expert's weights; null if the engine never does so",
    ),
    Column("miss_bytes_per_token", "float", "bytes", "bytes of the missed experts per token"),
    Column("storage_bytes_per_token", "float", "bytes", "bytes read from storage per token"),
    Column("tok_s", "float", "1/s", "decode speed"),
    Column("tok_s_lo", "float", "1/s", "lower end of the 90% interval of tok_s"),
    Column("tok_s_hi", "float", "1/s", "upper end of the 90% interval of tok_s"),
    Column("filled_tok_s", "float", "1/s", "decode speed with the whole context filled; null unless it is given"),
    Column("filled_tok_s_lo", "float", "1/s", "lower end of its 90% interval"),
    Column("filled_tok_s_hi", "float", "1/s", "upper end of its 90% interval"),
    Column("undrafted_tok_s", "float", "1/s", "tok_s without drafts; null without --draft"),
    Column("break_even_accept", "float", "", "acceptance from which drafts pay; null: never"),
    Column("prompt_tok_s", "float", "1/s", "prompt speed; null if the trace has no prompt"),
    Column("prompt_tok_s_lo", "float", "1/s", "lower end of its 90% interval; null without a prompt"),
    Column("prompt_tok_s_hi", "float", "1/s", "upper end of its 90% interval; null without a prompt"),
    Column("read_ms", "float", "ms", "token time spent waiting for reads"),
    Column(
        "upload_ms",
        "float",
        "ms",
        "token time spent waiting for uploads, or for copies into the bank of a GPU that shares the RAM",
    ),
    Column("cpu_ms", "float", "ms", "token time spent waiting for the CPU's experts"),
    Column("compute_ms", "float", "ms", "token time spent computing"),
    Column("host_ms", "float", "ms", "token time on the host: finding slots, installing"),
    Column("command", "str", "", "command line that starts the system"),
)
RUNS_HERE = (
    Column("model", "str", "", "model, with its quantization"),
    Column("quantization", "str", "", "of the file"),
    Column("file_bytes", "int", "bytes", "the file's size"),
    Column("weights_b", "float", "10^9", "all weights"),
    Column("active_b", "float", "10^9", "weights that a token uses"),
    Column("runs", "str", "", "`well`, `slowly` or `no`"),
    Column("likely", "float", "1", "share of the draws in which it reaches `at_least_tok_s`"),
    *(
        column
        for column in COMPARED
        if column.name
        in ("system", "setting", "why_not", "gpu_bytes", "held_bytes", "tok_s", "tok_s_lo", "tok_s_hi", "command")
    ),
)

BY_DEPTH = (
    *(column for column in COMPARED if column.name == "setting"),
    Column("depth", "int", "tokens", "tokens in the context before the run"),
    *(column for column in COMPARED if column.name in ("tok_s", "tok_s_lo", "tok_s_hi")),
)

PARTS = (
    Column("tokens", "int", "tokens", "decoded tokens of the part; the last row has the whole trace"),
    Column("setting", "str", "", "setting chosen from the part; null if the part cannot be timed"),
    Column("tok_s", "float", "1/s", "decode speed predicted from the part alone"),
    Column(
        "seconds_more",
        "float",
        "1",
        "extra time over the whole trace's own choice, on the whole trace, as a share",
    ),
)

TRANSFERS = (
    Column("tuned_on", "str", "", "trace from which the setting was chosen"),
    Column("scored_on", "str", "", "trace on which the setting is replayed"),
    Column("setting", "str", "", "setting chosen from `tuned_on`; null if it cannot be timed"),
    Column("own_setting", "str", "", "setting chosen from `scored_on`; null if it cannot be timed"),
    Column(
        "seconds_more",
        "float",
        "1",
        "extra time of `setting` over `own_setting` there, as a share; null if it cannot run",
    ),
    Column(
        "seconds_more_with_profile",
        "float",
        "1",
        "the same with the profile of all of `tuned_on`; null if the system has no profile",
    ),
    Column("why_not", "str", "", "why `setting` cannot run on `scored_on`; null if it can"),
)

OF_SEVERAL_TRACES = (
    *BANK,
    Column("policy", "str", "", "eviction policy with its parameters"),
    Column("contract", "str", "", "replay contract"),
    Column("prefetch", "str", "", "prefetch predictor"),
    Column("scope", "str", "", "`layer`: a bank for each layer; `global`: one bank"),
    Column("machine", "str", "", "machine of the seconds"),
    Column("execution", "str", "", "execution model"),
    Column("traces", "int", "traces", "traces with this row"),
    Column("hit_rate", "float", "1", "mean hit rate, each trace counting the same"),
    Column("hit_rate_min", "float", "1", "lowest hit rate"),
    Column("hit_rate_max", "float", "1", "highest hit rate"),
    Column("best_hit_rate", "float", "1", "mean of best_hit_rate; null if a trace has none"),
    Column("tok_s", "float", "1/s", "mean decode speed; null if the model does not fit for some trace"),
    Column("tok_s_min", "float", "1/s", "lowest decode speed"),
    Column("tok_s_max", "float", "1/s", "highest decode speed"),
    Column(
        "wins",
        "int",
        "traces",
        "traces in which no row of the bank and machine is better without knowing the future; null if it knows it",
    ),
)

RESULT_COLUMNS = IDENTITY + COUNTS + TIMING
LAYER = Column("layer", "int", "", "layer number in the model")
LAYER_COLUMNS = (*IDENTITY, LAYER, *COUNTS)
REQUEST = Column("request", "int", "", "number of the request in the trace; null if the trace does not record it")
OF_STEPS = tuple(
    column
    for column in COUNTS
    if column.name
    in (
        *("tokens", "calls", "requests", "hits", "misses", "cold_installs", "evictions", "bypassed", "aliased_refs"),
        *("hit_rate", "bytes_read", "prefetch_issued", "prefetch_bytes"),
    )
)
STEP_COLUMNS = (
    *IDENTITY,
    Column("step", "int", "", "number of the step in the trace"),
    REQUEST,
    Column("phase", "str", "", "`prompt` or `decode`; null if it is not known"),
    *OF_STEPS,
)
REQUEST_COLUMNS = (*IDENTITY, REQUEST, Column("steps", "int", "", "steps of the request"), *OF_STEPS)


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column] = RESULT_COLUMNS) -> polars.DataFrame:
    """The rows as a table with exactly these columns; null if a row lacks one."""
    import polars

    return polars.DataFrame(list(rows), schema={column.name: _type(column) for column in columns})


def shaped(table: polars.DataFrame, columns: Sequence[Column]) -> polars.DataFrame:
    """The table with exactly these columns; null if it lacks one."""
    import polars

    each = [polars.col(one.name) if one.name in table.columns else polars.lit(None).alias(one.name) for one in columns]
    return table.select(one.cast(_type(column)) for one, column in zip(each, columns, strict=True))


def _type(column: Column) -> Any:
    import polars

    return {"str": polars.String, "int": polars.Int64, "float": polars.Float64}[column.dtype]


GROUPS = (
    ("Identity", "", IDENTITY),
    ("Counts", "", COUNTS),
    ("Timing", "", TIMING),
    ("Sampled", "`curve` of `sim curve --sample --json`, and the table of `api.curve` with `sample`.", SAMPLED),
    ("By step", 'The table of `api.replay` with `by="step"`.', STEP_COLUMNS),
    ("By request", 'The table of `api.replay` with `by="request"`.', REQUEST_COLUMNS),
    ("Policies judged", "`rows` of `sim policy judge --json`, and the table of `api.judge_policies`.", JUDGED),
    ("Parameters fitted", "`rows` of `sim policy fit --json`, and the table of `api.fit_policy`.", FITTED),
    ("Victims", "`rows` of `sim policy victims --json`, and the table of `api.victims`.", VICTIMS),
    ("Predicted from rates", "`rows` of `sim predict --json`, and the table of `api.predict`.", PREDICTED),
    ("Systems compared", "`rows` of `sim compare --json`, and the table of `api.compare`.", COMPARED),
    ("What runs", "`rows` of `sim recommend --json` without a model.", RUNS_HERE),
    ("As the context fills", "The rows of `sim.figures.speeds_by_depth`.", BY_DEPTH),
    ("Parts of a trace", "The setting chosen from the first tokens of a trace.", PARTS),
    ("From one trace to another", "What a setting chosen from one trace costs on another.", TRANSFERS),
    ("Over several traces", "`summary` of `sim sweep --json`, if there are several traces.", OF_SEVERAL_TRACES),
)
HEAD = """\
# Columns

`results.parquet`, `results.csv`, the rows of `sim sweep --json` and the tables of `flashmoe_sim.api` have the first
three groups, in this order. `sim replay --json` has *Counts* in `counts`, and in `layers` for each `layer`. An unknown
value is null: bytes without a model, timing without a machine. `sim sweep --json` also has `identity` (what names a
row), `warnings`, and `left_out`: setups without a row, with the reason. All `--json` prints an object with `version`; a
list is under its name, such as `policies`.
"""


def markdown() -> str:
    """The page of all columns, `docs/reference/columns.md`; a column is explained once."""
    explained: set[Column] = set()
    lines = [HEAD]
    for title, about, columns in GROUPS:
        lines += [f"## {title}", ""]
        known = ", ".join(f"`{column.name}`" for column in columns if column in explained)
        also = f"Explained above: {known}." if known else ""
        if about or also:
            lines += [" ".join(filter(None, (about, also))), ""]
        lines += ["| column | type, unit | meaning |", "|---|---|---|"]
        lines += [_row(column) for column in columns if column not in explained]
        lines += [""]
        explained |= set(columns)
    return "\n".join(lines)


def _row(column: Column) -> str:
    kind = f"{column.dtype}, {column.unit}" if column.unit.strip("1") else column.dtype
    return f"| `{column.name}` | {kind} | {column.meaning} |"
