"""Formats that target portable emulates in stock ONNX Runtime: kept in their bits, multiplied as exactly their numbers."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from safetensors.numpy import load_file

from builder.artifact.store import Artifact
from builder.checkpoint.rows import FIXED
from builder.quant import FORMATS, is_emulated
from builder.targets import open_executor
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner
from tests.stored import stored_bytes

EMULATED = [
    name
    for name, rules in FORMATS.items()
    if is_emulated(name, "portable") and rules.ROWS not in FIXED
]
"""Those that need no calibration; the others come from checkpoints."""
LAYER = "model.layers.1.self_attn.o_proj.weight"
ODD = {"hidden_size": 48, "head_dim": 12, "intermediate_size": 90}
"""Rows of down_proj end with part of a group."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"), **ODD)


@pytest.fixture(scope="module", params=EMULATED)
def artifact(
    request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Artifact:
    folder = tmp_path_factory.mktemp("built") / "artifact"
    return compile_model(
        model, folder, target="portable", quant=request.param, max_num_seqs=64, kv="float32"
    )


def format_of(artifact: Artifact) -> str:
    return artifact.manifest.engines[0].requested


def tokens(count: int = 60) -> list[int]:
    return np.random.default_rng(3).integers(0, 256, count).tolist()


def logits_of(artifact: Artifact, *, chunk: int = 1 << 30) -> np.ndarray:
    executor = open_executor(artifact)
    rows = PagedRunner(executor).whole(tokens(), chunk)
    executor.close()
    return rows


def multiplied(artifact: Artifact) -> dict[str, np.ndarray]:
    """Have ONNX Runtime give what its Gemms multiply by, by the name of the weight."""
    (engine,) = artifact.manifest.engines
    graph = onnx.load(artifact.path(engine.path), load_external_data=False)
    onnx.load_external_data_for_model(graph, str(artifact.root))
    weights = {node.input[1] for node in graph.graph.node if node.op_type == "Gemm"}
    names = {
        node.name: node.output[0]
        for node in graph.graph.node
        if node.op_type == "DequantizeLinear" and node.output[0] in weights
    }
    graph.graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, names.values()))
    config, kv = artifact.manifest.model, artifact.manifest.kv
    feeds = {
        "token_ids": np.zeros(1, np.int32),
        "positions": np.zeros(1, np.int32),
        "query_start": np.array([0, 1], np.int32),
        "seq_lens": np.ones(1, np.int32),
        "block_tables": np.ones((1, 1), np.int32),
        "slot_mapping": np.full(1, kv.block_size, np.int32),
        "logit_rows": np.zeros(1, np.int32),
    }
    pool = np.zeros((2, 2, config.num_kv_heads, kv.block_size, config.head_dim), np.float32)
    feeds |= {f"kv_cache.{layer}": pool for layer in range(config.num_layers)}
    session = ort.InferenceSession(graph.SerializeToString())
    return dict(zip(names, session.run(list(names.values()), feeds), strict=True))


def test_onnx_runtime_multiplies_to_the_bit_what_the_format_unpacks(
    artifact: Artifact, model: Path
) -> None:
    rules, (source,) = FORMATS[format_of(artifact)], model.glob("*.safetensors")
    weights, found = load_file(source), multiplied(artifact)
    assert len(found) == 7 * artifact.manifest.model.num_layers
    for name, got in found.items():
        np.testing.assert_array_equal(got, rules.unpack(*rules.pack(weights[name])), err_msg=name)


def test_weights_lie_in_the_file_in_their_bits(artifact: Artifact) -> None:
    (engine,) = artifact.manifest.engines
    stored = stored_bytes(artifact.path(str(engine.weights)))
    assert stored[f"{LAYER}.packed"] * 8 == 48 * 48 * FORMATS[format_of(artifact)].BITS


def test_logits_are_those_of_target_cpu_but_for_the_order_of_sums(
    artifact: Artifact, model: Path, tmp_path: Path
) -> None:
    native = compile_model(
        model, tmp_path / "cpu", quant=format_of(artifact), kv="float32", max_num_seqs=64
    )
    got, want = logits_of(artifact), logits_of(native)
    np.testing.assert_array_equal(got.argmax(axis=1), want.argmax(axis=1))
    assert np.linalg.norm(got - want) < 1e-5 * np.linalg.norm(want)


@pytest.mark.parametrize("chunk", [1, 7])
def test_bits_of_a_row_depend_on_no_other_row(artifact: Artifact, chunk: int) -> None:
    np.testing.assert_array_equal(logits_of(artifact, chunk=chunk), logits_of(artifact))


def test_the_manifest_says_which_format_is_emulated(artifact: Artifact) -> None:
    (engine,) = artifact.manifest.engines
    name = format_of(artifact)
    assert engine.emulated == (name,)
    assert engine.compute.startswith(f"emulation of {name}: exactly their weights")
    assert engine.realized[LAYER] == name
    assert set(engine.realized.values()) == {name, "float32"}
    assert engine.fallbacks == {}
