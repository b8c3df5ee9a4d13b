"""Round the rows that quantized layers multiply, as their formats ask: once for all readers of the same rows.

1. Another order of the numbers of rows, that of groups which are no runs, becomes a Gather.
2. Numbers `[in]` that rows are multiplied with first, smoothing that no layer before could take, become a Mul.
3. Rows of a fixed scale go through QuantizeLinear and DequantizeLinear, which TensorRT and others read as FP8 or INT8.
4. Rows rounded as they come go through QuantizeDynamic, and those of NVFP4 through QuantizeFP4.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.checkpoint import rows as kinds
from builder.checkpoint.rows import RowScales
from builder.errors import UnsupportedError
from builder.graph.patterns import operand
from builder.graph.rounding_ops import quantize_dynamic, quantize_fp4
from builder.quant import FORMATS
from builder.quant.plan import QuantPlan
from plugins.quantize import spec

ZEROS = {"FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn, "INT8": np.int8}
"""Number types of rows with a fixed scale, whose zero point says which they are."""


def round_rows(model: ir.Model, plan: QuantPlan) -> None:
    """Put before each Gemm what its format does to rows.

    Raises:
        UnsupportedError: a format's rows need a scale that the plan does not have.
    """
    rounder = _Rounder(model)
    for gemm in [node for node in model.graph if node.op_type == "Gemm"]:
        name = str(operand(gemm, 1).name)
        layer = plan.layers.get(name)
        if layer is None or layer.name not in FORMATS:
            continue
        rules = FORMATS[layer.name]
        scales = plan.rows.get(name, RowScales())
        if rules.ROWS in kinds.FIXED and scales.fixed is None:
            raise UnsupportedError(
                f"format {layer.name} needs a scale for the rows of {name}, which only calibration or a checkpoint gives"
            )
        rounder.apply(gemm, rules.ROWS, rules.ELEMENT, scales)


class _Rounder:
    """Writes roundings, each once."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._made: dict[tuple[ir.Value, str, str, bytes], ir.Value] = {}

    def apply(self, gemm: ir.Node, kind: str, element: str, scales: RowScales) -> None:
        """Round the rows of one Gemm."""
        value = operand(gemm, 0)
        if scales.order is not None:
            value = self._once(gemm, value, "Gather", "", scales.order(), _ordered)
        if scales.factors is not None:
            factors = scales.factors()
            value = self._once(
                gemm, value, "Mul", "", factors, lambda x, numbers: [ir.node("Mul", [x, numbers])]
            )
        if kind in (kinds.TOKEN, kinds.BLOCK):
            size = kinds.BLOCK_SIZE if kind == kinds.BLOCK else 0
            value = self._once(gemm, value, kind, "", None, lambda x, _: [_dynamic(x, size)])
            self._declare(spec.DYNAMIC, quantize_dynamic)
        if kind in kinds.FIXED:
            assert scales.fixed is not None
            make = _nvfp4 if kind == kinds.SIXTEEN else _fixed(self._zero(element))
            value = self._once(gemm, value, kind, element, scales.fixed(), make)
            if kind == kinds.SIXTEEN:
                self._declare(spec.FP4, quantize_fp4)
        gemm.replace_input_with(0, value)

    def _once(
        self,
        gemm: ir.Node,
        x: ir.Value,
        kind: str,
        element: str,
        numbers: NDArray[np.generic] | None,
        make: Callable[[ir.Value, ir.Value | None], list[ir.Node]],
    ) -> ir.Value:
        """Give what nodes before a Gemm make of rows, the same for the same numbers."""
        key = (x, kind, element, b"" if numbers is None else numbers.tobytes())
        if key not in self._made:
            constant = None if numbers is None else self._constant(numbers)
            nodes = make(x, constant)
            self._model.graph.insert_before(gemm, nodes)
            self._made[key] = result = nodes[-1].outputs[0]
            result.type, result.shape = x.type, x.shape
        return self._made[key]

    def _constant(self, numbers: NDArray[np.generic]) -> ir.Value:
        return self._register(ir.Tensor(numbers, name=f"rows.{len(self._made)}"))

    def _zero(self, element: str) -> ir.Value:
        """Give the zero point that says what rows become."""
        name = f"rows.zero.{element.lower()}"
        if name not in self._model.graph.initializers:
            zero = np.zeros((), ZEROS[element])
            return self._register(ir.Tensor(zero, dtype=ir.DataType[element], name=name))
        return self._model.graph.initializers[name]

    def _register(self, tensor: ir.Tensor[Any]) -> ir.Value:
        value = ir.Value(
            name=tensor.name,
            shape=tensor.shape,
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        self._model.graph.register_initializer(value)
        return value

    def _declare(self, name: str, build: Callable[[], ir.Function]) -> None:
        if (spec.DOMAIN, name, "") not in self._model.functions:
            function = build()
            self._model.functions[function.identifier()] = function
            self._model.graph.opset_imports.setdefault(spec.DOMAIN, 1)


def _ordered(x: ir.Value, order: ir.Value | None) -> list[ir.Node]:
    return [ir.node("Gather", [x, order], {"axis": 1})]


def _dynamic(x: ir.Value, block_size: int) -> ir.Node:
    return ir.node(spec.DYNAMIC, [x], {"block_size": block_size}, domain=spec.DOMAIN)


def _nvfp4(x: ir.Value, scale: ir.Value | None) -> list[ir.Node]:
    return [ir.node(spec.FP4, [x, scale], domain=spec.DOMAIN)]


def _fixed(zero: ir.Value) -> Callable[[ir.Value, ir.Value | None], list[ir.Node]]:
    def make(x: ir.Value, scale: ir.Value | None) -> list[ir.Node]:
        quantize = ir.node("QuantizeLinear", [x, scale, zero])
        narrow = quantize.outputs[0]
        narrow.type, narrow.shape = ir.TensorType(zero.dtype), x.shape  # type: ignore[arg-type]
        return [quantize, ir.node("DequantizeLinear", [narrow, scale, zero])]

    return make
