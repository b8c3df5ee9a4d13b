"""The native CPU engine on tiny models: every instruction set, precision and shape against the references."""

import dataclasses
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.artifact.store import Artifact
from builder.errors import EngineError
from builder.targets.cpu import native
from builder.targets.cpu.execute import CpuExecutor
from plugins.row_answers import reference
from tests.builder.targets.cpu.drawing import draw
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.builder.targets.cpu.precisions import PRECISIONS
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

SHAPES = {
    "plain": {},
    "untied-biased": {"tie_word_embeddings": False, "mlp_bias": True, "attention_bias": True},
    "odd-widths": {"hidden_size": 48, "head_dim": 12, "intermediate_size": 90, "vocab_size": 257},
    "head-100": {"head_dim": 100},
    "head-256": {"head_dim": 256},
    "nine-heads-three-kv": {
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "hidden_size": 144,
        "head_dim": 64,
    },
    "one-kv-head": {"num_key_value_heads": 1},
}
SOME = ("odd-widths",)
KINDS = PRECISIONS | {"kv-int8": {"kv": "int8"}}
WIDENED = ("float32", "fp8-weight-only", "nvfp4-weight-only", "mxfp4")
"""Nothing is rounded while a step runs."""
BUILDS = [
    (kind, shape)
    for kind in KINDS
    for shape in (SOME if ("-" in kind and kind != "kv-int8") or kind in WIDENED[1:] else SHAPES)
]


@pytest.fixture(scope="module", params=BUILDS, ids="-".join)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    kind, shape = request.param
    model = tiny_llama(tmp_path_factory.mktemp("model"), **SHAPES[shape])
    folder = tmp_path_factory.mktemp("built") / "artifact"
    return compile_model(model, folder, max_num_seqs=256, **KINDS[kind])


@pytest.fixture(params=native.builds())
def executor(artifact: Artifact, request: pytest.FixtureRequest) -> Iterator[CpuExecutor]:
    executor = opened(artifact, build=request.param)
    yield executor
    executor.close()


def opened(artifact: Artifact, *, threads: int = 2, build: str = "") -> CpuExecutor:
    return CpuExecutor(artifact, artifact.manifest.engines[0], num_threads=threads, build=build)


def test_logits_equal_the_references_of_the_operations(
    executor: CpuExecutor, artifact: Artifact
) -> None:
    tokens = draw(150)
    got, want = PagedRunner(executor).whole(tokens), PlanRunner(artifact).logits(tokens)
    requested = artifact.manifest.engines[0].requested
    kv = artifact.manifest.kv.groups[0].dtype
    if requested in WIDENED and kv == "float32":
        np.testing.assert_allclose(got, want, atol=3e-4)
    elif requested == "bfloat16":  # of 8 bits, one step of rounding here and there
        assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.9999
        assert np.abs(got - want).mean() < 0.01 * want.std()
    else:  # a number that lies between two steps of a rounding may go either way
        assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.999
        bound = 0.01 if requested == "float32" else 0.06
        assert np.abs(got - want).mean() < bound * want.std()


@pytest.mark.parametrize("chunk", [1, 3, 16, 61])
def test_chunks_give_the_same_bits(executor: CpuExecutor, chunk: int) -> None:
    runner, tokens = PagedRunner(executor), draw(150)
    np.testing.assert_array_equal(runner.whole(tokens, chunk), runner.whole(tokens))


def test_a_row_has_the_same_bits_whatever_else_is_in_the_step(executor: CpuExecutor) -> None:
    runner = PagedRunner(executor)
    prompts = {str(length): draw(length, length) for length in (1, 100, 2, 50, 1, 3, 33)}
    alone = {name: runner.whole(tokens) for name, tokens in prompts.items()}
    for (name, _), rows in zip(prompts.items(), runner.step(*prompts.items()), strict=True):
        np.testing.assert_array_equal(rows, alone[name])


@pytest.mark.parametrize("threads", [1, 3, 7])
def test_thread_counts_change_no_bit(artifact: Artifact, threads: int) -> None:
    tokens = draw(80)
    rows = []
    for count in (2, threads):
        executor = opened(artifact, threads=count)
        rows.append(PagedRunner(executor).whole(tokens))
        executor.close()
    np.testing.assert_array_equal(rows[0], rows[1])


