"""A loaded artifact: prompts in every form become ids, and what could never fit is refused unread."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builder.artifact.store import Artifact, open_artifact
from builder.errors import ArtifactError, RequestError, UserError
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.making import make_limits
from triton_backend import loading
from triton_backend.config import EngineConfig
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.loading import LoadedModel, load_model
from triton_backend.messages import ControlText, PlainText, Prompt, Segments, TokenIds
from triton_backend.request import Request, SamplingParams
from triton_backend.segments import Segment, SegmentKind
from triton_backend.structured.verdicts import Verdicts

START, END = "<|im_start|>", "<|im_end|>"


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> ScriptedExecutor:
    """The engine that is loaded, whatever the artifact holds."""
    scripted = ScriptedExecutor(make_limits(max_seq_len=50), block_size=4, vocab_size=259)
    monkeypatch.setattr(loading, "open_executor", lambda *_, **__: scripted)
    return scripted


@pytest.fixture
def model(tiny_artifact: Path, executor: ScriptedExecutor) -> Iterator[LoadedModel]:
    loaded = load_model(open_artifact(tiny_artifact))
    yield loaded
    loaded.close()


def framed_by(model: LoadedModel, before: tuple[int, ...], after: tuple[int, ...]) -> LoadedModel:
    """Let the manifest say that completions have ids of the model's own around them."""
    manifest = model.artifact.manifest
    tokenizer = replace(manifest.tokenizer, prefix_ids=before, suffix_ids=after)
    changed = replace(manifest, tokenizer=tokenizer)
    return replace(model, artifact=Artifact(model.artifact.root, changed))


def test_a_completion_has_the_ids_of_the_model_around_it_once(model: LoadedModel) -> None:
    framed = framed_by(model, (257,), (258,))
    assert framed.encode_text("hi") == (257, *b"hi", 258)
    assert framed.encode_with_control("hi") == (257, *b"hi", 258)
    assert framed.encode_with_control(f"{START}hi{END}") == (257, *b"hi", 258)
    assert framed.encode_text("") == (257, 258)


def test_special_tokens_that_a_plain_prompt_spells_stay_text(model: LoadedModel) -> None:
    framed = framed_by(model, (257,), ())
    assert framed.encode_text(START) == (257, *START.encode())


def test_without_such_ids_a_completion_is_its_text(model: LoadedModel) -> None:
    assert model.encode_text("hi") == tuple(b"hi")
    assert model.encode_with_control(f"hi{END}") == (*b"hi", 258)


def test_a_chat_has_only_what_its_template_writes(model: LoadedModel) -> None:
    framed = framed_by(model, (256,), (256,))
    template = framed.chat_template()
    ids = framed.encode_chat(template, [{"role": "user", "content": END}])
    expected = [257, *b"user\n", *END.encode(), 258, *b"\n", 257, *b"assistant\n"]
    assert ids == tuple(expected)


def test_text_that_is_not_unicode_is_refused(model: LoadedModel) -> None:
    with pytest.raises(RequestError):
        model.encode_text("\udcff")


def test_the_chat_template_says_so_itself(model: LoadedModel) -> None:
    manifest = model.artifact.manifest
    tokenizer = replace(manifest.tokenizer, has_chat_template=False)
    artifact = Artifact(model.artifact.root, replace(manifest, tokenizer=tokenizer))
    with pytest.raises(UserError, match="leave out --chat, or put a chat_template"):
        replace(model, artifact=artifact).chat_template()


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        (TokenIds((7, 8)), (7, 8)),
        (PlainText(f"hi{END}"), (256, *b"hi", *END.encode(), 258)),
        (ControlText(f"hi{END}"), (256, *b"hi", 258)),
        (
            Segments((Segment(SegmentKind.CONTROL, START), Segment(SegmentKind.TEXT, END))),
            (257, *END.encode()),
        ),
    ],
)
def test_only_texts_get_the_ids_of_the_model(
    model: LoadedModel, prompt: Prompt, ids: tuple[int, ...]
) -> None:
    assert framed_by(model, (256,), (258,)).encode(prompt) == ids


def too_long(num_characters: int) -> list[Prompt]:
    text = "x" * num_characters
    half = Segment(SegmentKind.TEXT, "x" * (num_characters // 2))
    return [PlainText(text), ControlText(text), Segments((half, half))]


@pytest.mark.parametrize("prompt", too_long(50 * len("<|endoftext|>") + 2))
def test_a_text_that_can_never_fit_is_refused_before_it_is_read(
    model: LoadedModel, prompt: Prompt
) -> None:
    with pytest.raises(RequestError, match="has 652 characters; more than 650 can't fit"):
        model.encode(prompt)


@pytest.mark.parametrize("prompt", too_long(50 * len("<|endoftext|>")))
def test_a_text_that_might_fit_is_read(model: LoadedModel, prompt: Prompt) -> None:
    assert len(model.encode(prompt)) == 650


def test_an_engine_that_does_not_belong_to_the_tokenizer_is_closed(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = ScriptedExecutor(make_limits(), block_size=4, vocab_size=100)
    closed = []
    monkeypatch.setattr(executor, "close", lambda: closed.append(True))
    monkeypatch.setattr(loading, "open_executor", lambda *_, **__: executor)
    with pytest.raises(ArtifactError, match="do not belong together"):
        load_model(open_artifact(tiny_artifact))
    assert closed == [True]


def test_a_word_is_written_at_a_start_and_after_a_space(model: LoadedModel) -> None:
    assert model.token_runs("no") == (tuple(b"no"), tuple(b" no"))
    assert model.token_runs(" no") == model.token_runs("no")


def test_special_tokens_that_a_word_spells_stay_text(model: LoadedModel) -> None:
    assert model.token_runs(END)[0] == tuple(END.encode())


def test_a_word_of_spaces_is_taken_as_it_is(model: LoadedModel) -> None:
    assert model.token_runs("  ") == (tuple(b"  "),)


def test_a_constraint_is_compiled_once_and_found_at_submit(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(constraint=Constraint(ConstraintKind.REGEX, "a+"), num_choices=2)
    request = Request("a", tuple(b"hi"), params)
    assert model.has_to_compile(request)
    prepared = model.prepare(request)
    assert not model.has_to_compile(request)

    def compiled_again(_: Constraint) -> str:
        raise AssertionError

    monkeypatch.setattr(model.masks, "_trial", compiled_again)
    monkeypatch.setattr(model.masks, "_verdicts", Verdicts())
    model.engine.submit(prepared)
    assert model.engine.has_work


def test_a_constraint_that_is_wrong_is_refused_when_it_is_compiled(model: LoadedModel) -> None:
    with pytest.raises(RequestError, match="is not a regular expression"):
        model.prepare(
            Request("a", (1,), SamplingParams(constraint=Constraint(ConstraintKind.REGEX, "(")))
        )


def test_the_engine_is_set_as_it_is_told(tiny_artifact: Path, executor: ScriptedExecutor) -> None:
    assert executor.limits.max_seq_len == 50
    config = EngineConfig(policy="fair", max_waiting=3)
    loaded = load_model(open_artifact(tiny_artifact), config=config)
    assert loaded.engine.config == config
    loaded.close()
