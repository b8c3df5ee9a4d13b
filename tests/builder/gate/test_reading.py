"""Engines read chunks side by side, however many rows each gives in a step."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.errors import EngineError
from builder.gate.reading import compare_engines, cut, read_rows, rows_per_step
from builder.targets import open_executor
from builder.targets.executor import Executor, LentExecutor, result_from_rows
from tests.built import compile_model
from tests.models import tiny_llama


class Told(LentExecutor):
    """An engine whose logits a test may change."""

    def __init__(self, executor: Executor, change: Any) -> None:
        super().__init__(executor)
        self._change = change

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        found = super().execute(step, asks)
        rows = np.stack([found.full_row(row) for row in range(len(step.logit_rows))])
        return result_from_rows(self._change(rows.copy()), asks)


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("gate")
    model = tiny_llama(folder / "model")
    artifact = compile_model(model, folder / "artifact", max_seq_len=64, max_num_seqs=8)
    opened = open_executor(artifact, threads=1)
    yield opened
    opened.close()


IDS = list(range(40, 100))


def test_chunks_hold_all_tokens_in_order_each_behind_the_prefix() -> None:
    chunks = cut(IDS, (1, 2), 22)
    assert [len(chunk) for chunk in chunks] == [22, 22, 22]
    assert [chunk[:2].tolist() for chunk in chunks] == [[1, 2]] * 3
    assert [token for chunk in chunks for token in chunk[2:].tolist()] == IDS


def test_a_rest_of_one_token_predicts_nothing_and_goes() -> None:
    assert [len(chunk) for chunk in cut(IDS[:41], (), 20)] == [20, 20]
    assert [len(chunk) for chunk in cut(IDS[:41], (7,), 21)] == [21, 21, 2]


def test_the_rows_of_a_step_are_those_that_every_engine_gives(executor: Executor) -> None:
    class Narrow(LentExecutor):
        limits = replace(executor.limits, max_logit_rows=3)  # type: ignore[assignment]

    assert rows_per_step(executor) == 8
    assert rows_per_step(executor, Narrow(executor)) == 3


@pytest.mark.parametrize("num_rows", [1, 3, 8])
def test_rows_are_the_same_however_many_come_in_a_step(executor: Executor, num_rows: int) -> None:
    (chunk,) = cut(IDS, (), 64)
    pieces = list(read_rows(executor, chunk, num_rows))
    assert {len(piece) for piece in pieces[:-1]} <= {num_rows}
    expected = np.concatenate(list(read_rows(executor, chunk, 5)))
    assert np.array_equal(np.concatenate(pieces), expected)
    assert expected.shape == (60, executor.vocab_size)


def test_an_engine_beside_itself_differs_in_nothing(executor: Executor) -> None:
    advanced: list[int] = []
    figures = compare_engines(
        executor, Told(executor, lambda rows: rows), cut(IDS, (), 25), advanced.append
    )
    assert (figures.kl_mean, figures.kl_p99, figures.agreement) == (0, 0, 1)
    assert figures.perplexity_ratio == 1
    assert sum(advanced) == len(IDS)


def test_only_tokens_that_are_known_are_judged(executor: Executor) -> None:
    def break_last(rows: np.ndarray) -> np.ndarray:
        rows[-1] = np.roll(rows[-1], 5)
        return rows

    chunks = cut(IDS[:8], (), 8)  # one step, whose last row foretells what nobody knows
    figures = compare_engines(executor, Told(executor, break_last), chunks, lambda _: None)
    assert figures.kl_mean == 0


def test_the_perplexity_is_that_of_the_coming_tokens(executor: Executor) -> None:
    (chunk,) = cut(IDS[:30], (), 64)
    rows = np.concatenate(list(read_rows(executor, chunk, 8))).astype(np.float64)
    sums = np.log(np.exp(rows).sum(axis=1))
    losses = sums[:-1] - rows[np.arange(29), chunk[1:]]
    figures = compare_engines(executor, Told(executor, lambda r: r), [chunk], lambda _: None)
    assert figures.perplexity == pytest.approx(np.exp(losses.mean()), rel=1e-5)


def test_logits_that_are_no_numbers_are_an_error_of_the_engine(executor: Executor) -> None:
    def spoil(rows: np.ndarray) -> np.ndarray:
        rows[0, 3] = np.nan
        return rows

    with pytest.raises(EngineError, match="logits that are not finite"):
        compare_engines(executor, Told(executor, spoil), cut(IDS, (), 30), lambda _: None)
