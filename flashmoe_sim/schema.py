"""Every column that leaves the program: name, type, unit and meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import polars


class Column(NamedTuple):
    """One column of a result row; a value is null where the run could not know it."""

    name: str
    dtype: str
    unit: str
    meaning: str


BANK = (
    Column("bank", "str", "", "slots of each layer or by layer, or bytes of all banks together with their unit"),
    Column("bank_slots", "int", "slots", "slots of each layer; null for a bank in bytes or by layer"),
    Column("bank_bytes", "int", "bytes", "bytes of all banks together; null for slots of each layer"),
)

IDENTITY = (
    Column("id", "str", "", "hash of everything that changes the answer; null if code of your own has no hash"),
    Column("trace", "str", "", "name of the trace"),
    Column("trace_id", "str", "", "hash of the trace's content"),
    Column("model", "str", "", "name of the model whose geometry was used"),
    Column("policy", "str", "", "eviction policy with its parameters"),
    Column("contract", "str", "", "replay contract: when residency is looked up and what may be a victim"),
    Column("prefetch", "str", "", "prefetch predictor"),
    Column("scope", "str", "", "layer: a bank for each layer; global: one bank for all"),
    *BANK,
    Column("io_split", "int", "chunks", "most chunks that one tensor family of an expert is read in"),
    Column("version", "str", "", "version of the program"),
)

COUNTS = (
    Column("tokens", "int", "tokens", "tokens of the workload"),
    Column("calls", "int", "calls", "routed calls"),
    Column("refs", "int", "references", "expert ids in the routed calls, repeats included"),
    Column("requests", "int", "experts", "distinct experts of each call, summed (sequential: references)"),
    Column("hits", "int", "experts", "requests whose expert was resident"),
    Column("misses", "int", "experts", "requests whose expert was not resident"),
    Column("cold_installs", "int", "experts", "installs that displaced nothing"),
    Column("evictions", "int", "experts", "experts displaced to make room"),
    Column("bypassed", "int", "experts", "misses served without an install"),
    Column("aliased_refs", "int", "experts", "distinct experts of a call whose slot another expert of the call has"),
    Column("full_hit_calls", "int", "calls", "calls without a miss; a call without tokens has none"),
    Column("hit_rate", "float", "1", "hits / requests"),
    Column("full_hit_rate", "float", "1", "full_hit_calls / calls"),
    Column("misses_per_call", "float", "experts", "misses / calls"),
    Column("misses_per_token", "float", "experts", "misses / tokens of the workload"),
    Column("bytes_read", "int", "bytes", "bytes of the misses; what was prefetched is not in it"),
    Column("bytes_per_token", "float", "bytes", "bytes_read / tokens of the workload"),
    Column("read_ops", "int", "reads", "reads of the misses, after splitting"),
    Column("prefetch_calls", "int", "calls", "prefetches asked for, each of one layer"),
    Column("prefetch_requests", "int", "experts", "distinct experts of those, summed"),
    Column("prefetch_issued", "int", "experts", "prefetched experts that were not resident, and were read"),
    Column("prefetch_useful", "int", "experts", "of those, how many were hit before they were evicted"),
    Column("prefetch_late", "int", "experts", "of those, how many the very next routed call asked for"),
    Column("prefetch_precision", "float", "1", "share of the experts predicted for a call that it asked for"),
    Column("prefetch_recall", "float", "1", "share of the requests that had been predicted for their call"),
    Column("prefetch_bytes", "int", "bytes", "bytes of prefetch_issued"),
    Column("prefetch_read_ops", "int", "reads", "reads of prefetch_issued, after splitting"),
    Column("prefetch_wasted_bytes", "int", "bytes", "bytes prefetched and never hit"),
    Column(
        "union_over_slots_p50",
        "float",
        "1",
        "median over calls with tokens of requests / slots; null if slots differ by layer",
    ),
    Column(
        "union_over_slots_p99",
        "float",
        "1",
        "99th percentile over calls with tokens of requests / slots; null if slots differ by layer",
    ),
    Column("resident_bytes", "int", "bytes", "memory of the banks"),
    Column(
        "best_hit_rate",
        "float",
        "1",
        "hit rate of min with bypass in the same banks, under atomic, or sequential where the row is",
    ),
    Column("best_bytes_per_token", "float", "bytes", "bytes that it reads per token of the workload"),
)

TIMING = (
    Column("machine", "str", "", "name of the machine that the seconds are of"),
    Column("execution", "str", "", "execution model: in which order a call is read, uploaded and computed"),
    Column("tok_s", "float", "1/s", "decode speed"),
    Column("tok_s_p50", "float", "1/s", "decode speed at the median step"),
    Column("tok_s_lo", "float", "1/s", "lower end of the 90 % interval of tok_s"),
    Column("tok_s_hi", "float", "1/s", "upper end of the 90 % interval of tok_s"),
    Column("ms_per_token", "float", "ms", "1000 / tok_s"),
    Column(
        "bottleneck",
        "str",
        "",
        "read, cpu, upload, compute or none; does-not-fit if the model does not fit",
    ),
)

SAMPLED = (
    Column("trace", "str", "", "name of the trace"),
    Column("policy", "str", "", "eviction policy with its parameters"),
    Column("contract", "str", "", "replay contract"),
    Column("bank_slots", "int", "slots", "slots of each layer"),
    Column("hit_rate", "float", "1", "hits / requests, estimated"),
    Column("hit_rate_lo", "float", "1", "lower end of its 90 % interval"),
    Column("hit_rate_hi", "float", "1", "upper end of its 90 % interval"),
    Column("misses_per_token", "float", "experts", "misses / tokens of the workload, estimated"),
    Column("lru_hit_rate", "float", "1", "hit rate of LRU in the bank under atomic, exact"),
    Column("sampled_layers", "int", "layers", "layers that the policy was replayed in"),
    Column("layers", "int", "layers", "layers of the trace"),
    Column("seed", "int", "", "of the draw"),
)

PREDICTED = (
    Column("source", "str", "", "the line of the table, or the hit rate as it was given"),
    *BANK,
    Column("top_k", "int", "experts", "experts that a routed call asks for"),
    Column("hit_rate", "float", "1", "1 - misses_per_call / top_k"),
    Column("misses_per_call", "float", "experts", "experts of a routed call that are not in the bank"),
    Column(
        "page_cache_share",
        "float",
        "1",
        "share of the misses that the page cache is taken to serve; null where none is read",
    ),
    Column("tok_s", "float", "1/s", "decode speed, predicted"),
    Column("tok_s_lo", "float", "1/s", "lower end of the 90 % interval of tok_s"),
    Column("tok_s_hi", "float", "1/s", "upper end of the 90 % interval of tok_s"),
    Column("ms_per_token", "float", "ms", "1000 / tok_s"),
    Column("measured_tok_s", "float", "1/s", "decode speed in the table, or the middle of its two ends"),
    Column("measured_tok_s_lo", "float", "1/s", "lower end in the table"),
    Column("measured_tok_s_hi", "float", "1/s", "upper end in the table"),
    Column("error", "float", "1", "tok_s / measured_tok_s - 1"),
    Column("does_not_fit", "str", "", "why the bank does not fit the machine; null if it does"),
)

COMPARED = (
    Column("system", "str", "", "name of the system"),
    Column("setting", "str", "", "the system with the settings that differ from its defaults, as --system takes it"),
    Column("engine", "str", "", "the program behind it"),
    Column("why_not", "str", "", "why it cannot run there; null if it can"),
    Column("gpu_bytes", "int", "bytes", "what it keeps in the GPU's memory"),
    Column("ram_bytes", "int", "bytes", "what it keeps in RAM, without mapped files"),
    Column("page_cache_bytes", "int", "bytes", "RAM that is left for the page cache"),
    Column(
        "hit_rate",
        "float",
        "1",
        "share of the requests whose expert was where it is computed; without a bank, in the page cache",
    ),
    Column(
        "aliased_share",
        "float",
        "1",
        "share of the references computed with another expert than the routed one; null if the engine cannot do so",
    ),
    Column("miss_bytes_per_token", "float", "bytes", "bytes of the experts that were not, per token"),
    Column("storage_bytes_per_token", "float", "bytes", "bytes read from storage, per token"),
    Column("tok_s", "float", "1/s", "decode speed, predicted"),
    Column("tok_s_lo", "float", "1/s", "lower end of the 90 % interval of tok_s"),
    Column("tok_s_hi", "float", "1/s", "upper end of the 90 % interval of tok_s"),
    Column("prompt_tok_s", "float", "1/s", "prompt speed; null if the trace has no prompt"),
    Column("prompt_tok_s_lo", "float", "1/s", "lower end of its 90 % interval; null if no prompt was asked for"),
    Column("prompt_tok_s_hi", "float", "1/s", "upper end of its 90 % interval; null if no prompt was asked for"),
    Column("read_ms", "float", "ms", "of a token's time, waiting for reads"),
    Column("upload_ms", "float", "ms", "waiting for uploads"),
    Column("cpu_ms", "float", "ms", "waiting for experts that the CPU computes beside the GPU"),
    Column("compute_ms", "float", "ms", "computing: layers, experts, output"),
    Column("host_ms", "float", "ms", "on the host: finding slots, installing"),
    Column("command", "str", "", "the command line that starts it so"),
)

PARTS = (
    Column("tokens", "int", "tokens", "decoded tokens of the part; the last row is the whole trace"),
    Column("setting", "str", "", "the setting that the part leads to; null if nothing can be timed on it"),
    Column("tok_s", "float", "1/s", "its decode speed, predicted from the part alone"),
    Column(
        "seconds_more", "float", "1", "what it takes more on the whole trace than the whole trace's choice, a share"
    ),
)

TRANSFERS = (
    Column("tuned_on", "str", "", "name of the trace that led to the setting"),
    Column("scored_on", "str", "", "name of the trace that it is replayed on"),
    Column("setting", "str", "", "the setting that the first leads to; null if nothing can be timed on it"),
    Column("own_setting", "str", "", "the setting that the second leads to; null if nothing can be timed on it"),
    Column(
        "seconds_more", "float", "1", "what the first takes more there than the second, a share; null if it cannot run"
    ),
    Column(
        "seconds_more_with_profile",
        "float",
        "1",
        "the same with the profile of the whole first trace; null if the system makes no profile of a trace",
    ),
    Column("why_not", "str", "", "why the setting does not run on the second trace; null if it does"),
)

ALLOCATED = (
    Column("layer", "int", "", "number of the layer in the model"),
    Column("expert_bytes", "int", "bytes", "bytes of one of its experts"),
    Column("asked_slots", "int", "slots", "its slots in the bank asked for"),
    Column("slots", "int", "slots", "its slots in the best bank by layer"),
    Column("asked_misses", "int", "experts", "what it misses in the bank asked for"),
    Column("misses", "int", "experts", "what it misses in the best bank by layer"),
)

OF_SEVERAL_TRACES = (
    *BANK,
    Column("policy", "str", "", "eviction policy with its parameters"),
    Column("contract", "str", "", "replay contract"),
    Column("prefetch", "str", "", "prefetch predictor"),
    Column("scope", "str", "", "layer: a bank for each layer; global: one bank for all"),
    Column("machine", "str", "", "name of the machine"),
    Column("execution", "str", "", "execution model"),
    Column("traces", "int", "traces", "traces with this row"),
    Column("hit_rate", "float", "1", "mean of their hit rates, each trace counting the same"),
    Column("hit_rate_min", "float", "1", "lowest of them"),
    Column("hit_rate_max", "float", "1", "highest of them"),
    Column("best_hit_rate", "float", "1", "mean of best_hit_rate; null if a trace has none"),
    Column("tok_s", "float", "1/s", "mean decode speed; null if the model does not fit with some trace"),
    Column("tok_s_min", "float", "1/s", "lowest decode speed"),
    Column("tok_s_max", "float", "1/s", "highest decode speed"),
    Column(
        "wins",
        "int",
        "traces",
        "traces in which no other row of the bank and machine hits more, or is faster, without knowing the future; "
        "null for what knows it",
    ),
)

RESULT_COLUMNS = IDENTITY + COUNTS + TIMING
LAYER = Column("layer", "int", "", "number of the layer in the model")
LAYER_COLUMNS = (*IDENTITY, LAYER, *COUNTS)


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column] = RESULT_COLUMNS) -> polars.DataFrame:
    """The rows as a table with exactly these columns; null where a row does not have one."""
    import polars

    types = {"str": polars.String, "int": polars.Int64, "float": polars.Float64}
    return polars.DataFrame(list(rows), schema={column.name: types[column.dtype] for column in columns})


def markdown() -> str:
    """The page of all columns, as it stands in `docs/reference/columns.md`."""
    lines = [
        "# Columns",
        "",
        "The columns of `results.parquet`, `results.csv`, the rows of `sim sweep --json` and the tables of",
        "`flashmoe_sim.api`, in this order. `counts` of `sim replay --json` and its `layers` have those of the second",
        "table; what is of one layer has its number too, as `layer`. A value is null where the run could not know it:",
        "bytes without a model, timing without a machine. `sim sweep --json` also has `identity`, every value of the",
        "columns that name a row; `warnings`; and `left_out`, the setups without a row, each with its reason.",
    ]
    for title, columns in (("Who", IDENTITY), ("Counts", COUNTS), ("Timing", TIMING)):
        lines += ["", f"## {title}", "", *_table(columns)]
    lines += [
        "",
        "## Sampled",
        "",
        "`curve` of `sim curve --sample --json`, and the table of `api.curve` with `sample`.",
    ]
    lines += [""]
    lines += _table(SAMPLED)
    lines += ["", "## Predicted from rates", "", "`rows` of `sim predict --json`, and the table of `api.predict`.", ""]
    lines += _table(PREDICTED)
    lines += ["", "## Systems compared", "", "`rows` of `sim compare --json`, and the table of `api.compare`.", ""]
    lines += _table(COMPARED)
    lines += ["", "## Parts of a trace", "", "The choice of a size that the first tokens of a trace lead to.", ""]
    lines += _table(PARTS)
    lines += ["", "## From one trace to another", "", "What the choice that one trace leads to costs on another.", ""]
    lines += _table(TRANSFERS)
    lines += ["", "## Slots by layer", "", "`layers` of `sim allocate --json`, and the table of `api.allocate`.", ""]
    lines += _table(ALLOCATED)
    lines += ["", "## Over several traces", "", "`summary` of `sim sweep --json`, if there are several traces.", ""]
    lines += _table(OF_SEVERAL_TRACES)
    return "\n".join(lines) + "\n"


def _table(columns: Sequence[Column]) -> list[str]:
    rows = [f"| `{column.name}` | {column.dtype} | {column.unit} | {column.meaning} |" for column in columns]
    return ["| column | type | unit | meaning |", "|---|---|---|---|", *rows]
