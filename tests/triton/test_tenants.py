"""Two keys before the real server: each finds its own prompts in the cache, and nobody else's."""

import json
import secrets
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.triton.clients import call
from tests.triton.serve_process import ServeProcess, serve_process
from tests.triton.serving import FORERUN, deployed
from triton_backend.tenancy import SECRET_VARIABLE

KEYS = ("alices-key", "bobs-key")


@pytest.fixture(scope="module")
def serve(tiny_artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    folder = tmp_path_factory.mktemp("tenants")
    (folder / "keys").write_text("\n".join(KEYS))
    repository = deployed(tiny_artifact, folder / "repository")
    with serve_process(repository, f"--api-key-file={folder / 'keys'}") as process:
        yield process


@pytest.fixture(scope="module")
def letters() -> Iterator[str]:
    return iter(string.ascii_letters)


@pytest.fixture
def prompt(letters: Iterator[str]) -> str:
    """Give a prompt of several blocks, which shares not even its first character with one before."""
    return next(letters) + 5 * f"{secrets.token_hex(8)} "


def complete(serve: ServeProcess, prompt: str, *, key: str = KEYS[0], **fields: Any) -> Any:
    """Ask for a short answer, as the caller with a key."""
    content = {"model": FORERUN, "prompt": prompt, "max_tokens": 2, "temperature": 0, **fields}
    headers = {"authorization": f"Bearer {key}"}
    path = "/v1/completions"
    status, body = call(serve.address("openai"), "POST", path, content, headers=headers)
    answer = json.loads(body)
    assert status == 200, answer
    return answer


def num_cached(serve: ServeProcess, prompt: str, **fields: Any) -> int:
    """Ask, and give the tokens of the prompt that were not computed anew."""
    usage = complete(serve, prompt, **fields)["usage"]
    count: int = usage["prompt_tokens_details"]["cached_tokens"]
    assert 0 <= count < usage["prompt_tokens"]
    return count


def test_a_caller_finds_its_own_prompt_and_nobody_elses(serve: ServeProcess, prompt: str) -> None:
    alice, bob = KEYS
    assert num_cached(serve, prompt, key=alice) == 0
    assert num_cached(serve, prompt, key=bob) == 0
    assert num_cached(serve, prompt, key=alice) > 0
    assert num_cached(serve, prompt, key=bob) > 0


def test_a_salt_keeps_a_caller_from_itself_and_lets_nobody_in(
    serve: ServeProcess, prompt: str
) -> None:
    alice, bob = KEYS
    assert num_cached(serve, prompt, key=alice, cache_salt="mine") == 0
    assert num_cached(serve, prompt, key=alice) == 0
    assert num_cached(serve, prompt, key=bob, cache_salt="mine") == 0
    assert num_cached(serve, prompt, key=alice, cache_salt="mine") > 0


def test_an_answer_does_not_tell_what_was_cached(serve: ServeProcess, prompt: str) -> None:
    fields = {"max_tokens": 20, "logprobs": 3}
    first, second = (complete(serve, prompt, **fields)["choices"] for _ in range(2))
    assert first == second


def test_who_asks_triton_itself_shares_with_nobody(serve: ServeProcess, prompt: str) -> None:
    assert num_cached(serve, prompt) == 0
    for _ in range(2):
        with serve.forerun() as stream:
            stream.ask(text=prompt, max_tokens=2, temperature=0, cache_salt="mine")
            assert stream.answer()[-1].as_numpy("num_cached_tokens").tolist() == [0]


def test_who_only_claims_to_be_somebody_shares_with_nobody(
    serve: ServeProcess, prompt: str
) -> None:
    assert num_cached(serve, prompt) == 0
    path = f"/v2/models/{FORERUN}/generate"
    claim = {"tenant": "anonymous", "tenant_expires": 2**40, "tenant_tag": "ab" * 32}
    content = {"text": prompt, "max_tokens": 2, "temperature": 0, "stream": False, **claim}
    for _ in range(2):
        status, body = call(serve.address("http"), "POST", path, content)
        assert status == 200, body
        assert json.loads(body)["num_cached_tokens"] == 0


def test_the_secret_is_in_its_file_and_nowhere_else(serve: ServeProcess) -> None:
    path = Path(serve.triton.environ()[SECRET_VARIABLE])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    secret = path.read_bytes()
    spellings = (secret, secret.hex().encode())
    said = [(path.parent / "server.log").read_bytes(), serve.errors.read_bytes()]
    for process in (psutil.Process(serve.process.pid), *serve.family):
        said.append("\0".join(process.cmdline()).encode())
        said.append("\0".join(process.environ().values()).encode("utf-8", "surrogateescape"))
    for text in said:
        assert not any(spelling in text for spelling in spellings)
        assert not any(key.encode() in text for key in KEYS)


def test_choices_of_one_prompt_are_numbered_and_count_it_once(
    serve: ServeProcess, prompt: str
) -> None:
    answer = complete(serve, prompt, n=3, temperature=1, seed=5, max_tokens=8)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len({choice["text"] for choice in answer["choices"]}) > 1
    assert answer["usage"]["prompt_tokens"] == len(prompt.encode())
    assert answer["usage"]["completion_tokens"] <= 24


def test_an_answer_follows_its_constraint(serve: ServeProcess, prompt: str) -> None:
    fields = {"structured_outputs": {"regex": "[ab]{3}c"}, "max_tokens": 50, "temperature": 1}
    (choice,) = complete(serve, prompt, seed=1, **fields)["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["text"][:3].strip("ab") == ""
    assert choice["text"][3:] == "c"


def test_a_constraint_that_is_wrong_is_refused_by_the_clients_name(serve: ServeProcess) -> None:
    content = {"model": FORERUN, "prompt": "x", "structured_outputs": {"regex": "canary("}}
    headers = {"authorization": f"Bearer {KEYS[0]}"}
    status, body = call(
        serve.address("openai"), "POST", "/v1/completions", content, headers=headers
    )
    assert (status, json.loads(body)["error"]["param"]) == (400, "structured_outputs")
    assert b"canary" not in body


@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_the_answer_outgrows_is_the_clients_mistake(
    serve: ServeProcess, prompt: str, stream: bool
) -> None:
    ambiguous = {"grammar": "root ::= s\ns ::= s s | [a-z] | s s s"}
    content = {"model": FORERUN, "prompt": prompt, "max_tokens": 200, "ignore_eos": True}
    headers = {"authorization": f"Bearer {KEYS[0]}"}
    status, body = call(
        serve.address("openai"),
        "POST",
        "/v1/completions",
        {**content, "structured_outputs": ambiguous, "stream": stream},
        headers=headers,
    )
    assert status == (200 if stream else 400)
    error = json.loads(body.rpartition(b"data: ")[2])["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", "structured_outputs")
    assert error["message"].startswith("structured_outputs is too complex to follow; ")


def test_a_bad_word_does_not_come(serve: ServeProcess, prompt: str) -> None:
    fields = {"logit_bias": {str(ord("a")): 100, str(ord("b")): 90}, "max_tokens": 3}
    assert complete(serve, prompt, **fields)["choices"][0]["text"] == "aaa"
    assert complete(serve, prompt, bad_words=["a"], **fields)["choices"][0]["text"] == "bbb"
