"""Forerun: the engine loop over the executor of an artifact, in this process."""

from collections.abc import Sequence
from itertools import count

from builder.artifact.store import Artifact, read_manifest
from builder.targets import open_executor
from peer_engines.measuring import Prompt, Task, run
from triton_backend.engine import Engine
from triton_backend.request import Request, SamplingParams


class Ours:
    """An artifact's first engine; its files are not hashed first, as other engines hash none."""

    def __init__(self, task: Task) -> None:
        artifact = Artifact(task.model, read_manifest(task.model))
        self._engine = Engine(open_executor(artifact, threads=task.threads), end_token_ids=())
        self._names = map(str, count())

    def answer(self, prompts: Sequence[Prompt], num_tokens: int) -> int:
        params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
        for prompt in prompts:
            self._engine.submit(Request(next(self._names), tuple(prompt), params))
        came = 0
        while self._engine.has_work:
            came += sum(len(delta.token_ids) for delta in self._engine.step())
        return came

    def remember(self, shared: Prompt) -> None:
        self.answer([[*shared, 0]], 1)

    def first_token(self, prompt: Prompt) -> None:
        self.answer([prompt], 1)


if __name__ == "__main__":
    run(Ours)
