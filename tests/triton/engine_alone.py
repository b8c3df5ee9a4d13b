"""What the engine answers without any server: the same artifact, loaded in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.artifact.store import open_artifact
from triton_backend.loading import LoadedModel, load_model
from triton_backend.messages import PlainText, Prompt
from triton_backend.request import Delta, Request, SamplingParams


@dataclass(frozen=True)
class EngineAlone:
    """An engine that serves one request at a time."""

    model: LoadedModel

    def deltas(self, prompt: Prompt | str, **params: Any) -> list[Delta]:
        """Answer a prompt; a bare string is plain text."""
        whole = PlainText(prompt) if isinstance(prompt, str) else prompt
        request = Request("a", self.model.encode(whole), SamplingParams(**params))
        engine = self.model.engine
        engine.submit(request)
        heard: list[Delta] = []
        while engine.has_work:
            heard += engine.step()
        return heard

    def text(self, prompt: Prompt | str, **params: Any) -> str:
        """Give the whole text of an answer."""
        return "".join(delta.text for delta in self.deltas(prompt, **params))


@contextmanager
def engine_alone(artifact: Path) -> Iterator[EngineAlone]:
    """Load an artifact for a while."""
    model = load_model(open_artifact(artifact), threads=1)
    try:
        yield EngineAlone(model)
    finally:
        model.close()


def token_ids(deltas: list[Delta]) -> list[int]:
    """Join the tokens of deltas."""
    return [token_id for delta in deltas for token_id in delta.token_ids]
