"""The ONNX body of PagedAttention against the numpy reference, in plain ONNX Runtime."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from builder.graph import ops
from builder.graph.emit import IR_VERSION, OPSET, Emitter
from plugins.paged_attention import spec
from plugins.paged_attention.reference import paged_attention

BLOCK_SIZE = 16
NUM_BLOCKS = 64
Case = dict[str, Any]


@pytest.fixture(scope="module")
def run() -> Callable[[Case], tuple[Any, Any]]:
    """Give a function that runs the body: sizes are free, so one session serves all cases."""
    types = {"float": ir.DataType.FLOAT, "int32": ir.DataType.INT32}
    inputs = [
        ir.Value(
            name=operand.name,
            shape=ir.Shape(tuple(f"{operand.name}{axis}" for axis, _ in enumerate(operand.shape))),
            type=ir.TensorType(types[operand.dtype]),
        )
        for operand in spec.INPUTS
    ]
    function, emit = ops.paged_attention(), Emitter()
    outputs = emit.call(function, *inputs, scale=0.125)
    for value, operand in zip(outputs, spec.OUTPUTS, strict=True):
        value.name, value.type = operand.name, ir.TensorType(ir.DataType.FLOAT)
        value.shape = ir.Shape(
            tuple(f"{operand.name}{axis}" for axis, _ in enumerate(operand.shape))
        )
    imports = {"": OPSET, spec.DOMAIN: spec.VERSION}
    graph = ir.Graph(inputs, outputs, nodes=emit.nodes, opset_imports=imports, name="one_call")
    proto = ir.to_proto(ir.Model(graph, ir_version=IR_VERSION, functions=[function]))
    onnx.checker.check_model(proto, full_check=True)
    session = ort.InferenceSession(proto.SerializeToString())
    return lambda case: session.run(None, case)


def make_case(
    lengths: list[int], counts: list[int], heads: tuple[int, int, int], seed: int = 0
) -> Case:
    """Lay out sequences of these lengths whose last `counts` tokens are this step's."""
    random = np.random.default_rng(seed)
    num_heads, num_kv_heads, head_dim = heads
    width = max(-(-length // BLOCK_SIZE) for length in lengths)
    free = random.permutation(np.arange(1, NUM_BLOCKS))
    tables = np.zeros((len(lengths), width), np.int32)
    for row, length in enumerate(lengths):
        needed = -(-length // BLOCK_SIZE)
        tables[row, :needed], free = free[:needed], free[needed:]
    pairs = zip(lengths, counts, strict=True)
    positions = np.concatenate([np.arange(length - count, length) for length, count in pairs])
    owner = np.repeat(np.arange(len(lengths)), counts)
    slots = tables[owner, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE

    def draw(*shape: int) -> Any:
        return random.standard_normal(shape, dtype=np.float32)

    return {
        "query": draw(sum(counts), num_heads, head_dim),
        "key": draw(sum(counts), num_kv_heads, head_dim),
        "value": draw(sum(counts), num_kv_heads, head_dim),
        "cache": draw(NUM_BLOCKS, 2, num_kv_heads, BLOCK_SIZE, head_dim),
        "slot_mapping": slots.astype(np.int32),
        "query_start": np.cumsum([0, *counts]).astype(np.int32),
        "seq_lens": np.array(lengths, np.int32),
        "block_tables": tables,
    }


@pytest.mark.parametrize("heads", [(9, 3, 64), (4, 4, 16), (8, 1, 20), (2, 2, 100), (1, 1, 2)])
@pytest.mark.parametrize(
    ("lengths", "counts"),
    [
        ([1], [1]),
        ([5], [5]),
        ([300], [300]),
        ([16], [1]),
        ([17], [1]),
        ([40, 17, 100], [1, 1, 1]),
        ([40, 17, 100], [7, 17, 1]),
        ([33, 2, 64, 1], [33, 1, 16, 1]),
    ],
)
def test_the_body_equals_the_reference(
    run: Callable[[Case], Any], lengths: list[int], counts: list[int], heads: tuple[int, int, int]
) -> None:
    case = make_case(lengths, counts, heads)
    attention, cache = run(case)
    expected = {name: value.copy() for name, value in case.items()}
    judged = paged_attention(
        expected.pop("query"), expected.pop("key"), expected.pop("value"), scale=0.125, **expected
    )
    np.testing.assert_allclose(attention, judged, atol=3e-6)
    np.testing.assert_array_equal(cache, expected["cache"])


def test_a_token_gets_the_same_bits_alone_and_among_others(run: Callable[[Case], Any]) -> None:
    case = make_case([40, 17, 200], [1, 17, 90], (9, 3, 64))
    together, _ = run(case)
    alone = {
        **case,
        "query": case["query"][:1],
        "key": case["key"][:1],
        "value": case["value"][:1],
        "slot_mapping": case["slot_mapping"][:1],
        "query_start": np.array([0, 1], np.int32),
        "seq_lens": case["seq_lens"][:1],
        "block_tables": case["block_tables"][:1, :3],
    }
    np.testing.assert_array_equal(run(alone)[0], together[:1])


def test_entries_past_a_sequence_and_of_other_blocks_change_nothing(
    run: Callable[[Case], Any],
) -> None:
    case = make_case([20, 35], [1, 2], (4, 2, 16))
    before, _ = run(case)
    cache = case["cache"].copy()
    used = np.zeros((NUM_BLOCKS, BLOCK_SIZE), bool)
    for table, length in zip(case["block_tables"], case["seq_lens"], strict=True):
        for position in range(length):
            used[table[position // BLOCK_SIZE], position % BLOCK_SIZE] = True
    cache[np.broadcast_to(~used[:, None, None, :, None], cache.shape)] = 1e30
    after, _ = run({**case, "cache": cache})
    np.testing.assert_array_equal(after, before)


def test_the_pool_is_updated_in_place_when_it_is_input_and_output(
    run: Callable[[Case], Any],
) -> None:
    case = make_case([3], [3], (2, 1, 4))
    _, cache = run(case)
    changed = np.argwhere((cache != case["cache"]).any(axis=(1, 2, 4)))
    block = case["block_tables"][0, 0]
    assert [tuple(place) for place in changed] == [(block, 0), (block, 1), (block, 2)]
