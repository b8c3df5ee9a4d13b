"""Stand-ins for what the engine is given: a text stage, masks, and an executor that watches it."""

import math
from collections.abc import Callable, Collection, Sequence

from builder.artifact.step import Float32, RowAsks, StepResult, StepTensors
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.oracle import first_stop, is_allowed, letter


class FakeText:
    """One letter per token; holds back what may begin a stop string. It strictly keeps the protocol."""

    def __init__(self) -> None:
        self.live: dict[tuple[str, int], tuple[object, str, int]] = {}
        """Per answer: the request, its text, how much of it was given. Negative after a match."""

    def __len__(self) -> int:
        """Count the answers; so an idle stage is false, and must be used all the same."""
        return len(self.live)

    def opens_text(self, prompt_token_ids: Sequence[int]) -> bool:  # noqa: ARG002
        return False

    def start(self, answer_id: tuple[str, int], request) -> None:
        assert answer_id not in self.live
        assert answer_id[0] == request.request_id
        self.live[answer_id] = (request, "", 0)

    def extend(
        self, answer_id: tuple[str, int], token_ids: Sequence[int]
    ) -> tuple[str, str | None]:
        request, text, given = self.live[answer_id]
        assert given >= 0, "extended after a match"
        text += "".join(map(letter, token_ids))
        params = request.params
        passed = params.min_tokens - 1
        stop = first_stop(text, params.stop, passed)
        if stop is not None:
            place = text.index(stop, max(0, passed + 1 - len(stop)))
            self.live[answer_id] = (request, text, -1)
            return text[given : place + len(stop) * params.include_stop], stop
        held = max(map(len, params.stop), default=1) - 1
        certain = max(given, len(text) - held)
        self.live[answer_id] = (request, text, certain)
        return text[given:certain], None

    def finish(self, answer_id: tuple[str, int]) -> str:
        _, text, given = self.live.pop(answer_id)
        return "" if given < 0 else text[given:]


class FakeMask:
    """Allows what `is_allowed` does, place by place, and insists on hearing of each token once."""

    is_complete = False

    def __init__(self, text: str, stopping_ids: Collection[int]) -> None:
        self.text = text
        self.stopping_ids = stopping_ids
        self.num_accepted = self.num_begun = 0

    def begin(self) -> None:
        self.num_begun = self.num_accepted + 1

    def keeps(self, token_id: int) -> bool:
        assert self.num_begun == self.num_accepted + 1, "not begun before the executor"
        return is_allowed(self.text, token_id, self.num_accepted)

    def apply(self, logits: Float32) -> None:
        for token_id in range(len(logits)):
            if not is_allowed(self.text, token_id, self.num_accepted):
                logits[token_id] = -math.inf

    def accept(self, token_id: int) -> None:
        assert is_allowed(self.text, token_id, self.num_accepted), "drawn against the mask"
        self.num_accepted += 1


class FakeCompiled:
    """What a constraint of theirs is compiled to."""

    def __init__(self, text: str) -> None:
        self.text = text

    def start(self, stopping_ids: Collection[int]) -> FakeMask:
        return FakeMask(self.text, stopping_ids)


class FakeMasks:
    """A provider of them."""

    def compile(self, constraint) -> FakeCompiled:
        return FakeCompiled(constraint.text)


class BrokenEngineError(RuntimeError):
    """A failure that a test injects on purpose."""


class WatchedExecutor(ScriptedExecutor):
    """Shows `watch` each step before it is computed, and keeps the first failure that was not injected."""

    watch: Callable[[StepTensors], None]
    num_steps = 0
    failure: Exception | None = None

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        self.num_steps += 1
        try:
            self.watch(step)
            return super().execute(step, asks)
        except BrokenEngineError:
            raise
        except Exception as failure:
            self.failure = self.failure or failure
            raise
