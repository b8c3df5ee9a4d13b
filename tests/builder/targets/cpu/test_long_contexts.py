"""Contexts of many spans: however their spans are split among threads, the bits are the same."""

import numpy as np
import pytest

from builder.artifact.store import Artifact
from builder.targets.cpu import native
from builder.targets.cpu.execute import CpuExecutor
from tests.builder.targets.cpu.drawing import draw
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.builder.targets.cpu.variants import attributes, compile_variant
from tests.paged_runner import PagedRunner

LENGTH = 3000
"""Twelve spans of 256 positions."""
SPAN = 256


SIZES = {
    "max_position_embeddings": LENGTH,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
}
KINDS = [("float32", 0), ("bfloat16", 0), ("int8", 0), ("bfloat16", 700), ("int8", 2000)]
"""Form of keys and values, and the window."""


@pytest.fixture(scope="module", params=KINDS, ids=str)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    kv, window = request.param
    rewrites = [attributes("PagedAttention", window=window)]
    folder = tmp_path_factory.mktemp("long")
    return compile_variant(folder, rewrites, sizes=SIZES, kv=kv, max_num_seqs=512)


def last_rows(artifact: Artifact, *, threads: int, build: str) -> np.ndarray:
    """Give the logits of a long context's last token, alone and beside a short one."""
    executor = CpuExecutor(artifact, artifact.manifest.engines[0], num_threads=threads, build=build)
    runner, tokens = PagedRunner(executor), draw(LENGTH)
    for start in range(0, LENGTH - 2, 500):
        runner.step(("long", tokens[start : min(start + 500, LENGTH - 2)]))
    (alone,) = runner.step(("long", tokens[-2:-1]))
    beside, _ = runner.step(("long", tokens[-1:]), ("short", draw(5)))
    executor.close()
    return np.concatenate([alone, beside])


@pytest.mark.parametrize("build", native.builds())
def test_splitting_a_context_among_threads_changes_no_bit(artifact: Artifact, build: str) -> None:
    unsplit = last_rows(artifact, threads=1, build=build)
    for threads in (2, 7):
        split = last_rows(artifact, threads=threads, build=build)
        np.testing.assert_array_equal(split, unsplit)


@pytest.mark.parametrize("build", native.builds())
@pytest.mark.parametrize("length", [SPAN - 1, SPAN, SPAN + 1, 2 * SPAN, 2 * SPAN + 1])
def test_a_token_at_the_edge_of_a_span_has_the_bits_of_the_whole_prompt(
    artifact: Artifact, length: int, build: str
) -> None:
    executor = CpuExecutor(artifact, artifact.manifest.engines[0], num_threads=3, build=build)
    runner, tokens = PagedRunner(executor), draw(length)
    whole = np.concatenate(
        [runner.step(("whole", tokens[at : at + 400]))[0] for at in range(0, length, 400)]
    )
    runner.step(("parts", tokens[: length // 2]))
    runner.step(("parts", tokens[length // 2 : -1]))
    (last,) = runner.step(("parts", tokens[-1:]))
    np.testing.assert_array_equal(last[0], whole[-1])
    executor.close()


def test_a_long_context_gives_what_the_references_give(artifact: Artifact) -> None:
    tokens = draw(1400)
    executor = CpuExecutor(artifact, artifact.manifest.engines[0], num_threads=5)
    got, want = PagedRunner(executor).whole(tokens, 500), PlanRunner(artifact).logits(tokens)
    assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.9999
    assert np.abs(got - want).mean() < 0.01 * want.std()
    executor.close()
