"""Which precision each layer gets, and which requests contradict themselves."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from builder import archs
from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.rows import FIXED, RowScales
from builder.checkpoint.weights import WeightReader
from builder.errors import UnsupportedError
from builder.graph.graph import Graph
from builder.quant import FORMATS
from builder.quant.apply import PackedOnce, quantize
from builder.quant.plan import Precision, plan_quantization, precision_of
from tests.models import tiny_llama

HEAD = "model.embed_tokens.weight"


def graph_of(folder: Path, **config: object) -> Graph:
    checkpoint = open_checkpoint(str(tiny_llama(folder, **config)))
    config_read = archs.read_config(checkpoint.config)
    return archs.build_graph(config_read, WeightReader(checkpoint), 64)


@pytest.mark.parametrize(
    "name",
    [
        "fp8-dynamic",
        "fp8-block",
        "fp8-weight-only",
        "int8-weight-only",
        "nvfp4-weight-only",
        "mxfp4",
    ],
)
def test_head_and_embedding_of_a_float_format_stay_float32(tmp_path: Path, name: str) -> None:
    graph = graph_of(tmp_path, tie_word_embeddings=False)
    plan = plan_quantization(graph, Precision(name, FORMATS[name].GROUP))
    assert plan.requested == name
    assert len(plan.layers) == 2 * 7
    assert not {HEAD, "lm_head.weight"} & set(plan.layers)


def test_rows_that_several_layers_read_are_rounded_once(tmp_path: Path) -> None:
    """Before q, k and v, before o, before gate and up, before down."""
    graph = graph_of(tmp_path)
    quantized = quantize(graph, plan_quantization(graph, Precision("fp8-dynamic")))
    rounding = [node for node in quantized.model.graph if node.op_type == "QuantizeDynamic"]
    assert len(rounding) == 2 * 4
    assert [len(list(node.outputs[0].uses())) for node in rounding] == [3, 1, 2, 1] * 2
    assert ("forerun", "QuantizeDynamic", "") in quantized.model.functions


@pytest.mark.parametrize(
    "name", ["fp8-weight-only", "int8-weight-only", "nvfp4-weight-only", "mxfp4", "int8"]
)
def test_formats_of_weights_alone_round_no_rows_in_the_graph(tmp_path: Path, name: str) -> None:
    graph = graph_of(tmp_path)
    precision = Precision(name, FORMATS[name].GROUP)
    quantized = quantize(graph, plan_quantization(graph, precision))
    kinds = {node.op_type for node in quantized.model.graph}
    assert not kinds & {"QuantizeDynamic", "QuantizeFP4", "QuantizeLinear"}


def test_float32_changes_nothing(tmp_path: Path) -> None:
    assert plan_quantization(graph_of(tmp_path), Precision("float32")).layers == {}


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_the_head_of_a_4_bit_model_has_8(tmp_path: Path, name: str) -> None:
    plan = plan_quantization(graph_of(tmp_path), Precision(name, 64))
    assert plan.requested == f"{name}-g64"
    assert plan.layers[HEAD] == Precision("int8", 32)
    assert {layer for key, layer in plan.layers.items() if key != HEAD} == {Precision(name, 64)}


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        (Precision("int8", 32), Precision("int8", 32)),
        (Precision("int4", 64), Precision("int8", 32)),
        (Precision("bfloat16"), Precision("bfloat16")),
    ],
)
def test_an_embedding_that_is_no_head_is_stored_like_the_head(
    tmp_path: Path, precision: Precision, expected: Precision
) -> None:
    graph = graph_of(tmp_path, tie_word_embeddings=False)
    layers = plan_quantization(graph, precision).layers
    assert layers[HEAD] == layers["lm_head.weight"] == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("float32", "none", None), Precision("float32")),
        (("bfloat16", "none", None), Precision("bfloat16")),
        (("float32", "int8", None), Precision("int8", 64)),
        (("float32", "int8", 0), Precision("int8", 0)),
        (("float32", "uint4", 128), Precision("uint4", 128)),
    ],
)
def test_options_name_a_precision(
    options: tuple[str, str, int | None], expected: Precision
) -> None:
    assert precision_of(*options) == expected


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("float32", "none", 64), "--group goes with a quantization format"),
        (("bfloat16", "int8", None), "--dtype bfloat16 does not go with format int8"),
        (("float32", "int4", 0), "int4 has no groups of a whole channel; supported: 32, 64, 128"),
        (("float32", "int8", 48), "int8 has no groups of 48; supported: 32, 64, 128, channel"),
        (("float32", "fp8-dynamic", 64), "format fp8-dynamic fixes its groups; leave out --group"),
        (
            ("float32", "nvfp4-weight-only", 32),
            "format nvfp4-weight-only fixes its groups; leave out --group",
        ),
        (("float32", "mxfp4", 32), "format mxfp4 fixes its groups; leave out --group"),
        (
            ("bfloat16", "nvfp4-weight-only", None),
            "--dtype bfloat16 does not go with format nvfp4-weight-only",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: tuple[str, str, int | None], named: str
) -> None:
    with pytest.raises(UnsupportedError, match=named):
        precision_of(*options)


@pytest.mark.parametrize(
    ("precision", "label"),
    [
        (Precision("int8", 64), "int8"),
        (Precision("int8", 32), "int8-g32"),
        (Precision("int8", 0), "int8-channel"),
        (Precision("int4", 128), "int4-g128"),
        (Precision("bfloat16"), "bfloat16"),
    ],
)
def test_a_label_says_what_is_not_the_formats_own(precision: Precision, label: str) -> None:
    assert precision.label == label


CASES = [Precision(name, group) for name, rules in FORMATS.items() for group in rules.GROUPS]


@pytest.mark.parametrize("precision", [*CASES, Precision("bfloat16")], ids=lambda p: p.label)
def test_onnx_reads_a_stored_weight_as_the_format_means_it(precision: Precision) -> None:
    """A graph of one product with an identity gives the weight itself, by ONNX's own definition."""
    weight = np.random.default_rng(0).standard_normal((6, 144), dtype=np.float32)
    given = ir.Value(name="w", const_value=ir.Tensor(weight), shape=ir.Shape((6, 144)))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape((144, 144)))
    node = ir.node("Gemm", [x, given], {"transB": 1})
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [x], node.outputs, nodes=[node], initializers=[given], opset_imports={"": 23}, name="g"
    )
    model = ir.Model(graph, ir_version=11)
    plan = plan_quantization(Graph(model, None), Precision("float32"))  # type: ignore[arg-type]
    plan.layers["w"] = precision
    is_narrow = precision.name in FORMATS and FORMATS[precision.name].ROWS in FIXED
    if is_narrow:  # 1 is 6 of these, in all of the forms
        plan.rows["w"] = RowScales(lambda: np.float32(1 / 6).reshape(()))
    quantize(Graph(model, None), plan)  # type: ignore[arg-type]
    (got,) = ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": np.eye(144, dtype=np.float32)})
    if precision.name == "bfloat16":
        np.testing.assert_allclose(got.T, weight, rtol=2**-8)
        return
    rules = FORMATS[precision.name]
    want = rules.unpack(*rules.pack(weight, precision.group), precision.group)
    np.testing.assert_allclose(got.T, want, rtol=1e-6, atol=1e-7)


def test_a_weight_is_packed_once_for_all_its_parts() -> None:
    calls = []

    def pack() -> tuple[np.ndarray, ...]:
        calls.append(1)
        return np.zeros(1), np.ones(1), np.full(1, 2)

    once = PackedOnce(pack)
    assert [once.part(index).item() for index in range(3)] == [0, 1, 2]
    assert len(calls) == 1
