"""Twins of the hot sets, which change only after a step: they get each step's calls, and say who is resident."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from pathlib import Path

from tests.policies.naive import Expert

Call = tuple[int, Sequence[int], int]


class Hot:
    """held: the residents of each layer."""

    held: dict[int, list[int]]

    def resident(self) -> set[Expert]:
        return {(layer, expert) for layer, experts in self.held.items() for expert in experts}

    def uses(self, tokens: int) -> bool:
        """Whether a call of so many tokens looks into the bank."""
        return True

    def after_step(self, calls: Sequence[Call], *, request_ends: bool) -> None:
        """A step made these calls; whether another request begins after it."""


@dataclass(frozen=True)
class StepKinds:
    """What a trace says of its steps: whether each is a prompt, of which text, and how many first ones warm up."""

    prompt: Sequence[bool] = ()
    text: Sequence[int] = ()
    warm_up_steps: int = 0


class HotWindow(Hot):
    """Slots are lists: the first free one is the next to append to."""

    def __init__(
        self,
        steps: Sequence[Sequence[Call]],
        kinds: StepKinds,
        slots: Mapping[int, int],
        n_experts: Mapping[int, int],
        interval: str = "40",
        bypass_tokens: str = "0",
        count: str = "decode",
        observe: str = "all",
        warm_up: str = "False",
    ) -> None:
        self.slots = {layer: min(slots[layer], n_experts[layer]) for layer in n_experts}
        self.n_experts = n_experts
        self.interval, self.most = int(interval), int(bypass_tokens)
        self.by_reference, self.last_only = count == "reference", observe == "last"
        self.kinds = kinds
        self.held = {layer: [] for layer in n_experts}
        self.filling = True
        self.decodes = 0
        self.uses_of: Counter[Expert] = Counter()
        self.seen: list[Call] = []  # of the decode that goes on
        self.batch: list[Sequence[Call]] = []  # the steps of its last micro-batch
        self.tokens = 0
        self.steps = list(steps)
        self.number = 0
        self.warming = kinds.warm_up_steps if warm_up == "True" else 0
        if warm_up == "True":
            self.decodes = 1
            if not self.warming:
                self.warm_up([])

    def warm_up(self, calls: Sequence[Call]) -> None:
        self.decodes += 1
        layers = sorted(self.n_experts)
        room = len(layers)
        for layer in layers:
            rows = 1 if layer == layers[-1] else 2
            if rows <= room:
                room -= rows
                ranked = [expert for number, experts, _ in calls if number == layer for expert in experts]
                ranked += range(self.n_experts[layer])
                self.held[layer] = list(dict.fromkeys(ranked))[: self.slots[layer]]
        self.check_full()

    def uses(self, tokens: int) -> bool:
        return not self.most or tokens <= self.most

    @staticmethod
    def size(calls: Sequence[Call]) -> int:
        return max(HotWindow.rows(call) for call in calls)

    @staticmethod
    def rows(call: Call) -> int:
        return max(call[2], 1 if call[1] else 0)

    def goes_on(self, step: int) -> bool:
        """Whether a step is a part of the same decode as the one before it."""
        kinds = self.kinds
        if step < kinds.warm_up_steps:
            return True
        if step == kinds.warm_up_steps or not kinds.prompt or not kinds.prompt[step] or not kinds.prompt[step - 1]:
            return False
        if kinds.text and kinds.text[step] != kinds.text[step - 1]:
            return False
        return self.tokens + self.size(self.steps[step]) <= 2048

    def after_step(self, calls: Sequence[Call], *, request_ends: bool) -> None:
        step = self.number
        self.number += 1
        if step < self.warming:
            self.seen += calls
            if self.number == self.warming:
                self.warm_up(self.seen)
                self.seen = []
            return
        if not self.last_only:
            self.decode_ended([call for call in calls if self.uses(call[2])])
            return
        self.tokens += self.size(calls)
        if sum(map(self.size, self.batch)) + self.size(calls) > 512:
            self.batch = []
        self.batch.append(calls)
        if self.number < len(self.steps) and self.goes_on(self.number):
            return
        room, observed = len(self.n_experts), []
        for layer in sorted(self.n_experts):
            of_layer = [call for step_calls in self.batch for call in step_calls if call[0] == layer]
            if sum(map(self.rows, of_layer)) <= room:
                room -= sum(map(self.rows, of_layer))
                observed += of_layer
        self.batch, self.tokens = [], 0
        self.decode_ended(observed)

    def decode_ended(self, observed: Sequence[Call]) -> None:
        self.decodes += 1
        for layer, experts, _ in observed:
            self.uses_of.update((layer, expert) for expert in (experts if self.by_reference else set(experts)))
            for expert in experts if self.filling else ():
                there = self.held[layer]
                if expert not in there and len(there) < self.slots[layer]:
                    there.append(expert)
        if self.filling:
            self.check_full()
        elif self.decodes % self.interval == 0:
            for layer in self.held:
                self.rebalance(layer)
            self.uses_of.clear()

    def check_full(self) -> None:
        if all(len(self.held[layer]) == self.slots[layer] for layer in self.held):
            self.filling = False
            self.uses_of.clear()

    def rebalance(self, layer: int) -> None:
        there, k = self.held[layer], self.slots[layer]
        bonus = max(6, min(24, k * self.interval // 320 + 6))
        bonus = {1: bonus // 2, 2: bonus * 3 // 4}.get(self.decodes // self.interval, bonus)

        def rank(expert: int) -> tuple[int, bool, int]:
            return -self.uses_of[layer, expert] - bonus * (expert in there), expert not in there, expert

        best = sorted(range(self.n_experts[layer]), key=rank)[:k]
        newcomers = [expert for expert in best if expert not in there]
        left = [slot for slot in range(k) if there[slot] not in best]
        for slot, expert in zip(left, newcomers, strict=True):
            there[slot] = expert


def shuffled(ones: Sequence[Expert]) -> list[Expert]:
    """By std::mt19937 with the seed 0x6d6f65 and std::shuffle, of fewer than 2**16."""
    ones, state, n = list(ones), [0x6D6F65], 624
    for i in range(1, n):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) % 2**32)

    def number() -> int:
        both = (state[0] & 2**31) | (state[1] & (2**31 - 1))
        state.append(state[397] ^ both >> 1 ^ (0x9908B0DF if both % 2 else 0))
        state.pop(0)
        y = state[-1]
        y ^= y >> 11
        y ^= y << 7 & 0x9D2C5680
        y ^= y << 15 & 0xEFC60000
        return y ^ y >> 18

    def below(most: int) -> int:
        while True:
            product = number() * most
            if product % 2**32 >= 2**32 % most:
                return product >> 32

    place = 1
    if len(ones) % 2 == 0 and ones:
        other = below(2)
        ones[1], ones[other] = ones[other], ones[1]
        place = 2
    for i in range(place, len(ones), 2):
        both = below((i + 1) * (i + 2))
        for here, other in ((i, both // (i + 2)), (i + 1, both % (i + 2))):
            ones[here], ones[other] = ones[other], ones[here]
    return ones


class HotProfile(Hot):
    """Counts are of whole requests: (layer, expert) -> uses, and uses that hit."""

    def __init__(
        self,
        calls: Sequence[Call],
        size: Mapping[int, int],
        budget: int,
        profile: str = "",
        weighting: str = "flat",
        curve: str = "0.5",
        update_rate: str = "0",
        fill: str = "none",
        n_experts: Mapping[int, int] | None = None,
    ) -> None:
        self.weighting, self.curve, self.rate = weighting, float(curve), float(update_rate)
        self.held = defaultdict(list)
        hot: Counter[Expert] = Counter()
        uses: Counter[Expert] = Counter()
        self.measured: dict[int, float] = {}
        if not profile:
            uses.update((layer, expert) for layer, experts, _ in calls for expert in set(experts))
        for entry in json.loads(Path(profile).read_text())["layers"] if profile else []:
            layer = entry["layer"]
            self.measured[layer] = self.time(entry) if weighting == "time" else self.pressure(entry)
            for expert, n in entry.get("hot_experts", []):
                hot[layer, expert] += n
                uses[layer, expert] += n
            for expert, n in entry.get("cold_experts", []):
                uses[layer, expert] += n
            if "hot_experts" not in entry and "cold_experts" not in entry:
                for expert, n in entry["experts"]:
                    uses[layer, expert] += n
        scores = self.scores(uses, hot)
        for layer, expert in sorted(scores, key=lambda one: (-scores[one], one)):
            cost = size[layer] * (1 if self.held[layer] else 2)
            if cost <= budget:
                budget -= cost
                self.held[layer].append(expert)
        others = [(layer, one) for layer, n in sorted((n_experts or {}).items()) for one in range(n)]
        others = [one for one in others if one not in self.resident()]
        for layer, expert in shuffled(others) if fill == "random" else ():
            cost = size[layer] * (1 if self.held[layer] else 2)
            if cost <= budget:
                budget -= cost
                self.held[layer].append(expert)
        self.seen: Counter[Expert] = Counter()

    @staticmethod
    def time(entry: Mapping[str, float]) -> float:
        return entry.get("total_moe_time_per_call_us", 0) or HotProfile.pressure(entry)

    @staticmethod
    def pressure(entry: Mapping[str, float]) -> float:
        if entry.get("parallel_join_wait_time_per_call_us", 0) > 0:
            return entry["parallel_join_wait_time_per_call_us"]
        behind = entry.get("parallel_cold_lane_wall_time_per_call_us", 0)
        behind -= entry.get("parallel_hot_lane_wall_time_per_call_us", 0)
        return behind if behind > 0 else entry.get("cold_slots_per_call", 0)

    def weight(self, layer: int) -> float:
        known = sorted(value for value in self.measured.values() if value > 0)
        p, c = self.measured.get(layer, 0), self.curve
        if p <= 0:
            return 1.0
        if self.weighting == "pressure":
            mean = sum(known) / len(known)
            return min(max(1 + c * (p / mean - 1), 1 - 0.3 * c), 1 + 0.6 * c)

        def quantile(share: float) -> float:
            place = share * (len(known) - 1)
            below = floor(place)
            above = min(below + 1, len(known) - 1)
            return known[below] + (known[above] - known[below]) * (place - below)

        low, high = known[0], known[-1]
        if self.weighting == "smooth" and quantile(0.1) < quantile(0.9):
            low, high = quantile(0.1), quantile(0.9)
        if low == high:
            return 1.0
        place = min(max((p - low) / (high - low), 0), 1)
        if self.weighting == "smooth":
            return 1 + 0.3 * c * sqrt(place)
        return (1 - 0.6 * c) * (1 - place) + (1 + 0.8 * c) * place

    def scores(self, uses: Counter[Expert], hot: Counter[Expert]) -> dict[Expert, int]:
        if self.weighting not in ("flat", "balanced"):
            return {one: max(floor(n * self.weight(one[0]) + 0.05 * hot[one] + 0.5), 1) for one, n in uses.items() if n}
        scores = {}
        ranked = {layer: [one for one in uses if one[0] == layer and uses[one]] for layer, _ in uses}
        longest = max(map(len, ranked.values()), default=0)
        for ones in ranked.values():
            of = longest if self.weighting == "flat" else len(ones)
            for rank, one in enumerate(sorted(ones, key=lambda one: (-uses[one], one))):
                scores[one] = (of - rank) * 10**6 + min(uses[one], 999999)
        return scores

    def after_step(self, calls: Sequence[Call], *, request_ends: bool) -> None:
        self.seen.update((layer, expert) for layer, experts, _ in calls for expert in set(experts))
        if not request_ends or not self.rate:
            return
        there = self.resident()
        scores = self.scores(self.seen, Counter({one: n for one, n in self.seen.items() if one in there}))
        pairs = []
        for layer, held in self.held.items():
            asked = sorted((one for one in scores if one[0] == layer), key=lambda one: (-scores[one], one))
            wanted = asked[: len(held)]
            outsiders = [one for one in wanted if one not in there]
            insiders = sorted(
                ((layer, expert) for expert in held if (layer, expert) not in wanted),
                key=lambda one: (scores.get(one, 0), one),
            )
            for new, old in zip(outsiders, insiders, strict=False):
                pairs.append((scores[new] - scores.get(old, 0), new, old))
        pairs.sort(key=lambda pair: (-pair[0], pair[1]))
        for _, (layer, new), (_, old) in pairs[: ceil(self.rate * len(there))]:
            self.held[layer].remove(old)
            self.held[layer].append(new)
        self.seen.clear()


class BoundedSwaps(Hot):
    """Uses are a dict; a layer's residents are a set that only grows and shrinks by swaps."""

    def __init__(
        self,
        steps: Sequence[Sequence[Call]],
        size: Mapping[int, int],
        budget: int,
        n_experts: Mapping[int, int],
        profile_steps: str = "0",
        every: str = "4",
        swaps: str = "96",
        gain: str = "1.5",
        least: str = "2.0",
        decay: str = "0.7",
    ) -> None:
        self.every, self.most = int(every), int(swaps)
        self.gain, self.least, self.decay = float(gain), float(least), float(decay)
        everyone = [(layer, expert) for layer in sorted(n_experts) for expert in range(n_experts[layer])]
        uses = Counter(one for step in steps[: int(profile_steps) or None] for one in self.references(step))
        self.held = {layer: [] for layer in n_experts}
        for layer, expert in sorted(everyone, key=lambda one: (-uses[one], one)):
            if (budget := budget - size[layer]) < 0:
                break
            self.held[layer].append(expert)
        self.use = dict.fromkeys(everyone, 0.0)
        self.windows = 0

    @staticmethod
    def references(calls: Sequence[Call]) -> list[Expert]:
        return [(layer, expert) for layer, experts, _ in calls for expert in experts]

    def after_step(self, calls: Sequence[Call], *, request_ends: bool) -> None:
        if any(tokens > 64 for _, _, tokens in calls):
            return
        for one in self.references(calls):
            self.use[one] += 1
        self.windows += 1
        if self.windows % self.every:
            return
        pairs = []
        for layer, held in self.held.items():
            of_layer = sorted(one for one in self.use if one[0] == layer)
            outside = [one for one in of_layer if one[1] not in held and self.use[one] >= self.least]
            outside.sort(key=lambda one: -self.use[one])
            inside = sorted((one for one in of_layer if one[1] in held), key=lambda one: self.use[one])
            for new, old in zip(outside, inside, strict=False):
                if not self.use[new] >= self.use[old] + self.gain:
                    break
                pairs.append((self.use[old] - self.use[new], new, old))
        for _, (layer, new), (_, old) in sorted(pairs)[: self.most]:
            self.held[layer].remove(old)
            self.held[layer].append(new)
        self.use = {one: use * self.decay for one, use in self.use.items()}


