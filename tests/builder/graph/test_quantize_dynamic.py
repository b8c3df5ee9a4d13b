"""The ONNX body of QuantizeDynamic, in plain ONNX Runtime, against its numpy reference and against ml_dtypes."""

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

from builder.graph import ops
from builder.graph.emit import IR_VERSION, OPSET, Emitter
from plugins.quantize import spec
from plugins.quantize.reference import quantize_dynamic, to_e4m3


def rows(count: int = 50, width: int = 100) -> np.ndarray:
    """Give rows of very different sizes, some numbers of which are far below the largest."""
    random = np.random.default_rng(0)
    sizes = np.exp(random.normal(size=(count, 1)) * 5) * np.exp(random.normal(size=(1, width)) * 2)
    return (random.normal(size=(count, width)) * sizes).astype(np.float32)


def run_body(given: np.ndarray) -> np.ndarray:
    x = ir.Value(name="x", shape=ir.Shape(("T", "D")), type=ir.TensorType(ir.DataType.FLOAT))
    emit, function = Emitter(), ops.quantize_dynamic()
    (y,) = emit.call(function, x)
    y.name, y.type, y.shape = "y", x.type, x.shape
    imports = {"": OPSET, spec.DOMAIN: 1}
    graph = ir.Graph([x], [y], nodes=emit.nodes, opset_imports=imports, name="one_call")
    proto = ir.to_proto(ir.Model(graph, ir_version=IR_VERSION, functions=[function]))
    onnx.checker.check_model(proto, full_check=True)
    (got,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": given})
    return np.asarray(got)


def test_the_body_equals_the_reference_to_the_bit() -> None:
    given = np.concatenate([rows(), np.zeros((1, 100), np.float32)])
    np.testing.assert_array_equal(run_body(given), quantize_dynamic(given))


def test_rounding_is_that_of_ml_dtypes_and_of_torch() -> None:
    given = np.concatenate([np.linspace(-500, 500, 100_001), np.linspace(-0.1, 0.1, 100_001)])
    given = given.astype(np.float32)
    cut = np.clip(given, -448, 448)
    want = cut.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(to_e4m3(given), want)
    with_torch = torch.from_numpy(cut).to(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(to_e4m3(given), with_torch)


def test_a_row_depends_on_itself_alone() -> None:
    given = rows()
    alone = np.concatenate([quantize_dynamic(row[None]) for row in given])
    np.testing.assert_array_equal(quantize_dynamic(given), alone)


def test_the_largest_number_of_a_row_is_kept_and_others_to_four_bits() -> None:
    given = np.abs(rows()) + np.float32(1e-30)
    got, peaks = quantize_dynamic(given), given.max(axis=1, keepdims=True)
    np.testing.assert_allclose(got.max(axis=1, keepdims=True), peaks, rtol=1e-6)
    error = np.abs(got - given)
    assert (error <= np.maximum(given / 16, peaks / 448 * 2.0**-10) * 1.000001).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_with_no_number_becomes_all_nan_and_its_neighbours_stay(value: float) -> None:
    given = rows(3)
    clean = quantize_dynamic(given)
    given[1, 7] = value
    got = quantize_dynamic(given)
    assert np.isnan(got[1]).all()
    np.testing.assert_array_equal(got[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("size", [0, 1e-45, 1e-38, 1e-30])
def test_rows_of_zeros_and_of_the_smallest_numbers_stay_finite(size: float) -> None:
    given = np.full((2, 16), size, np.float32)
    given[1] = 0
    got = quantize_dynamic(given)
    assert np.isfinite(got).all()
    assert not got[1].any()
    np.testing.assert_allclose(got, given, rtol=2.0**-3, atol=2.0**-136)
