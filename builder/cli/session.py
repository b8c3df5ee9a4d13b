"""An artifact opened to run: verified, its engine loaded, prompts going in and text coming out."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from builder.artifact.store import Artifact, open_artifact, read_manifest
from builder.cli.display import Display
from builder.errors import UserError
from builder.targets import open_executor
from builder.targets.executor import Executor
from triton_backend.answers import Answers
from triton_backend.chat_template import ChatTemplate
from triton_backend.engine import Engine
from triton_backend.tokenizer import Tokenizer

TOKENIZER = "tokenizer/tokenizer.json"
CHAT_TEMPLATE = "tokenizer/chat_template.jinja"


@dataclass(frozen=True, slots=True)
class Session:
    """A loaded artifact and what surrounds its engine."""

    artifact: Artifact
    tokenizer: Tokenizer
    executor: Executor
    engine: Engine

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Give the ids of a completion prompt; special tokens that it spells stay text.

        Raises:
            RequestError: it is not valid Unicode.
        """
        return self._framed(self.tokenizer.encode(text))

    def encode_with_control(self, text: str) -> tuple[int, ...]:
        """Give the ids of a completion prompt; special tokens that it spells are those tokens.

        Raises:
            RequestError: it is not valid Unicode.
        """
        return self._framed(self.tokenizer.encode_with_control(text))

    def encode_chat(
        self, template: ChatTemplate, messages: Sequence[Mapping[str, str]]
    ) -> tuple[int, ...]:
        """Give the ids of a chat, ready for the answer; the template writes all control tokens.

        Raises:
            RequestError: the template refuses the messages, or they are not valid Unicode.
        """
        return tuple(self.tokenizer.encode_segments(template.render(messages)))

    def chat_template(self) -> ChatTemplate:
        """Compile the artifact's chat template.

        Raises:
            UserError: it has none.
        """
        if not self.artifact.manifest.tokenizer.has_chat_template:
            raise UserError(
                f"{self.artifact.root} has no chat template, because its checkpoint had none; leave out "
                "--chat, or put a chat_template.jinja into the checkpoint and compile it again"
            )
        return ChatTemplate(
            self.artifact.path(CHAT_TEMPLATE).read_text("utf-8"),
            special_tokens=self.artifact.manifest.tokenizer.named_tokens,
            control_strings=self.tokenizer.control_strings,
            clock=datetime.now,
        )

    def _framed(self, ids: list[int]) -> tuple[int, ...]:
        """Put the ids of the model's own around a completion, unless the prompt spelled them itself."""
        record = self.artifact.manifest.tokenizer
        before, after = record.prefix_ids, record.suffix_ids
        has_before = tuple(ids[: len(before)]) == before
        has_after = tuple(ids[len(ids) - len(after) :]) == after
        return (() if has_before else before) + tuple(ids) + (() if has_after else after)


@contextlib.contextmanager
def open_session(
    root: Path, *, display: Display, target: str | None = None, threads: int | None = None
) -> Iterator[Session]:
    """Verify the artifact at `root` and load its engine, which is closed in the end.

    Raises:
        ArtifactError: the artifact is incomplete or altered, or has no engine for `target`.
    """
    size = sum(record.size_bytes for record in read_manifest(root).files.values())
    with display.progress() as progress:
        progress.stage("verify", size)
        artifact = open_artifact(root, progress.advance)
        progress.stage("load", 0)
        record = artifact.manifest.tokenizer
        tokenizer = Tokenizer(
            artifact.path(TOKENIZER).read_bytes(), bos_token_id=record.bos_token_id, add_bos=False
        )
        executor = open_executor(artifact, target=target, threads=threads)
    ends = record.end_token_ids
    with contextlib.closing(executor):
        engine = Engine(executor, end_token_ids=ends, text_stage=Answers(tokenizer, ends))
        yield Session(artifact, tokenizer, executor, engine)
