"""The log of a run: the speeds, and how often each expert was used in each lane."""

from __future__ import annotations

import re

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput
from native_bridge.engines.run_log import LayerLanes, RunLog

PERF = "moe-layer-perf: "
_SPEEDS = re.compile(r"^\[ Prompt: (\d+\.\d+) t/s \| Generation: (\d+\.\d+) t/s \]$", re.MULTILINE)
_GPU = re.compile(r"ggml_(cuda|metal|vulkan)_init")


def read_log(text: str, *, where: str, failed_too: bool, complaint: str) -> RunLog:
    """The content of a log. failed_too: accept a failed run, whose `failure` is the complaint.

    Raises BadInput for a log without speeds or with damaged counts.
    """
    gpu = _GPU.search(text)
    speeds = list(_SPEEDS.finditer(text))
    counted = text.count("\n", 0, speeds[-1].start()) + 1 if speeds else 0  # earlier lines may be the model's
    lanes = tuple(
        _layer(line.removeprefix(PERF), f"{where}:{number}")
        for number, line in enumerate(text.splitlines()[counted:] if speeds else [], counted + 1)
        if line.startswith(PERF)
    )
    if not speeds or not lanes:
        found = "no line `[ Prompt: … t/s | Generation: … t/s ]`" if not speeds else f"no line `{PERF}…`"
        if not failed_too:
            raise BadInput(f"{where}: {found}: the run did not finish; run it again")
        return RunLog(0.0, 0.0, settings={}, backend=gpu[1] if gpu else "", failure=complaint or found)
    prompt, decode = map(float, speeds[-1].groups())
    lines = {
        f"layer {one.layer}": {
            "calls": str(one.calls),
            "hot": str(sum(one.hot.values())),
            "cold": str(sum(one.cold.values())),
        }
        for one in lanes
    }
    return RunLog(prompt, decode, settings={}, backend=gpu[1] if gpu else "", lines=lines, lanes=lanes)


def _layer(text: str, place: str) -> LayerLanes:
    """One layer of the profile that the server wrote."""
    try:
        layer = strict_json.loads(text.encode())
        hot, cold = (
            {int(expert): int(count) for expert, count in layer[f"{lane}_experts"]} for lane in ("hot", "cold")
        )
        return LayerLanes(int(layer["layer"]), int(layer["calls"]), hot, cold)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{place}: a damaged count of uses ({error}); run it again") from None
