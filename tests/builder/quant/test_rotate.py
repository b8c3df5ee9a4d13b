"""Rotated models compute what they computed before, and their numbers lie closer together."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from builder import archs, pipeline
from builder.checkpoint.weights import WeightReader
from builder.graph.graph import Graph
from builder.pipeline import CompileRequest
from builder.quant.orthogonal import orthogonal
from builder.quant.plan import Precision, QuantPlan, plan_quantization
from builder.quant.rotate import rotate
from builder.targets import open_executor
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

MODELS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "nine-heads": {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 144},
    "head-100": {"head_dim": 100, "hidden_size": 48},
}


def graph_of(folder: Path) -> Graph:
    plan = pipeline.plan(CompileRequest(str(folder), targets=("portable",)))
    return archs.build_graph(plan.config, WeightReader(plan.checkpoint), plan.limits.max_seq_len)


def logits(folder: Path, destination: Path) -> Any:
    executor = open_executor(compile_model(folder, destination, target="portable"))
    try:
        return PagedRunner(executor).whole(list(range(30)))
    finally:
        executor.close()


@pytest.mark.parametrize("name", MODELS)
def test_a_rotated_model_gives_the_same_logits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_llama(tmp_path / "model", **MODELS[name])
    expected = logits(folder, tmp_path / "plain")

    def rotated(graph: Graph, precision: Precision) -> QuantPlan:
        assert rotate(graph)
        return plan_quantization(graph, precision)

    monkeypatch.setattr(pipeline, "plan_quantization", rotated)
    got = logits(folder, tmp_path / "rotated")
    np.testing.assert_allclose(got, expected, atol=2e-4)
    assert not np.array_equal(got, expected)


def test_outliers_are_spread_over_a_row(tmp_path: Path) -> None:
    graph = graph_of(tiny_llama(tmp_path / "model"))
    table = graph.model.graph.initializers["model.embed_tokens.weight"].const_value
    assert table is not None
    before = table.numpy().copy()
    before[:, 5] = 50
    after = orthogonal(64, 0).multiply(before)
    np.testing.assert_allclose(
        np.linalg.norm(after, axis=1), np.linalg.norm(before, axis=1), rtol=1e-5
    )
    peaks = np.abs(after).max(axis=1) / np.linalg.norm(after, axis=1)
    assert peaks.max() < 0.5 < (np.abs(before).max(axis=1) / np.linalg.norm(before, axis=1)).min()


def test_a_table_that_is_the_head_becomes_two_weights(tmp_path: Path) -> None:
    graph = graph_of(tiny_llama(tmp_path / "model"))
    assert rotate(graph)
    (gather,) = [node for node in graph.model.graph if node.op_type == "Gather"][:1]
    head = graph.model.graph.outputs[0].producer()
    assert head is not None
    assert gather.inputs[0] is not head.inputs[1]
    assert {gather.inputs[0].name, head.inputs[1].name} == {
        "model.embed_tokens.weight",
        "model.embed_tokens.weight.again",
    }


def test_scales_of_norms_are_listed_in_the_order_of_the_graph(tmp_path: Path) -> None:
    """Weights are written in the order of the list: the same model must give the same file."""
    graph = graph_of(tiny_llama(tmp_path / "model", num_hidden_layers=6)).model.graph
    norms = [node.inputs[1].name for node in graph if node.op_type == "RMSNormalization"]
    rotated = graph_of(tmp_path / "model")
    assert rotate(rotated)
    names = rotated.model.graph.initializers
    assert [name for name in names if name in norms] == norms


def test_hidden_states_that_something_else_reads_stay_as_they_are(tmp_path: Path) -> None:
    graph = graph_of(tiny_llama(tmp_path / "model"))
    norm = next(node for node in graph.model.graph if node.op_type == "RMSNormalization")
    hidden = norm.inputs[0]
    assert hidden is not None
    graph.model.graph.insert_after(norm, ir.node("Relu", [hidden]))
    names = set(graph.model.graph.initializers)
    assert not rotate(graph)
    assert set(graph.model.graph.initializers) == names


@pytest.mark.parametrize("size", [1, 2, 12, 48, 64, 100, 144, 576, 2048])
def test_matrices_are_orthogonal(size: int) -> None:
    rows = orthogonal(size, 3).multiply(np.eye(size))
    np.testing.assert_allclose(rows @ rows.T, np.eye(size), atol=1e-6)


def test_runs_of_a_row_are_rotated_each_by_itself() -> None:
    matrix, rows = orthogonal(16, 1), np.random.default_rng(0).standard_normal((3, 48))
    expected = np.concatenate([matrix.multiply(part) for part in np.split(rows, 3, axis=1)], axis=1)
    np.testing.assert_array_equal(matrix.multiply(rows), expected)


def test_scales_are_taken_before_the_rotation() -> None:
    matrix, random = orthogonal(16, 1), np.random.default_rng(0)
    rows, scales = random.standard_normal((3, 16)), random.standard_normal(16)
    np.testing.assert_allclose(
        matrix.multiply(rows, scales), matrix.multiply(rows * scales), atol=1e-6
    )
