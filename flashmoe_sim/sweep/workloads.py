"""The workloads of a sweep: each with its own name, and cut to fewer experts per token if asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput, Malformed
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.bundled import find_trace
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.lines import trace_name


def plan_workloads(
    loaded: Sequence[Workload], sources: Sequence[Any], *, top_ks: str | int | Iterable[int] | None = None
) -> list[Workload]:
    """The workloads of a sweep, each with its own name, and cut to each of `top_ks` experts per token.

    sources: where each was read from: a file or a name from the catalogue; anything else for a trace made in memory.
    Raises BadInput whenever `cut_to_top_ks` does.
    """
    parts = [cut_to_top_ks(workload, top_ks) for workload in _named_apart(loaded, sources)]
    return _named_apart(
        [part for some in parts for part in some],
        [source for some, source in zip(parts, sources, strict=True) for _ in some],
    )


def by_hindsight(workloads: Iterable[Workload], policies: Iterable[Policy]) -> list[str]:
    """A line for each policy whose profile is of the trace on which it is judged, under another name."""
    policies, lines = [one for one in dict.fromkeys(policies) if one.reads_profile], []
    for workload in workloads:
        for policy in policies:
            with suppress(BadInput):  # of a trace that the profile does not fit
                if workload.knows_itself(policy):
                    lines.append(f"{policy.spec}: its profile is of {workload.trace.name} itself, in hindsight")
    return lines


def _named_apart(workloads: Sequence[Workload], sources: Sequence[Any]) -> list[Workload]:
    """The workloads, each with its own name.

    If several files share a name, the file names are used; if these are shared too, they get the folders as prefixes,
    or a number as suffix.
    """
    names = [workload.trace.name for workload in workloads]
    if len({*names}) == len(names):
        return list(workloads)
    found = [
        find_trace(source)[0].absolute() if isinstance(source, str | Path) else Path(name)
        for source, name in zip(sources, names, strict=True)
    ]
    for number in _shared(names, found):
        names[number] = trace_name(found[number])
    above = [
        file.parent.parts[1:-1] if file.parent.name == name else file.parent.parts[1:]
        for file, name in zip(found, names, strict=True)
    ]
    longer, depth = list(names), 0
    while depth < max(map(len, above), default=0) and (shared := _shared(longer, found)):
        depth += 1
        for number in shared:
            longer[number] = "/".join([*above[number][-depth:], names[number]])
    apart: dict[str, Workload] = {}
    for workload, shared_name in zip(workloads, longer, strict=True):
        name, count = shared_name, 1
        while name in apart:
            count += 1
            name = f"{shared_name} ({count})"
        same = name == workload.trace.name
        apart[name] = workload if same else Workload(workload.trace.with_(name=name), workload.geometry)
    return list(apart.values())


def _shared(names: Sequence[str], files: Sequence[Path]) -> list[int]:
    """The places of names that several files share."""
    having: dict[str, set[Path]] = {}
    for name, file in zip(names, files, strict=True):
        having.setdefault(name, set()).add(file)
    return [number for number, name in enumerate(names) if len(having[name]) > 1]


def cut_to_top_ks(workload: Workload, top_ks: str | int | Iterable[int] | None) -> list[Workload]:
    """The workload cut to each of these experts per token (`4,8`), named accordingly; unchanged for None.

    Raises BadInput for anything but such numbers, and if the trace cannot be cut to one.
    """
    if top_ks is None:
        return [workload]
    pieces = (
        top_ks.split(",")
        if isinstance(top_ks, str)
        else [str(one) for one in ([top_ks] if isinstance(top_ks, int) else top_ks)]
    )
    wanted = list(dict.fromkeys(piece.strip() for piece in pieces))
    if not wanted or not all(re.fullmatch("0*[1-9][0-9]{0,8}", piece) for piece in wanted):
        raise Malformed(f"top-k {','.join(pieces)!r}: expected numbers of experts per token, such as 4,8")
    return [prepare(cut(workload.trace, top_k=int(piece)), workload.geometry) for piece in wanted]
