"""What other architectures are made of, in the native engine: norms, activations, ropes, windows and caps."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from builder.artifact.store import Artifact
from builder.errors import UnsupportedError
from builder.targets.cpu import native
from builder.targets.cpu.execute import CpuExecutor
from builder.targets.cpu.plan import Activation, Code, Epilogue
from tests.builder.targets.cpu.drawing import draw
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.builder.targets.cpu.variants import (
    Rewrite,
    activations,
    attributes,
    compile_variant,
    layer_norms,
    partial_rope,
    ungated,
)
from tests.paged_runner import PagedRunner

VARIANTS: dict[str, Sequence[Rewrite]] = {
    "window-1": [attributes("PagedAttention", window=1)],
    "window-16": [attributes("PagedAttention", window=16)],
    "window-100": [attributes("PagedAttention", window=100)],
    "window-256": [attributes("PagedAttention", window=256)],
    "soft-cap": [attributes("PagedAttention", soft_cap=2.0)],
    "window-and-soft-cap": [attributes("PagedAttention", window=37, soft_cap=5.0)],
    "layer-norm": [layer_norms],
    "gelu": [activations("Gelu")],
    "gelu-tanh": [activations("Gelu", approximate="tanh")],
    "relu": [activations("Relu")],
    "ungated-silu": [ungated],
    "ungated-gelu": [activations("Gelu"), ungated],
    "ungated-gelu-tanh": [activations("Gelu", approximate="tanh"), ungated],
    "ungated-relu": [activations("Relu"), ungated],
    "interleaved": [attributes("RotaryEmbedding", interleaved=1)],
    "partial": [partial_rope(6, interleaved=False)],
    "partial-interleaved": [partial_rope(6, interleaved=True)],
    "everything": [
        attributes("PagedAttention", window=50, soft_cap=8.0),
        layer_norms,
        activations("Gelu", approximate="tanh"),
        ungated,
        partial_rope(6, interleaved=True),
    ],
}
PRECISIONS = [("none", "float32"), ("int8", "int8")]


SIZES = {"hidden_size": 48, "head_dim": 12, "intermediate_size": 90, "mlp_bias": True}
"""Odd ones, so that padding matters."""


def compiled(folder: Path, rewrites: Sequence[Rewrite], **options: str) -> Artifact:
    return compile_variant(folder, rewrites, sizes=SIZES, max_num_seqs=512, **options)


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=PRECISIONS, ids="-".join)
def artifact(
    variant: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Artifact:
    quant, kv = request.param
    return compiled(tmp_path_factory.mktemp("m"), VARIANTS[variant], quant=quant, kv=kv)


@pytest.fixture(params=native.builds())
def executor(artifact: Artifact, request: pytest.FixtureRequest) -> Iterator[CpuExecutor]:
    executor = CpuExecutor(
        artifact, artifact.manifest.engines[0], num_threads=2, build=request.param
    )
    yield executor
    executor.close()


def test_logits_equal_the_references_of_the_operations(
    executor: CpuExecutor, artifact: Artifact
) -> None:
    tokens = draw(300)  # more than one span of attention
    got, want = PagedRunner(executor).whole(tokens), PlanRunner(artifact).logits(tokens)
    precision = artifact.manifest.engines[0].requested, artifact.manifest.kv.groups[0].dtype
    if precision == ("float32", "float32"):
        np.testing.assert_allclose(got, want, atol=5e-4)
    else:  # a number that lies between two steps of a rounding may go either way
        assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.998
        assert np.abs(got - want).mean() < 0.08 * want.std()


def test_chunks_give_the_same_bits(executor: CpuExecutor) -> None:
    runner, tokens = PagedRunner(executor), draw(300)
    np.testing.assert_array_equal(runner.whole(tokens, 67), runner.whole(tokens))


REFUSED = {
    "Gelu with approximate sigmoid": [activations("Gelu", approximate="sigmoid")],
    "PagedAttention with sinks": [attributes("PagedAttention", sinks=1)],
    "LayerNormalization from axis 0": [layer_norms, attributes("LayerNormalization", axis=0)],
}


@pytest.mark.parametrize("named", REFUSED)
def test_what_has_no_kernel_is_refused_by_name(named: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=named):
        compiled(tmp_path, REFUSED[named])


def test_the_portable_target_refuses_a_window_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="PagedAttention with window; use --target cpu"):
        compiled(tmp_path, VARIANTS["window-16"], target="portable")


def test_an_ungated_activation_is_part_of_its_projection(tmp_path: Path) -> None:
    built = compiled(tmp_path, VARIANTS["ungated-gelu"], quant="int8")
    operations = PlanRunner(built).operations
    found = [i for i, op in enumerate(operations) if op["epilogue"] == Epilogue.ACTIVATE]
    assert len(found) == built.manifest.model.num_layers
    assert {operations[i]["activation"] for i in found} == {Activation.GELU}
    assert {operations[i + 1]["code"] for i in found} == {Code.LINEAR}


def test_the_attributes_of_attention_and_rope_are_in_the_plan(tmp_path: Path) -> None:
    built = compiled(tmp_path, VARIANTS["everything"])
    operations = PlanRunner(built).operations
    (attention, append) = (
        next(op for op in operations if op["code"] == code)
        for code in (Code.ATTENTION, Code.APPEND)
    )
    assert (attention["window"], attention["soft_cap"]) == (50, 8.0)
    assert (append["rope_dim"], append["pairs_neighbours"]) == (6, 1)
