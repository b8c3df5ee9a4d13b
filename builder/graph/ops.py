"""Forerun's own operations as ONNX local functions: the body, in standard operations, is the specification.

A target either inlines the body or replaces the call by its own kernel.
"""

from collections.abc import Sequence

import onnx_ir as ir

from builder.graph.emit import OPSET, Emitter
from plugins.paged_attention import spec

LOWEST = -3.4028234663852886e38
"""Score of an entry that a query may not see: exp gives exactly 0 for it."""


def paged_attention() -> ir.Function:
    """Build PagedAttention by `plugins/paged_attention/spec.py`, for one layer.

    No product of matrices in it has a single row: ONNX Runtime computes those by another routine, whose
    rounding differs, and a token's result must not depend on what else is in the step.
    """
    inputs = [ir.Value(name=operand.name) for operand in spec.INPUTS]
    emit = Emitter()
    attention, cache_out = _body(emit, inputs)
    attention.name, cache_out.name = (operand.name for operand in spec.OUTPUTS)
    graph = ir.Graph(
        inputs, [attention, cache_out], nodes=emit.nodes, opset_imports={"": OPSET}, name=spec.NAME
    )
    scale = ir.Attr("scale", ir.AttributeType.FLOAT, None)
    return ir.Function(spec.DOMAIN, spec.NAME, graph=graph, attributes=[scale])


