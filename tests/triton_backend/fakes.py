"""Stand-ins for what the engine is given: a text stage, and an executor that watches it."""

from collections.abc import Callable, Sequence

from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.oracle import letter


class FakeText:
    """One letter per token; holds back what may begin a stop string. It strictly keeps the protocol."""

    def __init__(self) -> None:
        self.live: dict[str, tuple[object, str, int]] = {}
        """Per answer: the request, its text, how much of it was given. Negative after a match."""

    def __len__(self) -> int:
        """Count the answers; so an idle stage is false, and must be used all the same."""
        return len(self.live)

    def start(self, request) -> None:
        assert request.request_id not in self.live
        self.live[request.request_id] = (request, "", 0)

    def extend(self, request_id: str, token_ids: Sequence[int]) -> tuple[str, str | None]:
        request, text, given = self.live[request_id]
        assert given >= 0, "extended after a match"
        text += "".join(map(letter, token_ids))
        found = [(text.index(stop), stop) for stop in request.params.stop if stop in text]
        if found:
            place, stop = min(found)
            self.live[request_id] = (request, text, -1)
            return text[given:place], stop
        held = max(map(len, request.params.stop), default=1) - 1
        certain = max(given, len(text) - held)
        self.live[request_id] = (request, text, certain)
        return text[given:certain], None

    def finish(self, request_id: str) -> str:
        _, text, given = self.live.pop(request_id)
        return "" if given < 0 else text[given:]


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
