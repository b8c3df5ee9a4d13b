"""The ONNX bodies of QuantizeDynamic and QuantizeFP4, in plain ONNX Runtime, against numpy and ml_dtypes."""

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

from builder.graph import rounding_ops
from builder.graph.emit import IR_VERSION, OPSET, Emitter
from plugins.quantize import spec
from plugins.quantize.reference import quantize_dynamic, quantize_fp4, to_e4m3


def rows(count: int = 50, width: int = 100) -> np.ndarray:
    """Give rows of very different sizes, some numbers of which are far below the largest."""
    random = np.random.default_rng(0)
    sizes = np.exp(random.normal(size=(count, 1)) * 5) * np.exp(random.normal(size=(1, width)) * 2)
    return (random.normal(size=(count, width)) * sizes).astype(np.float32)


def run(function: ir.Function, *given: np.ndarray, **attributes: int) -> np.ndarray:
    inputs = [
        ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
        for name, shape in (("x", ("T", "D")), ("whole", ()))
    ][: len(given)]
    emit = Emitter()
    (y,) = emit.call(function, *inputs, **attributes)
    y.name, y.type, y.shape = "y", inputs[0].type, inputs[0].shape
    imports = {"": OPSET, spec.DOMAIN: 1}
    graph = ir.Graph(inputs, [y], nodes=emit.nodes, opset_imports=imports, name="one_call")
    proto = ir.to_proto(ir.Model(graph, ir_version=IR_VERSION, functions=[function]))
    onnx.checker.check_model(proto, full_check=True)
    feeds = {str(value.name): np.asarray(part) for value, part in zip(inputs, given, strict=True)}
    (got,) = ort.InferenceSession(proto.SerializeToString()).run(None, feeds)
    return np.asarray(got)


def run_body(given: np.ndarray, block_size: int = 0) -> np.ndarray:
    return run(rounding_ops.quantize_dynamic(), given, block_size=block_size)


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


@pytest.mark.parametrize("width", [128, 300, 16])
def test_a_block_of_a_row_is_rounded_as_if_it_were_a_row(width: int) -> None:
    given = rows(20, width)
    blocks = [given[:, left : left + 128] for left in range(0, width, 128)]
    want = np.concatenate([run_body(block) for block in blocks], axis=1)
    np.testing.assert_array_equal(run_body(given, 128), want)
    np.testing.assert_array_equal(quantize_dynamic(given, 128), want)


def test_fp4_rows_have_scales_of_e4m3_under_the_fixed_one() -> None:
    """By the published definition, in ml_dtypes: x / (E4M3(peak / (6 whole)) whole) in E2M1."""
    given = rows(40, 64) / 100
    given[0] = 0
    whole = np.float32(np.abs(given).max() / (6 * 448))
    grouped = given.reshape(40, 4, 16)
    wanted = np.minimum(np.abs(grouped).max(axis=2) / (6 * whole), 448)
    scales = wanted.astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * whole
    safe = np.where(scales > 0, scales, np.inf)[:, :, None]
    numbers = np.clip(grouped / safe, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    want = (numbers * scales[:, :, None]).reshape(given.shape)
    assert len(np.unique(scales)) > 20
    np.testing.assert_array_equal(run(rounding_ops.quantize_fp4(), given, whole), want)


def test_what_a_fixed_scale_of_fp4_does_not_reach_saturates() -> None:
    given = np.full((1, 16), 1e6, np.float32)
    got = run(rounding_ops.quantize_fp4(), given, np.float32(1e-3))
    np.testing.assert_allclose(got, 6 * 448 * 1e-3, rtol=1e-6)


def test_fp4_equals_the_reference_to_the_bit_and_a_group_with_no_number_becomes_all_nan() -> None:
    given = rows(40, 64)
    given[1, 20] = np.nan
    got = run(rounding_ops.quantize_fp4(), given, np.float32(1e-3))
    np.testing.assert_array_equal(got, quantize_fp4(given, 1e-3))
    assert np.isnan(got[1, 16:32]).all()
    assert np.isnan(got).sum() == 16