def _body(emit: Emitter, inputs: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
    query, key, value, cache, slot_mapping, query_start, seq_lens, block_tables = inputs
    cache_out = _write(emit, key, value, cache, slot_mapping)
    tables = emit("Cast", block_tables, to=ir.DataType.INT64)
    keys = _read(emit, cache_out, tables, which=0)
    values = _read(emit, cache_out, tables, which=1)
    start = emit("Cast", query_start, to=ir.DataType.INT64)
    first = emit("Slice", start, emit.ints(0), emit.ints(-1))
    counts = emit("Sub", emit("Slice", start, emit.ints(1), emit.ints(1 << 62)), first)
    longest = emit("Max", emit("ReduceMax", counts, keepdims=1), emit.ints(2))
    rows = emit("Unsqueeze", _range(emit, longest), emit.ints(0))  # [1, Sq]
    tokens = _range(emit, emit("Shape", slot_mapping))
    padded = _pad_queries(
        emit,
        query,
        emit("Min", emit("Add", emit("Unsqueeze", first, emit.ints(1)), rows), _last(emit, tokens)),
        num_kv_heads=emit("Shape", key, start=1, end=2),
    )
    lengths = emit("Cast", seq_lens, to=ir.DataType.INT64)
    block_size = emit("Shape", cache, start=3, end=4)
    width = emit("Mul", emit("Shape", block_tables, start=1), block_size)
    visible = _visible(emit, rows, counts, lengths, _range(emit, width))
    weighed = _attend(emit, padded, keys, values, visible)
    places = _places(emit, tokens, first, longest)
    return _unpad(emit, weighed, query, places, longest), cache_out


def _write(
    emit: Emitter, key: ir.Value, value: ir.Value, cache: ir.Value, slot_mapping: ir.Value
) -> ir.Value:
    """Scatter keys and values to their slots: four-part indices, so the pool is never moved or copied."""
    block_size = emit("Shape", cache, start=3, end=4)
    slots = emit("Cast", slot_mapping, to=ir.DataType.INT64)
    heads = _range(emit, emit("Shape", cache, start=2, end=3))
    shape = emit("Concat", emit("Shape", slots), emit.ints(2), emit("Shape", heads), axis=0)
    index = _index(
        emit,
        shape,
        emit("Unsqueeze", emit("Div", slots, block_size), emit.ints(1, 2)),
        emit("Unsqueeze", emit.ints(0, 1), emit.ints(0, 2)),
        emit("Unsqueeze", heads, emit.ints(0, 1)),
        emit("Unsqueeze", emit("Mod", slots, block_size), emit.ints(1, 2)),
    )
    pair = [emit("Unsqueeze", part, emit.ints(1)) for part in (key, value)]
    return emit("ScatterND", cache, index, emit("Concat", *pair, axis=1))


def _read(emit: Emitter, cache: ir.Value, tables: ir.Value, *, which: int) -> ir.Value:
    """Gather keys (0) or values (1) of all sequences: `[S, K, B * block, D]`, in one pass over memory."""
    heads = _range(emit, emit("Shape", cache, start=2, end=3))
    sizes = [emit("Shape", tables, start=i, end=i + 1) for i in (0, 1)]
    shape = emit("Concat", sizes[0], emit("Shape", heads), sizes[1], axis=0)
    index = _index(
        emit,
        shape,
        emit("Unsqueeze", tables, emit.ints(1)),
        emit("Unsqueeze", emit.ints(which), emit.ints(0, 1)),
        emit("Unsqueeze", heads, emit.ints(0, 2)),
    )
    blocks = emit("GatherND", cache, index)  # [S, K, B, block, D]
    flat = emit("Concat", emit.ints(0, 0, -1), emit("Shape", cache, start=4), axis=0)
    return emit("Reshape", blocks, flat)


def _pad_queries(
    emit: Emitter, query: ir.Value, index: ir.Value, *, num_kv_heads: ir.Value
) -> ir.Value:
    """Give the queries of each sequence as rows `[S, K, H / K * Sq, D]`, scaled; extra rows repeat others."""
    padded = emit("Gather", query, index, axis=0)  # [S, Sq, H, D]
    group = emit("Div", emit("Shape", query, start=1, end=2), num_kv_heads)
    head_dim = emit("Shape", query, start=2)
    split = emit("Concat", emit.ints(0, 0), num_kv_heads, group, head_dim, axis=0)
    grouped = emit("Transpose", emit("Reshape", padded, split), perm=[0, 2, 3, 1, 4])
    flat = emit("Concat", emit.ints(0, 0, -1), head_dim, axis=0)
    scale = emit("Constant", value_float=ir.RefAttr("value_float", "scale", ir.AttributeType.FLOAT))
    return emit("Mul", emit("Reshape", grouped, flat), scale)


def _visible(
    emit: Emitter, rows: ir.Value, counts: ir.Value, lengths: ir.Value, positions: ir.Value
) -> ir.Value:
    """Say which positions each query row may see: `[S, 1, 1, Sq, B * block]`."""
    first = emit("Unsqueeze", emit("Sub", lengths, counts), emit.ints(1))
    last = emit("Unsqueeze", emit("Sub", lengths, emit.ints(1)), emit.ints(1))
    queries = emit("Min", emit("Add", first, rows), last)  # [S, Sq] positions
    seen = emit("LessOrEqual", positions, emit("Unsqueeze", queries, emit.ints(2)))
    return emit("Unsqueeze", seen, emit.ints(1, 2))


def _attend(
    emit: Emitter, query: ir.Value, keys: ir.Value, values: ir.Value, visible: ir.Value
) -> ir.Value:
    """Weigh the values: `[S, K, H / K * Sq, D]`."""
    scores = emit("MatMul", query, emit("Transpose", keys, perm=[0, 1, 3, 2]))
    per_query = emit("Concat", emit.ints(0, 0, -1), emit("Shape", visible, start=3), axis=0)
    lowest = emit("CastLike", emit("Constant", value_float=LOWEST), scores)
    masked = emit("Where", visible, emit("Reshape", scores, per_query), lowest)
    flat = emit("Concat", emit.ints(0, 0, -1), emit("Shape", visible, start=4), axis=0)
    weights = emit("Reshape", emit("Softmax", masked, axis=-1), flat)
    return emit("MatMul", weights, values)


def _places(emit: Emitter, tokens: ir.Value, first: ir.Value, longest: ir.Value) -> ir.Value:
    """Give the padded row of every token: token t of sequence s is row `s * Sq + t - first[s]`."""
    columns = emit("Unsqueeze", tokens, emit.ints(1))
    begun = emit("LessOrEqual", emit("Unsqueeze", first, emit.ints(0)), columns)
    counted = emit("ReduceSum", emit("Cast", begun, to=ir.DataType.INT64), emit.ints(1), keepdims=0)
    sequence = emit("Sub", counted, emit.ints(1))
    offset = emit("Sub", tokens, emit("Gather", first, sequence))
    return emit("Add", emit("Mul", sequence, longest), offset)


def _unpad(
    emit: Emitter, weighed: ir.Value, query: ir.Value, places: ir.Value, longest: ir.Value
) -> ir.Value:
    """Pick the row of every token: `[T, H, D]`."""
    group = emit("Concat", emit.ints(0, 0, -1), longest, emit("Shape", query, start=2), axis=0)
    per_query = emit("Transpose", emit("Reshape", weighed, group), perm=[0, 3, 1, 2, 4])
    flat = emit("Concat", emit.ints(-1), emit("Shape", query, start=1), axis=0)
    return emit("Gather", emit("Reshape", per_query, flat), places, axis=0)


def _last(emit: Emitter, tokens: ir.Value) -> ir.Value:
    """Give the index of the last token."""
    return emit("Sub", emit("Shape", tokens), emit.ints(1))


def _range(emit: Emitter, count: ir.Value) -> ir.Value:
    """Give 0, 1, ... below `count`, a vector of one number."""
    stop = emit("Squeeze", count, emit.ints(0))
    zero = emit("Constant", value_int=0)
    return emit("Range", zero, stop, emit("Constant", value_int=1))


def _index(emit: Emitter, shape: ir.Value, *parts: ir.Value) -> ir.Value:
    """Broadcast index parts to `shape` and stack them along a new last axis."""
    spread = [emit("Unsqueeze", emit("Expand", part, shape), emit.ints(-1)) for part in parts]
    return emit("Concat", *spread, axis=-1)
