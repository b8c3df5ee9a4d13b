"""What is exported and compiled again is the same engine: equal logits bit for bit, for every format that has a layout."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builder.artifact.store import Artifact, open_artifact
from tests.builder.export.exporting import export, logits
from tests.builder.test_rounded_rows import CASES, written
from tests.built import compile_model
from tests.models import tiny_gguf, tiny_llama
from tests.quantized import write_gptq, write_packed
from tests.quantized_kv import write_fp8_with_kv

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
BIASES = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}
ODD = {"vocab_size": 257, "hidden_size": 80, "head_dim": 20, "intermediate_size": 112}
FORMATS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quant": "int8"},
    "int8-channel": {"quant": "int8", "group": 0},
    "int8-g128": {"quant": "int8", "group": 128},
    "int4": {"quant": "int4"},
    "int4-g64": {"quant": "int4", "group": 64},
    "uint4": {"quant": "uint4"},
    "fp8-dynamic": {"quant": "fp8-dynamic"},
    "fp8-block": {"quant": "fp8-block"},
    "fp8-weight-only": {"quant": "fp8-weight-only"},
    "nvfp4-weight-only": {"quant": "nvfp4-weight-only"},
}
MODELS: dict[str, dict[str, Any]] = {"biases-untied": BIASES, "odd-sizes-tied": ODD}


def same_again(artifact: Artifact, tmp_path: Path, **options: Any) -> Path:
    """Export an artifact, compile that, and hold both engines against each other."""
    target = artifact.manifest.engines[0].target
    folder = export(artifact, tmp_path / "exported")
    again = compile_model(folder, tmp_path / "again", target=target, **options)
    realized = [sorted(one.manifest.engines[0].realized.values()) for one in (artifact, again)]
    assert realized[0] == realized[1]
    assert np.array_equal(logits(artifact), logits(again))
    assert again.manifest.tokenizer.end_token_ids == artifact.manifest.tokenizer.end_token_ids
    assert again.manifest.tokenizer.prefix_ids == artifact.manifest.tokenizer.prefix_ids
    return folder


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_on_the_cpu_comes_back_bit_for_bit(name: str, model: str, tmp_path: Path) -> None:
    options = FORMATS[name]
    artifact = compile_model(tiny_llama(tmp_path / "m", **MODELS[model]), tmp_path / "a", **options)
    again = {"dtype": options["dtype"]} if "dtype" in options else {}
    same_again(artifact, tmp_path, **again)


PORTABLE = ["float32", "bfloat16", "int8", "int4", "uint4", "fp8-block", "fp8-dynamic"]
PORTABLE += ["fp8-weight-only", "nvfp4-weight-only"]


@pytest.mark.parametrize("name", PORTABLE)
def test_a_format_on_portable_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    model, options = tiny_llama(tmp_path / "m", **ODD), FORMATS[name]
    build = {"target": "portable", "allow_fallback": True}
    artifact = compile_model(model, tmp_path / "a", **options, **build)
    again = {"dtype": options["dtype"]} if "dtype" in options else {}
    same_again(artifact, tmp_path, allow_fallback=True, **again)


@pytest.mark.parametrize("target", ["cpu", "portable"])
@pytest.mark.parametrize("name", CASES)
def test_fixed_scales_and_factors_of_rows_come_back(name: str, target: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"allow_fallback": True}
    model = written(tmp_path / "m", CASES[name])
    artifact = compile_model(model, tmp_path / "a", target=target, **options)
    same_again(artifact, tmp_path, **options)


@pytest.mark.parametrize(
    ("naming", "kv", "dtype"),
    [
        ("modelopt", "FP8", "fp8"),
        ("modelopt", "INT8", "int8-static"),
        ("compressed-tensors", None, "fp8"),
    ],
)
def test_scales_of_keys_and_values_come_back(
    naming: str, kv: str | None, dtype: str, tmp_path: Path
) -> None:
    model = write_fp8_with_kv(tmp_path / "m", naming, kv)
    artifact = compile_model(model, tmp_path / "a")
    (group,) = artifact.manifest.kv.groups
    assert group.dtype == dtype
    folder = same_again(artifact, tmp_path)
    assert open_artifact(tmp_path / "again").manifest.kv.groups == (group,)
    own = json.loads((folder / "hf_quant_config.json").read_text())
    assert own["quantization"]["kv_cache_quant_algo"] == {"fp8": "FP8"}.get(dtype, "INT8")


@pytest.mark.parametrize("rope", [LLAMA3, {"type": "linear", "factor": 4.0}])
def test_rotary_scaling_comes_back(rope: dict[str, Any], tmp_path: Path) -> None:
    artifact = compile_model(tiny_llama(tmp_path / "m", rope_scaling=rope), tmp_path / "a")
    same_again(artifact, tmp_path)


def test_an_imported_checkpoint_comes_back(tmp_path: Path) -> None:
    write_gptq(tmp_path / "m", symmetric=False, group=64)
    same_again(compile_model(tmp_path / "m", tmp_path / "a"), tmp_path)


def test_a_checkpoint_of_one_scale_per_output_comes_back(tmp_path: Path) -> None:
    write_packed(tmp_path / "m", bits=8, group=0)
    same_again(compile_model(tmp_path / "m", tmp_path / "a"), tmp_path)


def test_blocks_of_a_gguf_file_come_back_with_the_begin_token_of_its_prompts(
    tmp_path: Path,
) -> None:
    model = tiny_gguf(
        tmp_path / "m.gguf",
        stored="Q8_0",
        intermediate_size=128,
        metadata={"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 257},
    )
    artifact = compile_model(model, tmp_path / "a")
    assert artifact.manifest.tokenizer.prefix_ids == (257,)
    same_again(artifact, tmp_path)


def test_the_checkpoint_is_not_needed(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m")
    artifact = compile_model(model, tmp_path / "a", quant="int4")
    for path in model.iterdir():
        path.unlink()
    config = json.loads((export(artifact, tmp_path / "out") / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
