"""The real model from a GGUF file to text, through the command line and through the engine."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from builder.artifact.store import open_artifact
from builder.cli.main import main
from builder.targets import open_executor
from builder.targets.executor import Executor
from tests.models import smollm2_gguf
from triton_backend.answers import Answers
from triton_backend.engine import Engine
from triton_backend.request import FinishReason, Request, SamplingParams
from triton_backend.tokenizer import Tokenizer

pytestmark = pytest.mark.model

PROMPTS = [
    "What is the capital of France?",
    "Write one sentence about rivers.",
    "Count from one to five.",
    "Name three colours, and say which one is the sky's. " * 8,
]


@pytest.fixture(scope="module", params=["--dtype=float32", "--int8"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built") / "smollm2"
    options = [request.param, "--max-num-tokens", "64", "--max-seq-len", "512"]
    result = CliRunner().invoke(main, ["compile", str(smollm2_gguf()), "-o", str(root), *options])
    assert result.exit_code == 0, result.stderr
    return root


def generate(root: Path, *arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(
        main, ["generate", str(root), *arguments, "--json", "--max-tokens", "16"]
    )
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_chat_is_answered(artifact: Path) -> None:
    (answer,) = generate(artifact, "What is the capital of France?", "--chat")
    assert "Paris" in answer["text"]
    assert "<|im_end|>" not in answer["text"]


@pytest.mark.parametrize(
    "options",
    [(), ("--chat",), ("--temperature", "0.9", "--top-p", "0.95", "--top-k", "50", "--seed", "11")],
    ids=["greedy", "chat", "sampled"],
)
def test_prompts_run_together_equal_prompts_run_one_by_one(
    artifact: Path, options: tuple[str, ...]
) -> None:
    together = generate(artifact, *PROMPTS, *options)
    alone = [generate(artifact, prompt, *options)[0] for prompt in PROMPTS]
    for index, answer in enumerate(alone):
        assert together[index] == {**answer, "index": index}


def test_seeds_differ_and_repeat(artifact: Path) -> None:
    options = ("--temperature", "1.0", "--seed")
    first, again, other = (
        generate(artifact, PROMPTS[1], *options, seed)[0]["text"] for seed in "778"
    )
    assert first == again != other


@pytest.fixture(scope="module")
def loaded(artifact: Path) -> Iterator[tuple[Executor, Callable[[], Engine], Tokenizer]]:
    opened = open_artifact(artifact)
    executor = open_executor(opened)
    record = opened.manifest.tokenizer
    tokenizer = Tokenizer(
        opened.path("tokenizer/tokenizer.json").read_bytes(),
        bos_token_id=record.bos_token_id,
        add_bos=False,
    )
    ends = record.end_token_ids

    def engine() -> Engine:
        return Engine(executor, end_token_ids=ends, text_stage=Answers(tokenizer, ends))

    yield executor, engine, tokenizer
    executor.close()


def test_a_stop_string_ends_an_answer_before_it(loaded: Any) -> None:
    _, new_engine, tokenizer = loaded
    whole = run(new_engine(), tokenizer, PROMPTS[2], max_tokens=30)
    stop = whole[0][8:14]
    text, reason = run(new_engine(), tokenizer, PROMPTS[2], max_tokens=30, stop=(stop,))
    assert reason is FinishReason.STOP
    assert text == whole[0][: whole[0].index(stop)]


def test_a_cancelled_answer_ends_within_the_step_and_others_go_on(loaded: Any) -> None:
    _, new_engine, tokenizer = loaded
    expected = run(new_engine(), tokenizer, PROMPTS[0], max_tokens=20)[0]
    engine = new_engine()
    for name, prompt in zip("ab", PROMPTS[:2], strict=True):
        engine.submit(
            Request(
                name, tuple(tokenizer.encode(prompt)), SamplingParams(temperature=0, max_tokens=20)
            )
        )
    texts = {"a": "", "b": ""}
    for delta in engine.step():
        texts[delta.request_id] += delta.text
    (cancelled,) = engine.cancel("b")
    assert cancelled.finish_reason is FinishReason.CANCELLED
    while engine.has_work:
        for delta in engine.step():
            assert delta.request_id == "a"
            texts["a"] += delta.text
    assert texts["a"] == expected
    assert engine.scheduler.cache.num_held == 0


def run(
    engine: Engine, tokenizer: Tokenizer, prompt: str, **params: Any
) -> tuple[str, FinishReason | None]:
    engine.submit(
        Request("only", tuple(tokenizer.encode(prompt)), SamplingParams(temperature=0, **params))
    )
    text, reason = "", None
    while engine.has_work:
        for delta in engine.step():
            text, reason = text + delta.text, delta.finish_reason
    return text, reason
