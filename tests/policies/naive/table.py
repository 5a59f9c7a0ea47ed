"""Every policy, by the name and parameters the command line takes, and its twin; those that pin are in the replay's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.policies.naive import Told, basic, ghosts, queues, scores

EVICTING: dict[str, Callable[[int], Told]] = {
    "lru": basic.Lru,
    "fifo": basic.Fifo,
    "lfu": basic.Lfu,
    "lfu:count=restart": partial(basic.Lfu, restart=True),
    "lfu-decay": scores.LfuDecay,
    "lfu-decay:half_life=1": partial(scores.LfuDecay, half_life=1),
    "lfu-decay:half_life=3": partial(scores.LfuDecay, half_life=3),
    "lfru": scores.Lfru,
    "lfru:count=restart": partial(scores.Lfru, restart=True),
    "hyperbolic": scores.Hyperbolic,
    "window": scores.Window,
    "window:window=1:share=1": partial(scores.Window, window=1, share="1"),
    "window:window=10:share=0.3": partial(scores.Window, window=10, share="0.3"),
    "least-stale": scores.LeastStale,
    "least-stale:variant=fifo": partial(scores.LeastStale, by_install=True),
    "bounded-lru": scores.BoundedLru,
    "bounded-lru:cap=1": partial(scores.BoundedLru, cap=1),
    "second-miss": scores.SecondMiss,
    "second-miss:window=2": partial(scores.SecondMiss, window=2),
    "random": basic.Random,
    "random:seed=4294967295": partial(basic.Random, seed=4294967295),
    "clock": queues.Clock,
    "sieve": queues.Sieve,
    "slru": queues.Slru,
    "slru:protected=0.4": partial(queues.Slru, protected=0.4),
    "2q": queues.TwoQ,
    "2q:a1in=0.6:a1out=2.5": partial(queues.TwoQ, a1in=0.6, a1out=2.5),
    "mq": queues.Mq,
    "mq:life_time=3": partial(queues.Mq, life_time=3),
    "s3fifo": queues.S3Fifo,
    "s3fifo:small=0.4": partial(queues.S3Fifo, small=0.4),
    "min": basic.Min,
    "min:forced": basic.MinForced,
    "lookahead": scores.Lookahead,
    "lookahead:steps=0": partial(scores.Lookahead, steps=0),
    "lookahead:steps=1": partial(scores.Lookahead, steps=1),
    "lookahead:steps=3": partial(scores.Lookahead, steps=3),
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

SCHEDULED = ("hot-window", "hot-profile", "bounded-swaps")
SCHEDULED_VARIANTS = (
    "hot-window:interval=1",
    "hot-window:interval=4",
    "hot-window:interval=4:bypass_tokens=1",
    "hot-window:interval=4:count=reference",
    "hot-window:interval=3:observe=last",
    "hot-window:interval=2:count=reference:observe=last:warm_up=True",
    "hot-window:interval=1:warm_up=True",
    "hot-profile:weighting=balanced",
    "hot-profile:update_rate=0.1",
    "hot-profile:fill=random:update_rate=0.5",
    "hot-profile:weighting=balanced:update_rate=1.0",
    "bounded-swaps:every=1",
    "bounded-swaps:every=1:gain=0.0:least=0.0",
    "bounded-swaps:profile_steps=2:every=2:swaps=1:gain=0.5:least=1.0",
    "bounded-swaps:profile_steps=1:every=1:gain=0.5:least=1.0:decay=0.0",
)
