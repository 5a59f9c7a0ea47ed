"""Start a llama-server, ask it for one text, print the text, its speeds and its profile, and end it.

python -m native_bridge.engines.hotcache.serve PROMPT TOKENS PROGRAM [FLAGS...]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from native_bridge.llama_server import NoAnswer, served


def main(arguments: list[str]) -> int:
    prompt, tokens, *command = arguments
    with tempfile.TemporaryDirectory() as place:
        perf = Path(place) / "perf.json"
        try:
            with served([*command, "--moe-layer-perf-out", str(perf), "--cache-ram", "0"]) as server:
                answer = server.ask(
                    "completion",
                    {"prompt": prompt, "n_predict": int(tokens), "ignore_eos": True, "cache_prompt": False},
                )
        except NoAnswer as error:
            print(error, file=sys.stderr)
            return error.code
        prompt_s, text_s = (answer["timings"][f"{part}_per_second"] for part in ("prompt", "predicted"))
        print(f"\n> {prompt}\n\n{answer['content']}\n")
        print(f"[ Prompt: {prompt_s:.1f} t/s | Generation: {text_s:.1f} t/s ]")
        for layer in json.loads(perf.read_bytes())["layers"]:
            kept = {name: layer[name] for name in ("layer", "calls", "hot_experts", "cold_experts")}
            print(f"moe-layer-perf: {json.dumps(kept, separators=(',', ':'))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
