"""Every policy that evicts, by the name and parameters the command line takes, and its twin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.policies.naive import Told, basic, ghosts

EVICTING: dict[str, Callable[[int], Told]] = {
    "lru": basic.Lru,
    "fifo": basic.Fifo,
    "lfu": basic.Lfu,
    "lfu:count=restart": partial(basic.Lfu, restart=True),
    "random": basic.Random,
    "random:seed=4294967295": partial(basic.Random, seed=4294967295),
    "min": basic.Min,
    "min:forced": basic.MinForced,
    "arc": ghosts.Arc,
    "lirs": ghosts.Lirs,
    "lirs:hir=0.4:stack=1": partial(ghosts.Lirs, hir=0.4, stack=1),
    "lru-k": ghosts.LruK,
    "lru-k:k=3:history=restart": partial(ghosts.LruK, k=3, history="restart"),
    "lru-k:k=3:correlated=2": partial(ghosts.LruK, k=3, correlated=2),
    "w-tinylfu": ghosts.WTinyLfu,
    "w-tinylfu:window=0.4:sample=2": partial(ghosts.WTinyLfu, window=0.4, sample=2),
    "lecar": ghosts.LeCaR,
    "lecar:rate=2.0:seed=7": partial(ghosts.LeCaR, rate=2.0, seed=7),
    "cacheus": ghosts.Cacheus,
    "cacheus:seed=7": partial(ghosts.Cacheus, seed=7),
}
