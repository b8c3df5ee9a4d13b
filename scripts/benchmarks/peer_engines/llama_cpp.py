"""llama.cpp, built for this machine: steps of libllama, all sequences in one batch.

This is its engine without its HTTP server, and without the server's way of computing one prompt at a time.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from peer_engines.llama_context import LIBRARY, Context, Rows
from peer_engines.measuring import KV_TOKENS, MAX_SEQS, Prompt, Task, run


class LlamaCpp:
    """One context whose sequences are computed together."""

    def __init__(self, task: Task) -> None:
        self._context = Context(
            Path(sys.prefix) / LIBRARY,
            task.model / "model.gguf",
            threads=task.threads,
            num_sequences=MAX_SEQS,
            num_tokens=KV_TOKENS,
            max_outputs=MAX_SEQS,
        )
        self._held: Prompt = []
        """What sequence 0 has computed, of which the next prompt may share a beginning."""

    def answer(self, prompts: Sequence[Prompt], num_tokens: int) -> int:
        self._held = []
        for sequence in range(len(prompts)):
            self._context.forget(sequence)
        chosen = self._context.step(
            [row for index, prompt in enumerate(prompts) for row in prompt_rows(prompt, index)]
        )
        came = len(chosen)
        for past in range(num_tokens - 1):
            rows = [
                (token, len(prompt) + past, sequence, True)
                for sequence, (token, prompt) in enumerate(zip(chosen, prompts, strict=True))
            ]
            chosen = self._context.step(rows)
            came += len(chosen)
        return came

    def remember(self, shared: Prompt) -> None:
        self.first_token(shared)

    def first_token(self, prompt: Prompt) -> None:
        same = 0
        while same < min(len(self._held), len(prompt) - 1) and self._held[same] == prompt[same]:
            same += 1
        self._context.forget(0, same)
        self._context.step(prompt_rows(prompt, 0)[same:])
        self._held = prompt


def prompt_rows(prompt: Prompt, sequence: int) -> Rows:
    """Lay out a prompt whose last token's successor is wanted."""
    last = len(prompt) - 1
    return [(token, place, sequence, place == last) for place, token in enumerate(prompt)]


if __name__ == "__main__":
    run(LlamaCpp)
