"""Compiling for the native engine: what a plan holds, and what is refused by name."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from safetensors.numpy import load_file

from builder.artifact.config import ModelConfig, RopeConfig
from builder.artifact.store import Artifact
from builder.errors import ArtifactError, UnsupportedError
from builder.graph.graph import QuantizedGraph
from builder.targets.compiler import TargetOptions
from builder.targets.cpu import compile as cpu
from builder.targets.cpu import native
from builder.targets.cpu.lowering import Lowering
from builder.targets.cpu.plan import (
    Buffer,
    Code,
    Form,
    Geometry,
    Operation,
    Program,
    Rows,
    WeightRange,
    encode,
    read_header,
)
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.builder.targets.cpu.precisions import PRECISIONS
from tests.built import compile_model
from tests.models import tiny_llama

CONFIG = ModelConfig(
    arch="llama",
    vocab_size=32,
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    norm_eps=1e-5,
    activation="silu",
    rope=RopeConfig(1e4),
    max_positions=64,
    tied_head=True,
)
LAYER = [Code.RMS_NORM, Code.LINEAR, Code.APPEND, Code.ATTENTION]
REST = [Code.LINEAR, Code.RMS_NORM, Code.LINEAR, Code.LINEAR]


@pytest.fixture(scope="module", params=["float32", "bfloat16", "int8", "int8-channel", "uint4"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = tiny_llama(tmp_path_factory.mktemp("m"), head_dim=32)
    options = PRECISIONS[request.param]
    return compile_model(model, tmp_path_factory.mktemp("b") / "artifact", **options)


def test_a_layer_is_eight_operations_and_one_where_attention_writes_another_form(
    artifact: Artifact,
) -> None:
    codes = [operation["code"] for operation in PlanRunner(artifact).operations]
    (engine,) = artifact.manifest.engines
    between = [Code.QUANTIZE] if engine.requested in ("bfloat16", "int8", "int8-channel") else []
    layers = (LAYER + between + REST) * artifact.manifest.model.num_layers
    assert codes == [Code.EMBEDDING, *layers, Code.RMS_NORM, Code.LINEAR, Code.ROW_ANSWERS]


def test_buffers_are_shared_by_all_layers(artifact: Artifact) -> None:
    buffers = PlanRunner(artifact).buffers
    assert len(buffers) <= 8
    assert Counter(rows for rows, *_ in buffers)[Rows.LOGIT_ROWS] == 2


def test_a_tied_head_and_the_embedding_share_one_weight_unless_rotated(artifact: Artifact) -> None:
    operations = PlanRunner(artifact).operations
    is_rotated = artifact.manifest.engines[0].requested.startswith("int8")
    assert (operations[0]["weight"] != operations[-2]["weight"]) == is_rotated


def test_the_head_is_computed_for_the_wanted_rows_alone(artifact: Artifact) -> None:
    *_, norm, head, answers = PlanRunner(artifact).operations
    assert norm["rows"] == head["rows"] == answers["rows"] == Rows.LOGIT_ROWS


def test_weights_lie_on_whole_cache_lines(artifact: Artifact) -> None:
    (engine,) = artifact.manifest.engines
    data = artifact.path(str(engine.weights)).read_bytes()
    header = int.from_bytes(data[:8], "little") + 8
    assert header % 64 == 0
    sizes = [array.nbytes for array in load_file(artifact.path(str(engine.weights))).values()]
    assert all(size % 64 == 0 for size in sizes)


def test_every_linear_layer_has_the_precision_that_was_asked_for(artifact: Artifact) -> None:
    (engine,) = artifact.manifest.engines
    name = engine.requested.partition("-")[0]
    expected = {"int8", name} if name == "uint4" else {name}
    assert set(engine.realized.values()) == expected
    assert len(engine.realized) == 7 * artifact.manifest.model.num_layers + 1


def test_keys_and_values_are_bfloat16_beside_narrow_weights(artifact: Artifact) -> None:
    (engine,) = artifact.manifest.engines
    (group,) = artifact.manifest.kv.groups
    expected = "float32" if engine.requested == "float32" else "bfloat16"
    assert group.dtype == expected
    assert engine.inputs[-1].dtype == expected


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        ("float32", "float32 throughout"),
        (
            "bfloat16",
            "bfloat16 weights; the activations of linear layers are rounded to bfloat16; ",
        ),
        ("int8-g128", "int8 weights with a half-precision scale per 128 inputs; .* int8 per 64; "),
        ("int4", "int4 weights with a half-precision scale per 32 inputs.*; .* int8 per 32; "),
    ],
)
def test_a_manifest_says_how_the_engine_computes(precision: str, said: str, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m", hidden_size=128, intermediate_size=128)
    built = compile_model(model, tmp_path / "a", **PRECISIONS[precision])
    assert re.match(f".*{said}", built.manifest.engines[0].compute)


def test_a_head_size_that_is_no_whole_group_is_quantized_after_attention(tmp_path: Path) -> None:
    built = compile_model(tiny_llama(tmp_path / "m", head_dim=20), tmp_path / "a", quant="int8")
    assert Code.QUANTIZE in [operation["code"] for operation in PlanRunner(built).operations]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (TargetOptions(dtype="float16"), "dtype float16.*float32, bfloat16"),
        (TargetOptions(quant="fp9"), "quant fp9.*int8"),
        (TargetOptions(tp=2), "--tp 2"),
        (TargetOptions(kv="fp8"), "--kv fp8; supported: float32, bfloat16, int8"),
    ],
)
def test_what_the_target_lacks_is_refused_with_what_it_has(
    options: TargetOptions, named: str
) -> None:
    with pytest.raises(UnsupportedError, match=named):
        cpu.check(CONFIG, options)


@pytest.mark.parametrize(("kv", "head"), [("float32", 64), ("bfloat16", 32), ("int8", 16 + 4)])
def test_keys_and_values_have_the_precision_that_is_asked_for(kv: str, head: int) -> None:
    geometry = cpu.kv_geometry(CONFIG, 16, TargetOptions(quant="int8", kv=kv))
    assert geometry.groups[0].dtype == kv
    assert geometry.bytes_per_block == 16 * 2 * 2 * CONFIG.num_kv_heads * head


def test_the_manifest_says_how_keys_and_values_are_kept(tmp_path: Path) -> None:
    built = compile_model(tiny_llama(tmp_path / "m"), tmp_path / "a", quant="int8", kv="int8")
    (engine,) = built.manifest.engines
    assert "keys and values int8 with a float32 scale per token and head" in engine.compute
    assert engine.inputs[-1].dtype == built.manifest.kv.groups[0].dtype == "int8"


def test_int8_keys_and_values_leave_room_for_more_tokens(tmp_path: Path) -> None:
    model, blocks = tiny_llama(tmp_path / "m", head_dim=64), {}
    for kv in ("bfloat16", "int8"):
        built = compile_model(model, tmp_path / kv, quant="int8", kv=kv, kv_cache_bytes=1 << 21)
        blocks[kv] = built.manifest.limits.num_blocks
    assert blocks["int8"] > 1.8 * blocks["bfloat16"]


def test_blocks_of_eight_tokens_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="--block-size 8; supported: multiples of 16"):
        cpu.kv_geometry(CONFIG, 8, TargetOptions())


def test_a_machine_without_the_library_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    native.library.cache_clear()
    monkeypatch.setattr(native, "FILE_NAME", "absent.so")
    with pytest.raises(UnsupportedError, match=r"g\+\+ 12 or later.*--target portable"):
        cpu.check(CONFIG, TargetOptions())
    native.library.cache_clear()


def test_a_library_that_does_not_load_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    native.library.cache_clear()
    (tmp_path / native.FILE_NAME).write_bytes(b"not a library")
    monkeypatch.setattr(native, "__file__", str(tmp_path / "native.py"))
    with pytest.raises(UnsupportedError, match=r"can't load libforerun_cpu\.so"):
        cpu.check(CONFIG, TargetOptions())
    native.library.cache_clear()


def test_an_operation_without_a_kernel_is_named() -> None:
    x = ir.Value(name="token_ids", type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(["T"]))
    node = ir.node("Erf", [x])
    graph = ir.Graph([x], [node.outputs[0]], nodes=[node], opset_imports={"": 23})
    quantized = QuantizedGraph(ir.Model(graph, ir_version=11), CONFIG, "float32")
    with pytest.raises(UnsupportedError, match="no kernel for Erf"):
        Lowering(quantized, cpu.kv_geometry(CONFIG, 16, TargetOptions())).program()


def small_plan() -> bytes:
    geometry = Geometry(2, 3, 64, Form.BFLOAT16, 16, 259)
    operation = Operation(Code.EMBEDDING, output=0, weight=0, size_out=64)
    program = Program(geometry, (Buffer(Rows.TOKENS, Form.FLOAT32, 64),), (operation,))
    return encode(program, [WeightRange(64, 64 * 272 * 4, Form.FLOAT32, 0, 272, 64)], 70_000)


def test_the_geometry_of_a_plan_and_the_size_of_its_weights_are_read_back() -> None:
    geometry = Geometry(2, 3, 64, Form.BFLOAT16, 16, 259)
    assert read_header(small_plan()) == (geometry, 70_000)


def test_the_format_has_fixed_sizes() -> None:
    assert len(small_plan()) == 64 + 24 + 32 + 128


@pytest.mark.parametrize("spoil", [lambda p: p[:30], lambda p: b"X" + p[1:], lambda p: p + b"\0"])
def test_what_is_no_whole_plan_is_refused(spoil: object) -> None:
    with pytest.raises(ArtifactError, match="compile the model again"):
        read_header(spoil(small_plan()))


def test_the_builds_that_a_machine_can_run_end_with_the_generic_one() -> None:
    assert native.builds()[-1] == "generic"


def test_the_same_model_gives_the_same_plan(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m")
    plans = []
    for name in "ab":
        built = compile_model(model, tmp_path / name, quant="int8")
        plans.append(built.path(built.manifest.engines[0].path).read_bytes())
    assert plans[0] == plans[1]
    assert np.frombuffer(plans[0], np.uint8).size < 10_000
