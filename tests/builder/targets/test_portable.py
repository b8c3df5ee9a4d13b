"""The portable target: lowering, and the executor on a tiny model."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from safetensors.numpy import load_file

from builder.artifact.step import RowAsks
from builder.artifact.store import Artifact
from builder.checkpoint.open import open_checkpoint
from builder.errors import EngineError
from builder.quant import FORMATS, int8
from builder.targets import open_executor
from builder.targets.executor import Executor
from builder.targets.portable import execute
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

BUILDS = {
    "float32": ("none", {}),
    "bfloat16": ("none", {}),
    "int8": ("int8", {}),
    "int8-g64": ("int8", {"intermediate_size": 90}),
    "int4": ("int4", {}),
    "uint4": ("uint4", {"hidden_size": 48, "head_dim": 12, "intermediate_size": 90}),
    "uint4-g64": ("uint4", {"tie_word_embeddings": False}),
    "int8-untied-biased": (
        "int8",
        {"tie_word_embeddings": False, "mlp_bias": True, "attention_bias": True},
    ),
    "int8-odd-widths": ("int8", {"hidden_size": 48, "head_dim": 12, "intermediate_size": 90}),
}


INT8 = pytest.mark.parametrize(
    "artifact",
    [name for name, (quant, _) in BUILDS.items() if quant == "int8" and "-g" not in name],
    indirect=True,
)


@pytest.fixture(scope="module", params=BUILDS)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    quant, overrides = BUILDS[request.param]
    model = tiny_llama(tmp_path_factory.mktemp("model"), **overrides)
    folder = tmp_path_factory.mktemp("built") / "artifact"
    options = {
        "dtype": "bfloat16" if request.param == "bfloat16" else "float32",
        "group": 64 if request.param.endswith("-g64") else None,
    }
    return compile_model(
        model,
        folder,
        target="portable",
        quant=quant,
        max_num_seqs=256,
        allow_fallback=quant in ("int4", "uint4"),  # kept in 8 bits
        **options,
    )


@pytest.fixture
def executor(artifact: Artifact) -> Iterator[Executor]:
    executor = open_executor(artifact)
    yield executor
    executor.close()


def draw(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def test_every_linear_layer_has_the_precision_that_was_asked_for(artifact: Artifact) -> None:
    (engine,) = artifact.manifest.engines
    floats = ("float32", "bfloat16")
    expected = engine.requested if engine.requested in floats else "int8"
    assert set(engine.realized.values()) == {expected}
    layers = artifact.manifest.model.num_layers
    assert len(engine.realized) == 7 * layers + 1


def test_the_engine_file_is_a_valid_model_without_numbers_or_functions(artifact: Artifact) -> None:
    (engine,) = artifact.manifest.engines
    model = onnx.load(artifact.path(engine.path), load_external_data=False)
    assert not model.functions
    assert {opset.domain for opset in model.opset_import} <= {"", "com.microsoft"}
    assert artifact.path(engine.path).stat().st_size < 300_000
    onnx.load_external_data_for_model(model, str(artifact.root))
    onnx.checker.check_model(model)
    ort.InferenceSession(model.SerializeToString())


@INT8
def test_int8_logits_stay_near_a_float_model_of_the_same_weights(
    artifact: Artifact, tmp_path: Path
) -> None:
    """The same graph in float32 over the weights that int8 stores: what is left is the rounding of activations."""
    (engine,) = artifact.manifest.engines
    model = onnx.load(artifact.path(engine.path), load_external_data=False)
    onnx.load_external_data_for_model(model, str(artifact.root))
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            for attribute in node.attribute:
                if attribute.name == "accuracy_level":
                    attribute.i = 1
    session = ort.InferenceSession(model.SerializeToString())
    tokens = draw(30)
    executor = open_executor(artifact)
    got = PagedRunner(executor).whole(tokens)
    feeds = {
        "token_ids": np.array(tokens, np.int32),
        "positions": np.arange(30, dtype=np.int32),
        "query_start": np.array([0, 30], np.int32),
        "seq_lens": np.array([30], np.int32),
        "block_tables": np.array([[1, 2]], np.int32),
        "slot_mapping": np.arange(16, 46, dtype=np.int32),
        "logit_rows": np.arange(30, dtype=np.int32),
    }
    config = artifact.manifest.model
    shape = (3, 2, config.num_kv_heads, 16, config.head_dim)
    feeds |= {
        f"kv_cache.{layer}": np.zeros(shape, np.float32) for layer in range(config.num_layers)
    }
    want = session.run(["logits"], feeds)[0]
    executor.close()
    correlation = np.corrcoef(got.ravel(), want.ravel())[0, 1]
    assert correlation > 0.98


@INT8
def test_int8_blocks_hold_what_the_format_packs(artifact: Artifact, tmp_path: Path) -> None:
    (engine,) = artifact.manifest.engines
    weights = load_file(artifact.path(str(engine.weights)))
    name = "model.layers.1.mlp.down_proj.weight"
    blocks, scales = weights[f"{name}.blocks"], weights[f"{name}.scale"]
    width = artifact.manifest.model.intermediate_size
    signed = (blocks.astype(np.int16) - 128).astype(np.int8).reshape(len(blocks), -1)
    assert not signed[:, width:].any()
    repacked = int8.pack(int8.unpack(signed[:, :width], scales.reshape(len(blocks), -1)))
    np.testing.assert_array_equal(repacked[0], signed[:, :width])


@pytest.mark.parametrize("quant", ["int4", "uint4"])
def test_4_bit_blocks_hold_numbers_less_their_zero_points(quant: str, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m", intermediate_size=90)
    built = compile_model(
        model, tmp_path / "a", target="portable", quant=quant, group=64, allow_fallback=True
    )
    weights = load_file(built.path(str(built.manifest.engines[0].weights)))
    name = "model.layers.1.mlp.down_proj.weight"
    source = open_checkpoint(str(model)).tensors[name].read()
    steps = weights[f"{name}.blocks"].astype(np.float32) - 128
    assert not steps.reshape(len(steps), -1)[:, 90:].any()
    got = (steps * weights[f"{name}.scale"].reshape(len(steps), -1, 1)).reshape(len(steps), -1)
    rules = FORMATS[quant]
    want = rules.unpack(*rules.pack(source, 64), 64)
    np.testing.assert_allclose(got[:, :90], want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_give_the_same_bits(executor: Executor, chunk: int) -> None:
    runner, tokens = PagedRunner(executor), draw(100)
    np.testing.assert_array_equal(runner.whole(tokens, chunk), runner.whole(tokens))


def test_steps_of_very_unequal_lengths_give_the_same_bits(executor: Executor) -> None:
    runner = PagedRunner(executor)
    prompts = {str(length): draw(length, length) for length in (1, 100, 2, 50, 1, 3, 33)}
    alone = {name: runner.whole(tokens) for name, tokens in prompts.items()}
    for (name, _), rows in zip(prompts.items(), runner.step(*prompts.items()), strict=True):
        np.testing.assert_array_equal(rows, alone[name])


def test_a_step_may_have_more_tokens_than_a_sequence(tmp_path: Path) -> None:
    artifact = compile_model(
        tiny_llama(tmp_path / "m"),
        tmp_path / "a",
        target="portable",
        max_seq_len=16,
        max_num_seqs=128,
    )
    executor = open_executor(artifact)
    runner, prompts = PagedRunner(executor), {str(seed): draw(15, seed) for seed in range(8)}
    alone = {name: runner.whole(tokens) for name, tokens in prompts.items()}
    for (name, _), rows in zip(prompts.items(), runner.step(*prompts.items()), strict=True):
        np.testing.assert_array_equal(rows, alone[name])
    executor.close()


def test_onnxruntime_records_nothing_and_calls_nobody(artifact: Artifact, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from builder.artifact.store import open_artifact; "
        "from builder.targets import open_executor; open_executor(open_artifact(Path(sys.argv[1]))).close()"
    )
    root = Path(__file__).parents[3]
    environment = {"HOME": str(tmp_path), "PYTHONPATH": str(root)}
    subprocess.run(
        [sys.executable, "-c", code, artifact.root], check=True, cwd=root, env=environment
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("max_scores", [1, 64, 1000, 20_000])
def test_however_a_step_is_cut_its_bits_are_the_same(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch, max_scores: int
) -> None:
    prompts = {str(length): draw(length, length) for length in (1, 90, 2, 40, 3)}
    found = []
    for limit in (1 << 26, max_scores):
        monkeypatch.setattr(execute, "MAX_SCORES", limit)
        executor = open_executor(artifact)
        runner = PagedRunner(executor)
        first = runner.step(
            *((name, tokens[:-1]) for name, tokens in prompts.items() if tokens[1:])
        )
        found.append(
            [*first, *runner.step(*((name, tokens[-1:]) for name, tokens in prompts.items()))]
        )
        executor.close()
    for whole, cut in zip(*found, strict=True):
        np.testing.assert_array_equal(whole, cut)


def test_a_step_may_ask_for_no_logits(executor: Executor) -> None:
    runner = PagedRunner(executor)
    tokens = draw(20)
    expected = runner.whole(tokens)
    step = runner._lay_out([("a", runner._extend("a", 19) or tokens[:19])], [19])
    silent = type(step)(
        **{f: getattr(step, f) for f in step.__slots__ if f != "logit_rows"},
        logit_rows=np.zeros(0, np.int32),
    )
    result = executor.execute(silent, RowAsks(4, np.zeros(0, np.float32)))
    assert result.argmax.shape == (0,)
    np.testing.assert_array_equal(runner.step(("a", tokens[19:]))[0], expected[19:])


def test_block_copies_happen_before_the_step_writes(executor: Executor) -> None:
    runner, tokens = PagedRunner(executor), draw(30)
    expected = runner.whole(tokens)
    runner.step(("a", tokens[:29]))
    (shared,) = runner._tables["a"][1:]
    runner._extend("a", 1)
    step = runner._lay_out([("a", tokens[29:])], [1])
    copy = next(block for block in runner._free)
    step.block_tables[0, 0, 1] = copy
    step.slot_mapping[0, 0] = copy * 16 + 29 % 16
    moved = type(step)(
        **{f: getattr(step, f) for f in step.__slots__ if f != "block_copies"},
        block_copies=np.array([[0, shared, copy]], np.int32),
    )
    result = executor.execute(moved, RowAsks(0, np.zeros(1, np.float32)))
    np.testing.assert_array_equal(result.full_row(0), expected[29])


def test_a_token_outside_the_vocabulary_fails_the_step_and_not_the_engine(
    executor: Executor,
) -> None:
    runner = PagedRunner(executor)
    with pytest.raises(EngineError):
        runner.step(("bad", [100_000]))
    assert runner.whole(draw(5)).shape == (5, executor.vocab_size)


def test_pools_are_updated_in_place_and_never_replaced(executor: Executor) -> None:
    assert isinstance(executor, execute.PortableExecutor)
    pools = executor._pools
    addresses = [pool.ctypes.data for pool in pools]
    PagedRunner(executor).whole(draw(40))
    assert [pool.ctypes.data for pool in executor._pools] == addresses
    assert all(pool[1:].any() for pool in pools)
    assert not any(pool[0].any() for pool in pools)


def test_a_closed_executor_refuses_steps(artifact: Artifact) -> None:
    executor = open_executor(artifact)
    executor.close()
    executor.close()
    with pytest.raises(EngineError, match="closed"):
        PagedRunner(executor).whole([1])


def test_thread_counts_change_no_bit(artifact: Artifact) -> None:
    rows = []
    for threads in (1, 2):
        executor = open_executor(artifact, threads=threads)
        rows.append(PagedRunner(executor).whole(draw(50)))
        executor.close()
    np.testing.assert_array_equal(rows[0], rows[1])
