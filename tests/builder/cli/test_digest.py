"""`builder digest`: what it prints is what the engine shares between callers, and nothing that an ending could change."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer, models

from builder.cli.digest import ENDINGS, MOMENTS, common_beginning
from builder.cli.main import main
from builder.targets.scripted.execute import ScriptedExecutor
from tests.builder.cli.scripted_engine import LIMITS, VOCAB
from triton_backend.config import EngineConfig
from triton_backend.engine import Engine
from triton_backend.engine_options import read_prefix
from triton_backend.kv.domains import prefix_digest
from triton_backend.request import Request, SamplingParams

TEXT = "You are a helpful assistant."


def digest(artifact: Path, *arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["digest", str(artifact), *arguments], input=stdin)


def printed(ids: list[int]) -> str:
    return f"{len(ids)}:{prefix_digest(ids)}\n"


@pytest.mark.usefixtures("executors")
def test_a_text_is_named_by_its_tokens(tiny_artifact: Path) -> None:
    result = digest(tiny_artifact, TEXT)
    assert (result.stdout, result.stderr, result.exit_code) == (printed([*TEXT.encode()]), "", 0)
    assert digest(tiny_artifact, "-", stdin=TEXT.encode()).stdout == result.stdout


@pytest.mark.usefixtures("executors")
def test_a_system_message_is_named_up_to_where_users_differ(tiny_artifact: Path) -> None:
    expected = [257, *b"system\n", *TEXT.encode(), 258, *b"\n", 257, *b"user\n"]
    assert digest(tiny_artifact, TEXT, "--chat").stdout == printed(expected)


@pytest.mark.usefixtures("executors")
def test_what_is_named_is_shared_between_callers(tiny_artifact: Path) -> None:
    prefix = read_prefix(digest(tiny_artifact, TEXT).stdout.strip())
    executor = ScriptedExecutor(LIMITS, block_size=8, vocab_size=VOCAB)
    config = EngineConfig(common_prefixes=(prefix,))
    engine = Engine(executor, end_token_ids=(), config=config)
    reused = []
    for name in "ab":
        prompt = (*TEXT.encode(), *f" I am {name}".encode())
        params = SamplingParams(temperature=0, max_tokens=1)
        engine.submit(Request(name, prompt, params, domain=name.encode() * 32))
        (*_, last) = [delta for _ in range(9) if engine.has_work for delta in engine.step()]
        reused.append(last.num_cached_tokens)
    assert reused == [0, len(TEXT) // 8 * 8]


def test_tokens_that_an_ending_could_change_are_not_named() -> None:
    vocabulary = {letter: place for place, letter in enumerate("abcZ .")} | {"ca": 6}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("c", "a")]))
    assert "a" in ENDINGS
    encodings = [tuple(tokenizer.encode("abc" + ending).ids) for ending in ("a", "Z", ".")]
    assert common_beginning(encodings) == (0, 1)


def test_what_all_begin_with_may_be_all_or_nothing() -> None:
    assert common_beginning([(1, 2), (1, 2)]) == (1, 2)
    assert common_beginning([(1, 2), (1, 2, 3)]) == (1, 2)
    assert common_beginning([(1, 2), (3,)]) == ()


def test_what_a_template_writes_of_the_date_is_not_named(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch, executors: list[ScriptedExecutor]
) -> None:
    dated = "{{ '<|im_start|>Today is ' + strftime_now('%d %b %Y') + messages[0]['content'] }}"
    monkeypatch.setattr(Path, "read_text", lambda *_: dated)
    expected = [257, *b"Today is "]
    assert digest(tiny_artifact, TEXT, "--chat").stdout == printed(expected)
    for code in ("%d", "%b", "%Y", "%y", "%H", "%M", "%S", "%a", "%p"):
        assert MOMENTS[0].strftime(code)[:1] != MOMENTS[1].strftime(code)[:1]
    assert executors[0].num_steps == 0  # type: ignore[attr-defined]


@pytest.mark.usefixtures("executors")
def test_a_text_that_fills_no_block_is_refused(tiny_artifact: Path) -> None:
    result = digest(tiny_artifact, "secret")
    assert (
        "begin so share 6 tokens, and blocks of 8 are shared; give a longer text" in result.stderr
    )
    assert result.exit_code == 2


def test_what_is_no_artifact_is_refused_unquoted(tmp_path: Path) -> None:
    result = digest(tmp_path / "secret", TEXT)
    assert result.stderr.startswith("error: DIR, the first argument, is no folder")
    assert "secret" not in result.stderr
    assert result.exit_code == 2
