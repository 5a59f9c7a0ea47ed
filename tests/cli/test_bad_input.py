"""Bad input: one line on stderr that says what is wrong, exit 2, nothing on stdout and nothing written."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest
import zstandard

from flashmoe_sim.field.rows import read_rows
from native_bridge.cli.main import main
from reports.field.report import PUBLISHED, TABLES
from tests.geometry.conftest import document, entry, write
from tests.machines.builders import FULL
from tests.measured import bench
from tests.native_bridge.conftest import MODEL
from tests.support.cases import refused_in, rows
from tests.trace import recordings

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
    "there.html": b"mine",
    "bench.json": bench.as_json([bench.row()]).encode(),
    "torn-table/results.parquet": b"PAR1",
    "mine.toml": FULL.replace("read_gb_s", "read").encode(),
    "torn.toml": FULL[: FULL.index("]\nram_gib")].encode(),
    "bad.jsonl": b'"one"\n{"text": "two"}\n',
    "speeds.csv": b"bank,tok_s\n16,4\n",
    "huge.csv": b"bank,hit_pct\n4000GiB,50\n",
    "many.csv": b"misses_per_call\n5\n",
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


WORDS = {
    "add": "field add bench.json",
    "on": "--machine 'rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4 + linux'",
    "said": "--source me/my-pc --url https://example.org/my-pc",
    "tiny": MODEL,
    "known": read_rows(PUBLISHED / TABLES[0])[0].id,
    "long": "x" * 300,
    "parts": "'rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + nvme-gen4'",
    "qwen": "--model qwen3.5-35b-a3b:ud-iq2_m --machine m5-max-128",
}
# Arguments of `sim`, and what its one line contains, or, after `not: `, does not contain.
TABLE = r"""
replay empty --bank 4 | sim: empty | is empty | expected a routing trace
replay binary --bank 4 | sim: binary | a binary file or not UTF-8 | known trace formats: parquet
replay folder --bank 4 | sim: folder | is a directory | give a trace file inside it
replay missing --bank 4 | sim: missing | no such file, nor a bundled trace | python-256
replay goood --bank 4 | sim: goood | no such file, nor a bundled trace; did you mean 'good'?
replay qwen3.5-35b-a3b:q4_k_m --bank 4 | sim: qwen3.5-35b-a3b:q4_k_m | is a model, not a trace; give --model
sweep good,python-256 --bank 4 | sim: good,python-256 | several traces in one word | : good python-256
replay missing/trace.jsonl --bank 4 | sim: missing/trace.jsonl | no such file
replay good/trace.jsonl --bank 4 | sim: good/trace.jsonl | Not a directory
replay {long} --bank 4 | sim: {long} | no such file, nor a bundled trace
replay folder/{long} --bank 4 | sim: folder/{long} | name too long
replay note.txt --bank 4 | sim: note.txt | begins with 'Dear diary, | no format claims it
replay negative --bank 4 | sim: negative | :2: found expert id -1 | expected an integer from 0 to 32767 | --lenient
replay short --bank 4 | sim: short | :2: found 1 experts, expected 2 (n_expert_used 2 x n_tokens 1)
replay latin-1 --bank 4 | sim: latin-1 | :2: found bytes that are not UTF-8
replay torn --bank 4 | sim: torn | :2: found invalid JSON (unexpected end of data, column 31)
replay corrupt.gz --bank 4 | sim: corrupt.gz | broken gzip data | copy or record the file again
replay cut.gz --bank 4 | sim: cut.gz | its gzip data is cut off; copy or record it again, or read up to there with
replay corrupt.zst --bank 4 | sim: corrupt.zst | broken zstd data | copy or record the file again
replay cut.zst --bank 4 | sim: cut.zst | its zstd data is cut off; copy or record it again, or read up to there with
replay long-line.gz --bank 4 | sim: long-line.gz | :2: found a line longer than 67108864 bytes
replay long-first-line.gz --bank 4 | sim: long-first-line.gz | :1: found a line longer than 67108864 bytes
replay long-pairs.gz --bank 4 | sim: long-pairs.gz | line 1 is longer than 1 MiB
replay digits.gz --bank 4 | sim: digits.gz | begins with '1111 | no format claims it
replay good --bank 16 --execution sync-install | --execution: how a model runs on a machine
replay good --bank 16 --dense 2GiB --kv 1GiB | --dense, --kv: how a model runs on a machine
replay good --bank 16 --context 512 | --context: how a model runs on a machine
replay good --bank 16 --machine rtx-3090 --context -1 | --context -1; expected a number of tokens from 0
replay good | sim replay: Missing option '--bank'
replay good --bank 8..16 | bank '8..16'
replay good --bank 4 --policy min | policy min is undefined under the contract protected | --contract atomic
replay --bnk 16 | No such option '--bnk' | '--bank'
replay --bank 4 | sim replay: Missing argument 'TRACE'
replay good good --bank 4 | sim replay: Got unexpected extra argument (good)
replay gpt-oss-120b --bank 16 --machine 'rtx-309 + 8GiB' | sim: unknown part 'rtx-309'; did you mean 'rtx-3090'
recommend --machine rtx-4090 --buy --budget $600 | '$600': expected a number alone, without a unit, such as 600
recommend --machine rtx-4090 --buy --target tenfold | 'tenfold': expected a number alone, without a unit
recommend --machine rtx-4090 --target inf | '--target': 'inf' is not a finite number
recommend gpt-oss-120b --machine rtx-4090 --drafter mtp | --drafter mtp: says how tokens are drafted; give
recommend gpt-oss-120b --machine rtx-4090 --draft 3 --accept 0.5 --drafter mtp | has no layer that drafts tokens
recommend --machine rtx-3060 --save x.md | --save is about one model; give it: --model
recommend deepseek-v2-lite --machine rtx-3060 --target 10 | add --buy
recommend deepseek-v2-lite --machine rtx-3060 --buy | write the machine as parts
recommend deepseek-v2-lite --machine {parts} --prices mine.csv | --prices is for --buy; add it
recommend deepseek-v2-lite --machine {parts} --budget 9 | --budget is for --buy; add it
recommend deepseek-v2-lite --machine rtx-3060 --save a.txt | ends in .md or .html
recommend deepseek-v2-lite --machine rtx-3060 --objective prompt | --prompt-tokens 4000
recommend deepseek-v2-lite --machine rtx-3060 --prompt-tokens 9 | --objective prompt or
recommend deepseek-v2-lite --machine rtx-3060 --system slot-bank:slots=2 | 6 experts
recommend deepseek-v2-lite --model olmoe-1b-7b --machine rtx-3060 | olmoe-1b-7b
recommend --model kimi-k2,olmoe-1b-7b --machine rtx-3060,m1-8 | give one model
recommend --model a,b --machine rtx-3060 --buy | make one table
recommend --machine rtx-3060 --buy | --buy is about one model; give it: --model gpt-oss-20b
recommend --machine rtx-3060 --draft 3 | --draft is about one model; give it
recommend --machine all | several machines: give one model, or one machine to see which models run there
recommend olmoe-1b-7b --machine rtx-3060 --at-least 5 | --at-least chooses among all models; leave out
recommend --machine rtx-3O60 | unknown machine 'rtx-3O60'
recommend --machine m2-16 --reserve much | --reserve 'much': expected a size with its unit
trace merge good good --step-ms inf --out new.parquet | '--step-ms': 'inf' is not a finite number
trace inspect empty | sim: empty: is empty
trace lint empty | sim: empty: is empty
trace convert empty new.parquet | sim: empty: is empty
trace merge good good --how union --stagger 10000000000000000000 --out new.parquet | expected 0 to 2147483647
trace merge good good --how interleave --every 10000000000000000000 --out new.parquet | expected 1 to 2147483647
trace merge good --how union --out new.parquet | sim: one trace only; give at least two to merge
trace merge --how union --out new.parquet | Missing argument 'TRACE...'
trace merge good good --out new.parquet | give --concurrency for a server's batches, or --how union, concat or inter
trace merge good good --how union --concurrency 2 --out new.parquet | give --concurrency for a server's batches, or
trace merge good --concurrency 2 --out new.parquet | good: a single request; give a trace of several sequences, or m
trace merge good good --concurrency 0 --out new.parquet | '--concurrency': 0 is not in the range x>=1
trace merge good good --how concat --prefill-chunk 9 --out new.parquet | belong to --concurrency, not --how concat
trace merge good good --concurrency 2 --arrivals good --out new.parquet | --arrivals needs --step-ms
trace merge good good --concurrency 2 --step-ms 3 --out new.parquet | --step-ms belongs to --arrivals
trace merge good good --concurrency 2 --stagger 3 --out new.parquet | --stagger belongs to --how union, not
trace merge good good --concurrency 2 --every 3 --out new.parquet | --every does not belong to --concurrency
trace merge good good --how union | Missing option '--out'
trace merge good good --how mix --out new.parquet | 'mix' is not one of 'union', 'concat', 'interleave'
trace merge good good --how concat --stagger 3 --out new.parquet | --stagger belongs to --how union, not --how concat
trace merge good good --how union --stagger=-3 --out new.parquet | '--stagger': -3 is not in the range x>=0
trace merge good good --how union --every 3 --out new.parquet | --every does not belong to --how union
trace merge good good --how interleave --out new.parquet | --how interleave needs --every
trace merge good good --how interleave --every 0 --out new.parquet | '--every': 0 is not in the range x>=1
trace merge good good --how union --out new.txt | new.txt: the name gives no format
trace merge good good --how union --to parquet --out out/results.csv | out/results.csv: exists; give --force
trace merge good missing --how union --out new.parquet | sim: missing: no such file
trace merge good short --how union --out new.parquet | :2: found 1 experts, expected 2
trace merge good python-256 --how union --out new.parquet | of different models: layers 0-1 and 0-5
trace speculate good --draft 2 | Missing option '--out'
trace speculate good --out new.parquet | Missing option '--draft'
trace speculate good --draft x --out new.parquet | '--draft': 'x' is not a valid integer
trace speculate good --draft=-1 --out new.parquet | draft -1 tokens; expected 0 to 64
trace speculate good --draft 2 --accept 1.2 --out new.parquet | accept 1.2; expected a probability, 0 to 1
trace speculate good --draft 2 --accept often --out new.parquet | '--accept': 'often' is not a valid float
trace speculate good --draft 2 --rejected best --out new.parquet | unknown stand-in for rejected tokens 'best'; known:
trace speculate good --draft 2 --seed=-1 --out new.parquet | seed -1; expected at least 0
trace speculate good --draft 2 --out new.parquet | good: no two decode steps of one token in a row
trace synth --null uniform | sim trace synth: Missing option '--out'
trace synth --null uniform --out new.txt | new.txt: the name gives no format
trace synth  --out new.parquet | sim: give one of a hit curve, a trace to imitate and a null model
trace synth --curve 2:0.5 --tokens 9 --out new.parquet | layers, experts and top-k are unknown; give them, or a model
trace synth --curve 2:0.5 --layers 2 --out new.parquet | layers, experts and top-k say what is routed only together
trace synth --curve 2:0.5 --layers 2 --model right --out new.parquet | the model gives layers and experts
trace synth --curve 2:0.5 --model right --out new.parquet | the number of tokens is unknown; give it
trace synth --curve 2:0.5 --model right --tokens x --out new.parquet | '--tokens': 'x' is not a valid integer
trace synth --curve 2:0.5 --model right --tokens 0 --out new.parquet | 0 tokens after a prompt of 0; expected at least
trace synth --curve 2:0.5 --model right --tokens 9 --topk 3 --out new.parquet | top-k 3:  | routes at most 2 experts a
trace synth --curve 2:0.5 --model right --tokens 9 --seed=-1 --out new.parquet | seed -1; expected 0 or a positive
trace synth --curve folder --model right --tokens 9 --out new.parquet | sim: folder: Is a directory; give a CSV file
trace synth --curve binary --model right --tokens 9 --out new.parquet | sim: binary:
trace synth --curve out/results.csv --model right --tokens 9 --out new.parquet | results.csv: no rows under its header
trace synth --like missing --out new.parquet | sim: missing: no such file, nor a bundled trace
trace synth --like one-expert --out new.parquet | one-expert: layer 0 has no two tokens in a row
trace synth --like good --curve-tokens 9 --out new.parquet | tokens of the curve without a curve
trace synth --null shuffled --like good --tokens 9 --out new.parquet | a null model of a trace has that trace's tokens
trace inspct | No such command 'inspct' | 'inspect'
trace cut good o.parquet | nothing to cut
trace cut good o.parquet --layers 3-1 | must go up
trace cut good o.parquet --layers a | 'a' is not a number or a range
trace cut good o.parquet --layers 0-99999999 | no further than 32767
trace cut good o.parquet --steps 5 | expected A:B
trace cut good o.parquet --steps 5:5 | keeps nothing
trace cut good o.parquet --steps 500: | nothing is left
trace cut good o.parquet --topk 9 | top-k 9, but call 0 has 2
trace cut good o.parquet --topk x | not a valid integer
trace convert good o.txt | the name gives no format
trace convert good o.parquet --to xml | 'xml' is not one of
trace convert missing o.parquet | missing: no such file
trace inspect good --bank 0 | a bank of 0 slots
trace inspect good --bank x | --bank 'x'
trace inspect . | .: is a directory
trace lint good --model no-such-model | no-such-model
trace inspect | Missing argument
trace transmogrify | No such command
trace import routing.npy --out a.parquet | nothing says which of them are the prompt; give --prompt-tokens P or --phase
trace import routing.npy --out a.txt --phase decode | the name gives no format
trace import routing.npy --out a.parquet --axes layer,k --phase decode | --axes layer,k: expected token, layer and k
trace import routing.npy --out a.parquet --moe-layers 3-x --phase decode | --moe-layers '3-x'
trace import steps.json --out a.parquet --top-k 3 | steps.json: step-layers needs no options; leave --top-k out
trace import steps.json steps.json --out a.parquet | several files are ranks of SGLang's recorder, or with --columns
trace import log.csv --out a.parquet --where a=b | --where belongs to --columns; give both
trace import log.csv --out a.parquet --first-id 1 | --first-id belongs to --columns; give both
trace import log.csv --out a.parquet --columns layer | --columns 'layer': expected NAME=COLUMN
trace import log.csv --out a.parquet --columns layer=blk,expert=e0,expert=e1 | names expert twice; name it once
trace import log.csv --out a.parquet --columns layer=blk,expert=e*,step=pos --where blk | --where 'blk': expected NAME=
sweep empty --bank 4 | sim: empty: is empty
sweep good missing --bank 4 | sim: missing: no such file
sweep --bank 0 | bank 0: expected at least one slot or byte; give --bank 64 or --bank 8GiB
sweep --bank=-1 | bank '-1': expected slots, bytes or a share
sweep --bank abc | bank 'abc': expected slots, bytes or a share of the experts, such as 64, 8GiB or 12.5%
sweep --bank 16..8 | bank range '16..8' goes down: write the smaller bank first, 8..16
sweep --bank 16,32 --bank-step x2 | bank step 'x2': --bank 16,32 has no range to step through
sweep --bank 16 --execution foo | --execution: how a model runs on a machine; give --machine too
sweep --bank 16 --direct-io --hot | --direct-io, --hot: how a model runs on a machine; give --machine too
sweep good --bank 16 --machine rtx-3090 --kv-type q8 | unknown --kv-type 'q8'; did you mean 'q8_0'
sweep --bank 257 | bank 257: a layer of python-256 has 256 experts; give at most --bank 256
sweep --bank 257,300 | bank 257
sweep --bank 99999999999999999999 | bank  | 99999999999999999999
sweep good --bank 1..3 | bank 1: call 0 of good (layer 0) asks for 2 distinct experts | needs 4 slots
sweep good --bank 3 | bank 3: call 3 of good (layer 1) asks for 4 distinct experts | --contract atomic streams
sweep good --bank 8GiB | bank 8GiB | needs the size of an expert | --model
sweep --bank 100B | bank 100B | do not hold one expert
sweep --bank 8..32 --bank-step no | bank step 'no': expected auto, a number to add such as 16, or a factor
sweep  | sim sweep: Missing option '--bank'. Give --bank SIZES: 16..256 (a range)
sweep --bank 16 --policy lur | unknown policy 'lur'; did you mean 'lru'?
sweep --bank 16 --policy lru, | unknown policy ''
sweep --bank 16 --policy lru:age=3 | policy 'lru:age=3': 'age=3' is not a parameter; lru has: stamp
sweep --bank 16 --policy random:seed=1_6 | seed is '1_6', expected int
sweep --bank 16 --policy no.such:Policy | No module named | expected a name from `sim policy list` or module
sweep --bank 16 --contract strict | unknown contract 'strict'; known: atomic, protected, runtime, sequential
sweep --bank 16 --contract strict --policy all | unknown contract 'strict'
sweep --bank 16 --scope model | unknown scope 'model'; known: global, layer
sweep --bank 16 --prefetch psychic | unknown predictor 'psychic'; known: eam, hot
sweep --bank 16 --prefetch hot --contract sequential | predictor hot is undefined under the contract sequential
sweep --bank 16 --policy hot-window | hot-window is undefined under the contract protected; use --contract atomic
sweep --bank 16 --prefetch temporal --policy static | cannot work: policy static never installs
sweep --bank 16 --io-split 0 | io-split 0: expected 1 to 8 chunks
sweep --bank 16 --io-split 9 | io-split 9: expected 1 to 8 chunks
sweep --bank 16 --io-split x | '--io-split': 'x' is not a valid integer
sweep --bank 16 --topk 0 | top-k '0': expected numbers of experts per token, such as 4,8
sweep --bank 16 --topk 4,x | top-k '4,x'
sweep --bank 16 --topk 99 | top-k 99
sweep good --bank 4 --model qwen3-31b-a3b | unknown model 'qwen3-31b-a3b' | qwen3-30b-a3b
sweep good --bank 4 --model no/such.gguf | no/such.gguf | no such file
sweep good --bank 4 --model fewer-layers | good: routes layer 1, but | give the model that was traced
sweep good --bank 4 --model fewer-experts | asks for expert 7, but | has 4 experts there
sweep good --bank 4 --model lower-top-k | uses 2 experts a token, but | routes at most 1
sweep good --bank 4 --model ./not.json | not.json
sweep good --bank 4 --model ./note.txt | note.txt
sweep good --bank 4 --model ./empty | empty
sweep good --bank 20 --model right | bank 20: a layer of good has 16 experts
sweep good --bank 4 --out good | good: is not a folder
sweep good --bank 4 --out good/results | good: is not a folder
sweep good --bank 4 --out out | out: has results.csv already; give another folder, or --force to overwrite
sweep good --bank 4 --out {long} | name too long
sweep good --bank 4 --out locked | locked: may not be written to
sweep good --bank 4 --out locked/results | locked: may not be written to
sweep --bank 16 --policy lru-k:correlated=10000000000000000000000 | correlated is beyond 1000000000000
sweep --bank 16 --policy w-tinylfu:sample=9223372036854775807 | sample is beyond 1000000000000
sweep --bank 16 --prefetch eam:width=10000000000000000000000 | width is beyond 1000000000000
sweep --bank 16 --prefetch synthetic:steps=-9999999999999 | steps is beyond 1000000000000
sweep --bank 16 --prefetch synthetic:steps=-9999999999 | steps=-9999999999 is not in 1..2147483647
sweep python-256 --bank 16 --draft 2 --accept 0.5 | --draft, --accept: how a model runs on a machine; give
sweep pyton-256 --bank 16 | nor a bundled trace; did you mean 'python-256'? bundled traces: python-256
sweep --bank 16 --contract Atomc | unknown contract 'Atomc'; did you mean 'atomic'? known: atomic,
sweep --bank 16 --prefetch eem | unknown predictor 'eem'; did you mean 'eam'?
sweep --bank 16 --machine m3-maxx | unknown machine 'm3-maxx'; did you mean 'm3-max-64' or 'm3-max-48'
sweep --bank 16 --machine m3-max | m3-max: no size of RAM; it is sold as m3-max-48, m3-max-64
sweep --frobnicate | sim sweep: No such option '--frobnicate'
sweep gpt-oss-120b --bank 16 --machine 'm3-max-48, hdd + 8GiB' | sim: hdd + 8GiB: nothing computes; add a GPU
curve empty | sim: empty: is empty
curve good --policy fifo | policy fifo has no one-pass curve | lru has one | sim sweep
curve good --policy min --contract protected | policy min
curve python-256 --policy arc | has no one-pass curve
curve python-256 --sample 0.5 | leave out --sample
curve python-256 --policy arc --sample 2 | expected a share of the layers
diagnose empty --bank 4 | sim: empty: is empty
diagnose good | sim diagnose: Missing option '--bank'
diagnose good --bank 4..8 | bank '4..8': expected slots, bytes or a share
diagnose good --bank 3 | bank 3: call 3 of good | needs 4 slots | --contract atomic streams
diagnose good --bank 8GiB --contract atomic | bank 8GiB | needs the size of an expert
diagnose --bank 257 | bank 257: a layer of python-256 has 256 experts
diagnose --bank 16 --policy min | policy min is undefined under the contract protected
diagnose --bank 16 --contract runtime --policy min | undefined under the contract runtime | --contract atomic
diagnose --bank 16 --scope model | unknown scope 'model'; known: global, layer
diagnose --bank 40KiB --policy static | bank 40KiB | do not hold one expert
policy show lur | unknown policy 'lur'; did you mean 'lru'?
policy frobnicate | sim policy: No such command 'frobnicate'
policy judge python-256 --bank 32 --policy lru | is the policy to judge against
policy judge python-256 --bank 32 --policy fifo --skip-steps 100000 | two or more must be left
policy judge python-256 --bank 32 --policy fifo --confidence 1 | confidence
policy judge python-256 --bank 32 --policy fifo --against nobody | unknown policy 'nobody'
policy judge python-256 --bank 32 --policy fifo --execution hot-cold | give --machine too
policy judge python-256 --bank 32 --policy fifo --out x.txt | ends in .csv, .parquet, .tex, .svg, .pdf or .png
prefetch show psychic | unknown predictor 'psychic'; known: eam, hot
prefetch judge good --bank 4 --prefetch eam,psychic | unknown predictor 'psychic'; known: eam, hot
prefetch judge good --bank 4 --prefetch eam:reach=0 | predictor eam: reach=0 is not in 1..2147483647
prefetch judge good --bank 4 --price=-1 | price -1.0: expected 0 or more
prefetch judge good --bank 4 --price x | '--price': 'x' is not a valid float
prefetch judge good --bank 4 --policy static | policy static never installs a miss
prefetch judge good --bank 4 --contract sequential | undefined under the contract sequential
prefetch judge good --bank 3 | bank 3: call 3 of good (layer 1) asks for 4 distinct experts
prefetch judge empty --bank 4 | sim: empty: is empty
compare gpt-oss-120b --machine rtx-4090 --draft 3 | sim: --draft 3: how often is a drafted token accepted
compare gpt-oss-120b --machine rtx-4090 --draft=-1 --accept 0.5 | sim: --draft -1: expected 0 to 64 tok
compare gpt-oss-120b --machine rtx-4090 --draft 3 --accept 1.5 | sim: --accept 1.5: expected a probab
compare gpt-oss-120b --machine rtx-4090 --accept 0.5 | sim: --accept 0.5: says how tokens are drafted
compare gpt-oss-120b --machine rtx-4090 --draft 3 --accept 0.5 --drafter 300GiB --system placed | 300GiB: takes 301 GiB
compare python-256 --machine rtx-3090 --hit-rate 0.5 | a hit rate replaces a trace
compare --machine rtx-3090 | give --model
compare python-256 --machine laptop-ddr4 --system placed | needs a GPU with a memory of its own
compare python-256 --machine rtx-3090 --system plced | did you mean 'placed'?
compare python-256 --machine rtx-3090 --system placed:layers=3 | 'layers=3' is not a parameter
compare python-256 --machine rtx-3090 --out rows.xlsx | ends in .csv, .parquet, .tex, .svg, .pdf or .png
predict --hit-rate 0.5 --model qwen3-30b-a3b --machine rtx-4090 --draft 2 | how often is a drafted token
predict {qwen} | sim: predict: give either hit rates (--hit-rate 0.588,0.728) or a table (--table FILE)
predict {qwen} --hit-rate 0.5 --table speeds.csv | sim: predict: give either
predict --machine m2-16 --hit-rate 0.5 | sim: predict: seconds need a model and a machine; give --model
predict --model kimi-k2 --hit-rate 0.5 | sim: predict: seconds need a model and a machine; give --mach
predict {qwen} --hit-rate 1.5 | sim: hit rate 1.5: expected 0 to 1, or per cent with its sign | did you mean 1.5%?
predict {qwen} --hit-rate 120 | or per cent with its sign, such as 58.8% | not: did you mean
predict {qwen} --hit-rate 120% | sim: hit rate 120%: expected 0 to 1 | not: did you mean
predict {qwen} --hit-rate 58.8 | sim: hit rate 58.8: expected 0 to 1 | did you mean 58.8%?
predict {qwen} --hit-rate 101 | sim: hit rate 101: expected 0 to 1, or per cent with its sign
predict {qwen} --hit-rate 0.5 --topk 9 | sim: hit rate 0.5: 9 experts a token; qwen3.5-35b-a3b:ud-iq2_m
predict {qwen} --table huge.csv | sim: huge.csv: line 2: bank 4000GiB
predict {qwen} --hit-rate 0.5 --topk 0 | sim predict: Invalid value for '--topk'
predict {qwen} --hit-rate 0.5 --topk 999 | sim: hit rate 0.5: 999 experts a token
predict {qwen} --hit-rate 0.5 --bank few | sim: bank 'few': expected slots, bytes or a share
predict {qwen} --hit-rate 0.5 --execution magic | sim: unknown execution model 'magic'
predict {qwen} --table none.csv | sim: none.csv: no such file
predict {qwen} --table speeds.csv | sim: speeds.csv: no column misses_per_call, hit_pct or hit_rate; found
predict {qwen} --table many.csv --topk 4 | sim: many.csv: line 2: 5 misses a call, which asks for 4
predict --model kimi-k2.5:ud-tq1_0 --dense 12GiB --machine m2-16 --bank 64 --hit-rate 0.5 | bank 64: 36.1 GiB of slots
predict --model right --machine m2-16 --hit-rate 0.5 | sim: tiny: does not record its dense
frobnicate | unknown verb 'frobnicate'; known: sweep, replay
reply | unknown verb 'reply'; did you mean 'replay'? known: sweep, replay
--frobnicate | sim: No such option '--frobnicate'
ceilings python-256 --bank 64 | Missing option '--machine'
ceilings python-256 --machine vm-2core | Missing option '--bank'
ceilings python-256 --bank 64 --machine m99 | unknown machine 'm99'
ceilings python-256 --bank 64 --machine vm-2core --dense 5 | --dense '5': expected a size with its unit
ceilings python-256 --bank 64 --machine vm-2core --dense 1GiB --execution fast | unknown execution model 'fast'
ceilings python-256 --bank 64 --machine vm-2core --dense 1GiB --execution hot-cold | needs [gpu], [cpu] with
ceilings python-256 --bank 64 --machine vm-2core --dense 99GiB | do not fit vm-2core
ceilings python-256 --bank 4 --machine vm-2core --dense 1GiB | slot-bank overflow
ceilings python-256 --bank 64 --machine vm-2core --dense 1GiB --hot | hot_share is not known
ceilings python-256 --bank 64 --machine vm-2core --dense 1GiB --lookahead -1 | --lookahead
ceilings python-256 --bank 64 --machine vm-2core --dense 1GiB --policy min | undefined under the contract protected
ceilings gpt-oss-120b --bank 16 --machine '2x m3-max + 8GiB' | sim: '2x m3-max': several machines need the
model show | Missing argument 'SPEC'
recommend MODEL --machine rtx-3060 | sim: MODEL stands for a model; give a name | a repository or a GGUF file
model show nothing | unknown model 'nothing'
model show kimi-k2:q9 | unknown quantization of kimi-k2 'q9'; give its size, such as kimi-k2@577GB
model show no/such/file.gguf | no such file
model show kimi-k2 --io-split 0 | 0 is not in the range 1<=x<=8
model show kimi-k2 --io-split x | 'x' is not a valid integer
machine show | sim machine show: Missing argument 'MACHINE'
machine show m9 | sim: unknown machine 'm9'; known: gb10-128
machine show mine.toml | sim: mine.toml: storage.read has no unit: write read_gb_s
machine show torn.toml | sim: torn.toml: not TOML: Expected ']'
machine show none.toml | sim: none.toml: no such file
machine fits | sim machine: No such command 'fits'
machine parts abacus | sim: unknown part 'abacus'; `sim machine parts` lists all
machine build 'rtx-3060 + hdd' --out a.toml | sim: rtx-3060 + hdd: no size of RAM
machine build m9-48 --out a.toml | sim: unknown part 'm9-48'; did you mean 'm4'?
machine show 'rtx-3060 + rx-6800 + 8GiB' | sim: rtx-3060 and rx-6800: GPUs of two makers
report prose-256 --out there.html | there.html: exists; give --force to overwrite it
report prose-256 --out report.txt | report.txt: the report is a web page; give --out a name that ends in .html
report prose-256 --out r.html --figures there.html | there.html: is not a folder; give another folder for the fig
report prose-256 --out r.html --figures d --format gif | unknown format of figures 'gif'
report prose-256 --out r.html --size 3in | are of the files of --figures; give --figures DIR
report prose-256 --out r.html --no-titles | are of the files of --figures; give --figures DIR
report prose-256 --out r.html --figures d --size 3 | --size '3': expected 36 to 7200 points, such as 3.3in
report prose-256 --out r.html --figures d --size 0.1in | --size '0.1in': expected 36 to 7200 points
report prose-256 --out r.html --figures d --font Nobody --format pdf | --font 'Nobody': no such font is installed
report prose-256 --out r.html --context 9 | give --machine too
report prose-256 --out r.html --bank 64 --measured none.csv | --measured is compared with predictions
report --out r.html | give a trace, a folder of results or --model
report none.jsonl --out r.html | none.jsonl: no such file
report swept --out r.html --bank 8 | --bank with the folder of results swept: the page shows its rows
report swept prose-256 --out r.html | prose-256: no row of the results is of this trace with this model
report swept swept --out r.html | swept: a second folder of results
report torn-table --out r.html | torn-table/results.parquet: cannot be read as a table of results
report none --out r.html | none: no such file
sweep --bank 16 x --model a --model --model | sim: --model is given twice; give it once, several values
recommend --model a --machine b --model=c | sim: --model is given twice
sweep python-256 --bank 1B | do not hold one expert of 13056 bytes; give at least --bank 1MiB
sweep python-256 --bank 1B --scope global | do not hold one expert of 13056 bytes; give at least --bank 1MiB
sweep --bank 16 --out o.html | is named like a file; --out takes a folder
sweep --bank 16 --out a/o.csv | is named like a file; --out takes a folder
sweep --bank 16 --out O.PNG | is named like a file; --out takes a folder
sweep python-256 --bank 4,6 --contract protected | sim: bank 4: call
sweep --bank 8,16 --policy hot-profile --prefetch all --scope global --contract runtime | sim: policy hot-profile is
sweep '' --bank 16 | sim: an empty TRACE; give a file, or a name from `sim trace catalog`; is a shell variable empty?
notebook 0 --dir new | unknown notebook '0'
notebook quantum --dir new | unknown notebook 'quantum'
notebook --dir empty | empty: is not a folder; give another
# the capture of routing
trace capture --server 127.0.0.1:8000 --prompt x | 127.0.0.1:8000: is not the address of a server; expected for example
trace capture --server http://127.0.0.1:1/ä --prompt x | is not the address of a server; expected plain
trace capture --server http://a..b:1 --prompt x | is not the address of a server; expected plain letters
trace capture --server http://127.0.0.1:x --prompt x | is not the address of a server
trace capture --server http://127.0.0.1:1 --prompt x --timeout nan | 'nan' is not a finite number
trace capture --server http://127.0.0.1:1 --prompt x --timeout inf | inf is not in the range 0<x<=1000000
trace capture --server http://127.0.0.1:1 --prompt x --tokens 0 | a server generates at least one token
trace capture --server http://127.0.0.1:1 --prompt x --ubatch 4 | --ubatch is for models that run here
trace capture --server http://127.0.0.1:1 --prompt x --model qwen9 | qwen9
trace capture --server http://127.0.0.1:1 | either --prompt or --prompt-file
trace capture --server http://127.0.0.1:1 --prompt-file bad.jsonl | bad.jsonl: line 2 holds no prompt
trace capture --model m.gguf --prompt x --top-k 4 | --top-k is of --server
trace capture --model m.gguf --prompt x --chat | --chat is of --server
trace capture --model m.gguf --prompt x --api-key-env A | --api-key-env is of --server
trace capture --prompt x | give --model for a model to run here, or --server for one that runs
# rows of measured speeds
field check none.csv | none.csv: no such file
field check many.csv | many.csv: line 1: no column id,
field check empty | empty: line 1: no column
{add} | give --machine: the computer's parts, such as
{add} | (the file says 'NVIDIA GeForce RTX 3060', 'AMD Ryzen 5 5600 6-Core Processor'); --source: who
{add} {said} --machine rtx-3060 | does not say the RAM; add it, such as 'rtx-3060 + 32GiB'
{add} {said} --machine 'rtx-3061 + 32GiB' | rtx-3061
{add} {said} --machine '2x gb10-128 over 10gbe' | is a file or several computers; give the computer's parts
{add} {said} --machine 'rtx-4090 + 64GiB' | ran on 'NVIDIA GeForce RTX 3060', and this is NVIDIA GeForce RTX 4090
{add} {on} --source me/my-pc --url 'my notes' | source_url is 'my notes'; expected the address
{add} {on} {said} --date 20.11.2026 | date is '20.11.2026'; expected the day
{add} {on} {said} --model {tiny} | is none of `sim model list`, of which rows are; give the name
{add} {on} {said} --model nobody-7b | unknown model
{add} {on} {said} --out row.txt | row.txt: expected a name that ends in .csv
{add} {on} {said} --id {known} | the id is used already
{add} {on} {said} --out speeds.csv | speeds.csv: exists; give --force
"""
CASES = rows(TABLE, **WORDS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the command lines run in."""
    place = tmp_path_factory.mktemp("place")
    for name in ("folder", "out", "locked", "torn-table"):
        (place / name).mkdir()
    for name, content in (FILES | recordings.files()).items():
        (place / name).write_bytes(content)
    for name, content in MANIFESTS.items():
        write(place / name, content)
    assert main(["sweep", "python-256", "--bank", "64", "--contract", "atomic", "--out", str(place / "swept")]) == 0
    (place / "locked").chmod(0o555)
    return place


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0][:60])
def test_bad_input_is_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: list[str]
) -> None:
    if "locked" in case[0] and os.geteuid() == 0:
        # root may write anywhere; what the program asks is answered as for anybody else
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK or path.name != "locked")
    refused_in(place, capsys, case)


def test_the_good_ones_are_good(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the table changes works as it is, so that each entry fails for its own reason."""
    monkeypatch.chdir(place)
    for scope in ("layer", "global"):
        asked = ["sweep", "python-256", "--bank", "1MiB", "--contract", "atomic", "--scope", scope]
        assert main([*asked, "--out", str(tmp_path / "v1.2")]) == 0
    assert main(["sweep", "good", "--bank", "4", "--model", "right"]) == 0
    assert main(["replay", "torn-last", "--bank", "4"]) == 0
    assert "torn-last: last line incomplete" in capsys.readouterr().err
    assert main(["replay", "torn", "--bank", "4", "--lenient"]) == 0
    assert "1 malformed line" in capsys.readouterr().err
