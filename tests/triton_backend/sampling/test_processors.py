"""Processors come from installed packages by name, and a bad one harms its own answer alone."""

import logging
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from builder.artifact.step import Float32, Int32
from builder.errors import RequestError
from builder.targets.executor import result_from_rows
from tests.triton_backend.making import make_sequence
from triton_backend.request import SamplingParams
from triton_backend.rows import Drawn, LogitRow, NoToken
from triton_backend.sampling.processors import GROUP, Processors
from triton_backend.sampling.sampler import Sampler

SEEN: list[tuple[list[int], list[int]]] = []


def only_seven(prompt: Int32, answer: Int32, logits: Float32) -> None:
    SEEN.append((prompt.tolist(), answer.tolist()))
    logits[:] = -np.inf
    logits[7] = 0


def halve(prompt: Int32, answer: Int32, logits: Float32) -> None:
    logits /= 2


def shift(prompt: Int32, answer: Int32, logits: Float32) -> None:
    logits[3] += 1


def fail(prompt: Int32, answer: Int32, logits: Float32) -> None:
    raise ValueError(f"quotes the prompt {prompt.tolist()}")


NO_FUNCTION = 3


def entry(name: str, attribute: str | None = None) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{attribute or name}", GROUP)


def installed() -> Processors:
    names = ("only_seven", "halve", "shift", "fail")
    twice = [entry("twice", "halve"), entry("twice", "shift")]
    broken = [entry("absent"), entry("number", "NO_FUNCTION")]
    return Processors(lambda: [*map(entry, names), *twice, *broken])


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    SEEN.clear()
    # Test modules are not importable by name otherwise.
    monkeypatch.setitem(__import__("sys").modules, __name__, request.module)


def sample(*rows: LogitRow) -> list[Drawn]:
    chosen = Sampler(vocab_size=10, num_candidates=4, processors=installed())
    for row in rows:
        chosen.check(row.sequence.request.params)
    logits = np.tile(np.array([0, 1, 0, 2, 4, 3, 0, 0, 0, 0], np.float32), (len(rows), 1))
    asks = chosen.asks(list(rows))
    return chosen.sample(list(rows), asks, result_from_rows(logits, asks))


def row_of(*names: str, temperature: float = 0) -> LogitRow:
    sequence = make_sequence("a", 2, temperature=temperature, logits_processors=names)
    sequence.token_ids.extend([5, 6])
    return LogitRow(sequence, (8,))


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_processor_edits_logits(temperature: float) -> None:
    assert sample(row_of("only_seven", temperature=temperature), row_of()) == [7, 4]


def test_a_processor_is_given_prompt_and_answer_with_its_drafts() -> None:
    sample(row_of("only_seven"))
    assert SEEN == [([0, 1], [5, 6, 8])]


def test_processors_run_in_the_order_of_the_request() -> None:
    params = [("halve", "shift"), ("shift", "halve")]
    processors = installed()
    results = []
    for names in params:
        processors.load(names)
        logits = np.full(10, 4, np.float32)
        edit = processors.processing_of(row_of(*names))
        assert edit is not None
        edit.apply(logits)
        results.append(logits[3])
    assert results == [3.0, 2.5]


def test_a_processor_that_fails_ends_its_own_answer_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        rows = (row_of(), row_of("fail"), row_of("fail", temperature=1.0))
        broken = NoToken.BROKEN_BY_PROCESSOR
        assert sample(*rows) == [4, broken, broken]
    assert "the logits processor fail failed: ValueError" in caplog.text
    assert "quotes" not in caplog.text.replace('raise ValueError(f"quotes the prompt', "")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("only_sevn", "Did you mean only_seven?"),
        ("absent", "can't be loaded (AttributeError)"),
        ("number", "is no function"),
        ("twice", "installed by more than one package"),
    ],
)
def test_what_can_not_be_called_is_refused_by_name(name: str, told: str) -> None:
    with pytest.raises(RequestError) as refused:
        Sampler(vocab_size=10, num_candidates=4, processors=installed()).check(
            SamplingParams(logits_processors=("halve", name))
        )
    assert name in str(refused.value)
    assert told in str(refused.value)


def test_without_installed_processors_every_name_is_refused() -> None:
    with pytest.raises(RequestError, match="Known: none"):
        Processors(list).load(["any"])


def test_a_name_that_nobody_asks_for_is_not_looked_for() -> None:
    def find() -> list[EntryPoint]:
        raise AssertionError

    processors = Processors(find)
    processors.load(())
    assert processors.processing_of(row_of()) is None


def test_what_is_installed_is_listed_once_whatever_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed, loaded = list[int](), list[str]()

    def find() -> list[EntryPoint]:
        listed.append(1)
        return [entry("halve"), entry("absent")]

    def load(found: EntryPoint) -> object:
        loaded.append(found.name)
        raise ImportError

    monkeypatch.setattr(EntryPoint, "load", load)
    processors = Processors(find)
    for name in ("absent", "no such", "absent", "other"):
        with pytest.raises(RequestError, match=name):
            processors.load([name])
    assert (listed, loaded) == ([1], ["absent"])


def test_a_long_name_is_refused_without_being_looked_for() -> None:
    with pytest.raises(RequestError, match=r"logits_processors\[1\] must have 1 to 128 characters"):
        SamplingParams(logits_processors=("halve", "x" * 129))


def test_the_processors_of_installed_packages_are_found() -> None:
    with pytest.raises(RequestError, match="unknown logits processor 'no such'"):
        Processors().load(["no such"])
