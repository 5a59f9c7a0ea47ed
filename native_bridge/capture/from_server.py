"""Asking a server one prompt after another, and storing its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flashmoe_sim.io.errors import BadInput, SimError
from flashmoe_sim.trace.request_calls import trace_of_requests
from flashmoe_sim.trace.requests import Hints
from flashmoe_sim.trace.served_json import FORMAT
from flashmoe_sim.trace.served_response import BadResponse, requests_of
from native_bridge.capture.answers import Answers, hash_of_prompt
from native_bridge.capture.server import Server


@dataclass(frozen=True)
class Asking:
    """prompts: to ask now. kept: the number answered before."""

    prompts: int
    kept: int


def ask_all(
    server: Server,
    prompts: Sequence[str],
    answers: Answers,
    *,
    hints: Hints,
    progress: Callable[[int, int], None] | None = None,
) -> Asking:
    """Ask all prompts without an answer, in order; each answer is checked as a trace, and written before the next.

    progress: called after each with the number of answered prompts and the total.
    Raises BadInput for an answer without routing or with impossible routing, and whenever `Server.ask` does; the
    message names the prompt, and says that earlier answers are kept.
    """
    left, done = Counter(answers.kept), 0
    waiting = []
    for number, prompt in enumerate(prompts, 1):
        if left[hash_of_prompt(prompt)]:
            left[hash_of_prompt(prompt)] -= 1
            done += 1
        else:
            waiting.append((number, prompt))
    kept = done
    for number, prompt in waiting:
        where = f"{server.url}: the answer to prompt {number}"
        try:
            response = server.ask(prompt, answers.asked)
        except SimError as error:
            raise type(error)(f"{error} (prompt {number:,} of {len(prompts):,}){_kept(answers)}") from None
        try:
            requests = requests_of(response, where=where, hints=hints)
            trace_of_requests(requests, format=FORMAT, name=where, hints=hints)
        except BadResponse as error:
            raise BadInput(f"{where}: {error}{_kept(answers)}") from None
        except BadInput as error:
            raise BadInput(f"{error}{_kept(answers)}") from None
        answers.add(prompt, response, shape=requests[0].expert.shape)
        done += 1
        if progress:
            progress(done, len(prompts))
    return Asking(len(waiting), kept)


def _kept(answers: Answers) -> str:
    count = answers.kept.total()
    return f"; {count:,} answer{'s are' if count > 1 else ' is'} kept, the same command goes on" if count else ""
