"""An artifact loaded to run: its engine, and the two ways between text and token ids.

The command line and the engine host share it. The artifact was verified before; the engine's memory is this
module's to give back.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from builder.artifact.store import Artifact
from builder.errors import RequestError, UserError
from builder.targets import open_executor
from builder.targets.executor import Executor
from triton_backend.answers import Answers
from triton_backend.chat_template import ChatTemplate
from triton_backend.config import EngineConfig
from triton_backend.engine import Engine
from triton_backend.messages import ControlText, PlainText, Prompt, Segments, TokenIds
from triton_backend.request import Request
from triton_backend.segments import Segment
from triton_backend.structured.guidance import GuidanceProvider
from triton_backend.text_files import CHAT_TEMPLATE, compile_template, read_tokenizer
from triton_backend.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """A loaded artifact and what surrounds its engine. Prompts may be encoded on any thread."""

    artifact: Artifact
    tokenizer: Tokenizer
    executor: Executor
    engine: Engine
    masks: GuidanceProvider

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Give the ids of a prompt in any of its forms.

        Raises:
            RequestError: it is not valid Unicode, not of this model, or longer than could ever fit.
        """
        match prompt:
            case TokenIds(token_ids):
                return token_ids
            case PlainText(text):
                return self.encode_text(text)
            case ControlText(text):
                return self.encode_with_control(text)
            case Segments(segments):
                return self._encode_segments(segments)

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Give the ids of a completion prompt; special tokens that it spells stay text.

        Raises:
            RequestError: it is not valid Unicode, or longer than could ever fit.
        """
        self._refuse_too_long(len(text))
        return self._framed(self.tokenizer.encode(text))

    def encode_with_control(self, text: str) -> tuple[int, ...]:
        """Give the ids of a completion prompt; special tokens that it spells are those tokens.

        Raises:
            RequestError: it is not valid Unicode, or longer than could ever fit.
        """
        self._refuse_too_long(len(text))
        return self._framed(self.tokenizer.encode_with_control(text))

    def encode_chat(
        self, template: ChatTemplate, messages: Sequence[Mapping[str, str]]
    ) -> tuple[int, ...]:
        """Give the ids of a chat, ready for the answer; the template writes all control tokens.

        Raises:
            RequestError: the template refuses the messages, or they are not valid Unicode, or longer than
                could ever fit.
        """
        return self._encode_segments(template.render(messages))

    def token_runs(self, word: str) -> tuple[tuple[int, ...], ...]:
        """Give the ids that a word is written in, at the start of a text and after a space.

        Raises:
            RequestError: it is not valid Unicode.
        """
        bare = word.lstrip()
        texts = (bare, f" {bare}") if bare else (word,)
        return tuple(dict.fromkeys(tuple(self.tokenizer.encode(text)) for text in texts))

    def prepare(self, request: Request) -> Request:
        """Do what of a submit may take long; see `Engine.prepare`."""
        return self.engine.prepare(request)

    def has_to_compile(self, request: Request) -> bool:
        """Tell whether `prepare` has to compile a constraint that it does not know yet."""
        constraint = request.params.constraint
        return constraint is not None and not self.masks.knows(constraint)

    def chat_template(self, clock: Callable[[], datetime] = datetime.now) -> ChatTemplate:
        """Compile the artifact's chat template; `clock` gives the date that it may show.

        Raises:
            UserError: it has none.
        """
        record = self.artifact.manifest.tokenizer
        if not record.has_chat_template:
            raise UserError(
                f"{self.artifact.root} has no chat template, because its checkpoint had none; leave out "
                "--chat, or put a chat_template.jinja into the checkpoint and compile it again"
            )
        source = self.artifact.path(CHAT_TEMPLATE).read_text("utf-8")
        return compile_template(source, record, self.tokenizer, clock=clock)

    def close(self) -> None:
        """Free the engine."""
        self.executor.close()

    def _encode_segments(self, segments: Sequence[Segment]) -> tuple[int, ...]:
        self._refuse_too_long(sum(len(segment.text) for segment in segments))
        return tuple(self.tokenizer.encode_segments(segments))

    @cached_property
    def _longest_token(self) -> int:
        """Characters that one token can stand for, control tokens included."""
        texts = (*self.tokenizer.pieces, *self.tokenizer.control_strings)
        return max(1, *map(len, texts))

    def _refuse_too_long(self, num_characters: int) -> None:
        """Refuse what can't fit, whatever its tokens are: encoding it would only keep others waiting."""
        most = self.executor.limits.max_seq_len * self._longest_token
        if num_characters > most:
            raise RequestError(
                f"the prompt has {num_characters} characters; more than {most} can't fit "
                f"max_seq_len {self.executor.limits.max_seq_len}."
            )

    def _framed(self, ids: list[int]) -> tuple[int, ...]:
        """Put the ids of the model's own around a completion, unless the prompt spelled them itself."""
        record = self.artifact.manifest.tokenizer
        before, after = record.prefix_ids, record.suffix_ids
        has_before = tuple(ids[: len(before)]) == before
        has_after = tuple(ids[len(ids) - len(after) :]) == after
        return (() if has_before else before) + tuple(ids) + (() if has_after else after)


def load_model(
    artifact: Artifact,
    *,
    target: str | None = None,
    threads: int | None = None,
    config: EngineConfig | None = None,
) -> LoadedModel:
    """Load the tokenizer and the engine of a verified artifact; `close` what comes back.

    Raises:
        ArtifactError: the artifact has no engine for `target`, or it can't be loaded here.
        CheckpointError: the tokenizer can't be used.
        UserError: the number of threads is out of range.
    """
    record = artifact.manifest.tokenizer
    tokenizer = read_tokenizer(artifact.root, record)
    ends = record.end_token_ids
    with contextlib.ExitStack() as undo:
        executor = undo.enter_context(
            contextlib.closing(open_executor(artifact, target=target, threads=threads))
        )
        masks = _masks(tokenizer, executor.vocab_size)
        engine = Engine(
            executor,
            end_token_ids=ends,
            text_stage=Answers(tokenizer, ends),
            mask_provider=masks,
            config=config,
        )
        undo.pop_all()
    return LoadedModel(artifact, tokenizer, executor, engine, masks)


def _masks(tokenizer: Tokenizer, vocab_size: int) -> GuidanceProvider:
    """Make what compiles constraints for a tokenizer. Ids of the engine beyond its own have no text."""
    padding = (b"",) * (vocab_size - tokenizer.vocab_size)
    return GuidanceProvider((tokenizer.pieces + padding)[:vocab_size], tokenizer.encode)