class ScoredSwaps(Hot):
    """Recent calls are kept whole, in lists; arriving experts wait in one for the end of the next step."""

    def __init__(
        self,
        steps: Sequence[Sequence[Call]],
        slots: Mapping[int, int],
        n_experts: Mapping[int, int],
        swaps: str = "8",
        lead: str = "0.0",
        admit: str = "2",
        recent: str = "64",
        weight: str = "16.0",
        profile_steps: str = "0",
    ) -> None:
        self.n_experts = n_experts
        self.slots = {layer: min(slots[layer], n_experts[layer]) for layer in n_experts}
        self.swaps, self.lead, self.admit = int(swaps), float(lead), int(admit)
        self.most, self.weight = int(recent), float(weight)
        self.last: dict[int, list[tuple[int, Sequence[int]]]] = {layer: [] for layer in n_experts}
        self.all_time: Counter[Expert] = Counter()
        for calls in steps[: int(profile_steps)]:
            self.all_time.update(self.references(calls))
        self.held = {
            layer: [
                expert
                for expert in sorted(range(n_experts[layer]), key=lambda one: -self.all_time[layer, one])
                if self.all_time[layer, expert]
            ][: self.slots[layer]]
            for layer in n_experts
        }
        self.arriving: list[Expert] = []
        self.turn = 0

    def counts(self, tokens: int) -> bool:
        return tokens <= 31

    def references(self, calls: Sequence[Call]) -> list[Expert]:
        return [(layer, expert) for layer, experts, tokens in calls if self.counts(tokens) for expert in experts]

    def often(self, one: Expert) -> int:
        return sum(list(experts).count(one[1]) for _, experts in self.last[one[0]])

    def score(self, one: Expert) -> float:
        most = max(self.all_time[one[0], expert] for expert in range(self.n_experts[one[0]]))
        return self.often(one) + self.weight * (self.all_time[one] / most)

    def after_step(self, calls: Sequence[Call], *, request_ends: bool) -> None:
        references = self.references(calls)
        missed = set(references) - self.resident()
        self.all_time.update(references)
        for layer, experts, tokens in calls:
            if self.counts(tokens):
                last = self.last[layer]
                last.append((max(tokens, 1), experts))
                while len(last) > 1 and sum(size for size, _ in last) > self.most:
                    last.pop(0)
        for layer, expert in self.arriving:
            self.held[layer].append(expert)
        self.arriving = []
        layers = sorted(self.n_experts)
        self.turn = (self.turn + 1) % len(layers)
        left = self.swaps
        for layer in layers[self.turn :] + layers[: self.turn]:
            left -= self.swap(layer, [one for one in missed - self.resident() if one[0] == layer], left)

    def swap(self, layer: int, candidates: list[Expert], left: int) -> int:
        """How many were displaced."""
        held, displaced = self.held[layer], 0
        empty = self.slots[layer] - len(held)
        for one in sorted(candidates, key=lambda one: (-self.score(one), one)):
            if empty:
                empty -= 1
            else:
                if not held or displaced == left:
                    break
                victim = min(held, key=lambda expert: (self.score((layer, expert)), expert))
                if self.score(one) < self.score((layer, victim)) + self.lead:
                    break
                if self.often(one) < self.admit:
                    continue
                held.remove(victim)
                displaced += 1
            self.arriving.append(one)
        return displaced
