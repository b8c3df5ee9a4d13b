"""An opened artifact: ids around prompts, chat templates, and what is closed in the end."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from builder.artifact.store import Artifact
from builder.cli.display import Silence
from builder.cli.main import main
from builder.cli.session import Session, open_session
from builder.errors import ArtifactError, RequestError, UserError
from tests.builder.cli.scripted_engine import Watched, generate
from tests.models import tiny_llama

START, END = "<|im_start|>", "<|im_end|>"


@pytest.fixture
def session(tiny_artifact: Path, executors: list[Watched]) -> Iterator[Session]:
    with open_session(tiny_artifact, display=Silence()) as opened:
        yield opened
    assert [executor.is_closed for executor in executors] == [True]


def framed_by(session: Session, before: tuple[int, ...], after: tuple[int, ...]) -> Session:
    """Let the manifest say that completions have ids of the model's own around them."""
    manifest = session.artifact.manifest
    tokenizer = replace(manifest.tokenizer, prefix_ids=before, suffix_ids=after)
    changed = replace(manifest, tokenizer=tokenizer)
    return replace(session, artifact=Artifact(session.artifact.root, changed))


def test_a_completion_has_the_ids_of_the_model_around_it_once(session: Session) -> None:
    framed = framed_by(session, (257,), (258,))
    assert framed.encode_text("hi") == (257, *b"hi", 258)
    assert framed.encode_with_control("hi") == (257, *b"hi", 258)
    assert framed.encode_with_control(f"{START}hi{END}") == (257, *b"hi", 258)
    assert framed.encode_text("") == (257, 258)


def test_special_tokens_that_a_plain_prompt_spells_stay_text(session: Session) -> None:
    framed = framed_by(session, (257,), ())
    assert framed.encode_text(START) == (257, *START.encode())


def test_without_such_ids_a_completion_is_its_text(session: Session) -> None:
    assert session.encode_text("hi") == tuple(b"hi")
    assert session.encode_with_control(f"hi{END}") == (*b"hi", 258)


def test_a_chat_has_only_what_its_template_writes(session: Session) -> None:
    framed = framed_by(session, (256,), (256,))
    template = framed.chat_template()
    ids = framed.encode_chat(template, [{"role": "user", "content": END}])
    expected = [257, *b"user\n", *END.encode(), 258, *b"\n", 257, *b"assistant\n"]
    assert ids == tuple(expected)


def test_text_that_is_not_unicode_is_refused(session: Session) -> None:
    with pytest.raises(RequestError):
        session.encode_text("\udcff")


def test_a_checkpoint_without_a_template_is_noted_at_compile_and_chat_is_refused(
    tmp_path: Path, executors: list[Watched]
) -> None:
    model = tiny_llama(tmp_path / "model")
    path = model / "tokenizer_config.json"
    fields = json.loads(path.read_text())
    del fields["chat_template"]
    path.write_text(json.dumps(fields))
    compiled = CliRunner().invoke(main, ["compile", str(model), "-o", str(tmp_path / "out")])
    assert "note: the model has no chat template" in compiled.stderr
    assert compiled.exit_code == 0
    refused = generate(tmp_path / "out", "hi", "--chat")
    assert refused.stderr.startswith(f"error: {tmp_path / 'out'} has no chat template")
    assert "chat_template.jinja" in refused.stderr
    assert refused.exit_code == 2
    assert executors[0].is_closed
    assert generate(tmp_path / "out", "hi", "--max-tokens", 3).exit_code == 0


def test_the_chat_template_says_so_itself(session: Session) -> None:
    manifest = session.artifact.manifest
    tokenizer = replace(manifest.tokenizer, has_chat_template=False)
    artifact = Artifact(session.artifact.root, replace(manifest, tokenizer=tokenizer))
    with pytest.raises(UserError, match="leave out --chat, or put a chat_template"):
        replace(session, artifact=artifact).chat_template()


def test_a_target_that_the_artifact_lacks_is_refused(tiny_artifact: Path) -> None:
    result = generate(tiny_artifact, "hi", "--target", "tensorrt")
    assert "target tensorrt is not implemented yet" in result.stderr
    assert result.exit_code == 2


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ArtifactError, match="is not an artifact"),
        open_session(tmp_path, display=Silence()),
    ):
        pass