@pytest.fixture(scope="module", params=["int8", "int4", "uint4", "bfloat16", "fp8-dynamic"])
def narrow(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = tiny_llama(tmp_path_factory.mktemp("model"))
    folder = tmp_path_factory.mktemp("built") / "artifact"
    return compile_model(model, folder, max_num_seqs=256, **PRECISIONS[request.param])


@pytest.mark.parametrize("num_seqs", range(1, 20))
def test_every_number_of_single_tokens_gives_the_same_bits(narrow: Artifact, num_seqs: int) -> None:
    executor = opened(narrow)
    runner = PagedRunner(executor)
    names = [str(i) for i in range(num_seqs)]
    for name in names:
        runner.step((name, draw(20 + int(name), int(name))))
    together = runner.step(*((name, [7]) for name in names))
    for name, rows in zip(names, together, strict=True):
        alone = runner.whole([*draw(20 + int(name), int(name)), 7])
        np.testing.assert_array_equal(rows[0], alone[-1])
    executor.close()


def test_what_a_former_owner_left_in_a_block_never_shows(artifact: Artifact) -> None:
    executor = opened(artifact)
    runner, tokens = PagedRunner(executor), draw(37)
    clean = runner.whole(tokens)
    for seed in range(3):
        runner.whole(draw(250, seed + 1))
        np.testing.assert_array_equal(runner.whole(tokens), clean)
    executor.close()


def answers(executor: CpuExecutor, asks: RowAsks, num_rows: int) -> tuple[StepResult, np.ndarray]:
    runner = PagedRunner(executor)
    step = runner._lay_out([("a", runner._extend("a", num_rows) or draw(num_rows))], [num_rows])
    result = executor.execute(step, asks)
    return result, np.stack([result.full_row(j) for j in range(num_rows)])


@pytest.mark.parametrize("count", [0, 1, 5, 64, 259, 1000])
def test_candidates_and_sums_are_those_of_the_full_rows(plain: Artifact, count: int) -> None:
    executor = opened(plain)
    temperatures = np.array([0, 0.5, 1, 2], np.float32)
    result, rows = answers(executor, RowAsks(count, temperatures), 4)
    for j, row in enumerate(rows):
        assert result.argmax[j] == reference.argmax(row)
        ids = reference.largest(row, count)
        np.testing.assert_array_equal(result.candidate_ids[j], ids)
        np.testing.assert_array_equal(result.candidate_logits[j], row[ids])
        expected = reference.logsumexp(row, float(temperatures[j]))
        assert result.logsumexp[j] == pytest.approx(expected, rel=1e-5, abs=1e-5)
    executor.close()


@pytest.mark.parametrize("count", [1, 70, 259])
def test_more_candidates_of_any_rows_are_those_of_the_full_rows(
    plain: Artifact, count: int
) -> None:
    executor = opened(plain)
    result, rows = answers(executor, RowAsks(0, np.zeros(4, np.float32)), 4)
    places = [2, 0, 2]
    ids, logits = result.likeliest(places, count)
    for index, place in enumerate(places):
        expected = reference.largest(rows[place], count)
        np.testing.assert_array_equal(ids[index], expected)
        np.testing.assert_array_equal(logits[index], rows[place][expected])
    executor.close()


@pytest.mark.parametrize("row", [-1, 4, 1 << 30])
def test_rows_that_the_last_step_did_not_have_are_refused(plain: Artifact, row: int) -> None:
    executor = opened(plain)
    result, _ = answers(executor, RowAsks(0, np.zeros(4, np.float32)), 4)
    for ask in (lambda: result.full_row(row), lambda: result.likeliest([0, row], 3)):
        with pytest.raises(EngineError, match="none of the 4 of the last step"):
            ask()
    executor.close()


def test_a_step_may_ask_for_no_logits(plain: Artifact) -> None:
    executor = opened(plain)
    runner = PagedRunner(executor)
    step = runner._lay_out([("a", runner._extend("a", 9) or draw(9))], [9])
    silent = dataclasses.replace(step, logit_rows=np.zeros(0, np.int32))
    assert executor.execute(silent, RowAsks(4, np.zeros(0, np.float32))).argmax.shape == (0,)
    executor.close()


def test_block_copies_happen_before_the_step_writes(artifact: Artifact) -> None:
    executor = opened(artifact)
    runner, tokens = PagedRunner(executor), draw(30)
    expected = runner.whole(tokens)
    runner.step(("a", tokens[:29]))
    (shared,) = runner._tables["a"][1:]
    runner._extend("a", 1)
    step = runner._lay_out([("a", tokens[29:])], [1])
    copy = next(block for block in runner._free)
    step.block_tables[0, 0, 1] = copy
    step.slot_mapping[0, 0] = copy * 16 + 29 % 16
    moved = dataclasses.replace(step, block_copies=np.array([[0, shared, copy]], np.int32))
    result = executor.execute(moved, RowAsks(0, np.zeros(1, np.float32)))
    np.testing.assert_array_equal(result.full_row(0), expected[29])
    executor.close()


BROKEN_STEPS = {
    "vocabulary": {"token_ids": np.array([100_000], np.int32)},
    "rotary tables": {"positions": np.array([-1], np.int32)},
    "outside the pool": {"block_tables": np.full((1, 1, 1), 1 << 20, np.int32)},
    "no token of the step": {"logit_rows": np.array([7], np.int32)},
    "longer than its block table": {"seq_lens": np.array([40], np.int32)},
    "to copy is outside": {"block_copies": np.array([[0, 1, 1 << 20]], np.int32)},
}


@pytest.mark.parametrize("named", BROKEN_STEPS)
def test_a_step_that_breaks_the_contract_is_refused_and_the_engine_lives(
    plain: Artifact, named: str
) -> None:
    executor = opened(plain)
    runner = PagedRunner(executor)
    expected = runner.whole(draw(5))
    step = runner._lay_out([("a", runner._extend("a", 1) or [1])], [1])
    broken: StepTensors = dataclasses.replace(step, **BROKEN_STEPS[named])
    with pytest.raises(EngineError, match=named):
        executor.execute(broken, RowAsks(0, np.zeros(1, np.float32)))
    runner.forget("a")
    np.testing.assert_array_equal(runner.whole(draw(5)), expected)
    executor.close()


def test_a_closed_executor_refuses_steps(plain: Artifact) -> None:
    executor = opened(plain)
    executor.close()
    executor.close()
    with pytest.raises(EngineError, match="closed"):
        PagedRunner(executor).whole([1])


def test_an_idle_engine_uses_no_processor(plain: Artifact) -> None:
    executor = opened(plain, threads=4)
    PagedRunner(executor).whole(draw(5))
    threading.Event().wait(0.05)
    before = time.process_time()
    threading.Event().wait(0.3)
    assert time.process_time() - before < 0.1
    executor.close()


def test_the_times_of_operations_add_up_to_less_than_the_wall_clock(plain: Artifact) -> None:
    executor = opened(plain)
    start = time.perf_counter_ns()
    PagedRunner(executor).whole(draw(100))
    wall = time.perf_counter_ns() - start
    times = executor.times_ns()
    assert 0 < sum(times.values()) < wall
    assert times["linear"] > 0
    executor.close()
