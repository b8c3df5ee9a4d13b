"""The operations that round rows as they come, as ONNX local functions: QuantizeDynamic and QuantizeFP4.

Rows of fixed scales need none: a QuantizeLinear and a DequantizeLinear say it.
"""

import onnx_ir as ir

from builder.graph.emit import OPSET, Emitter
from plugins.quantize import spec


def quantize_dynamic() -> ir.Function:
    """Build QuantizeDynamic by `plugins/quantize/spec.py`; attribute block_size is 0 for one scale per row."""
    emit = Emitter()
    rows = ir.Value(name="rows")
    asked = emit("Constant", value_int=ir.RefAttr("value_int", "block_size", ir.AttributeType.INT))
    width = emit("Shape", rows, start=1)
    is_whole = emit("Equal", asked, emit("Constant", value_int=0))
    block = emit("Where", is_whole, width, asked)  # `[1]`
    beyond = emit("Mod", emit("Sub", block, emit("Mod", width, block)), block)
    padding = emit("Concat", emit.ints(0, 0, 0), beyond, axis=0)
    shape = emit("Concat", emit.ints(0, -1), block, axis=0)
    grouped = emit("Reshape", emit("Pad", rows, padding), shape)
    peaks = emit("ReduceMax", emit("Abs", grouped), emit.ints(-1), keepdims=1)
    largest = emit("Constant", value_float=spec.LARGEST_E4M3)
    least = emit("Constant", value_float=spec.LEAST_SCALE)
    scales = emit("Max", emit("Div", peaks, largest), least)
    narrow = emit("Cast", emit("Div", grouped, scales), to=ir.DataType.FLOAT8E4M3FN)
    wide = emit("Mul", emit("Cast", narrow, to=ir.DataType.FLOAT), scales)
    flat = emit("Reshape", wide, emit.ints(0, -1))
    rounded = emit("Slice", flat, emit.ints(0), width, emit.ints(1))
    block_size = ir.Attr("block_size", ir.AttributeType.INT, None)
    return _function(emit, spec.DYNAMIC, [rows], rounded, [block_size])


def quantize_fp4() -> ir.Function:
    """Build QuantizeFP4 by `plugins/quantize/spec.py`: rows and the scale of their tensor."""
    emit = Emitter()
    rows, whole = ir.Value(name="rows"), ir.Value(name="whole")
    grouped = emit("Reshape", rows, emit.ints(0, -1, spec.GROUP_E2M1))
    sizes = emit("Abs", grouped)
    peaks = emit("ReduceMax", sizes, emit.ints(-1), keepdims=1)
    most, six = (
        emit("Constant", value_float=value) for value in (spec.LARGEST_E4M3, spec.LARGEST_E2M1)
    )
    wanted = emit("Min", emit("Div", peaks, emit("Mul", six, whole)), most)
    narrow = emit("Cast", wanted, to=ir.DataType.FLOAT8E4M3FN)
    scales = emit("Mul", emit("Cast", narrow, to=ir.DataType.FLOAT), whole)
    zero = emit("Constant", value_float=0.0)
    is_used = emit("Greater", scales, zero)
    units = emit("Div", sizes, emit("Where", is_used, scales, emit("Constant", value_float=1.0)))
    steps = _steps_of_e2m1(emit, units)
    numbers = emit("Min", emit("Mul", emit("Round", emit("Div", units, steps)), steps), six)
    wide = emit("Mul", emit("Mul", numbers, scales), emit("Sign", grouped))
    poison = emit("ReduceSum", emit("Mul", grouped, zero), emit.ints(-1), keepdims=1)
    flat = emit("Reshape", emit("Add", wide, poison), emit("Shape", rows))
    return _function(emit, spec.FP4, [rows, whole], flat, [])


def _steps_of_e2m1(emit: Emitter, units: ir.Value) -> ir.Value:
    """Give the distance of neighbours in E2M1: 1/2 below 2, 1 below 4, 2 from there on."""
    half, one, two, four = (emit("Constant", value_float=value) for value in (0.5, 1.0, 2.0, 4.0))
    upper = emit("Where", emit("Less", units, four), one, two)
    return emit("Where", emit("Less", units, two), half, upper)


def _function(
    emit: Emitter, name: str, inputs: list[ir.Value], output: ir.Value, attributes: list[ir.Attr]
) -> ir.Function:
    output.name = "rounded"
    graph = ir.Graph(inputs, [output], nodes=emit.nodes, opset_imports={"": OPSET}, name=name)
    return ir.Function(spec.DOMAIN, name, graph=graph, attributes=attributes)
