"""Scales of keys and values that come with a checkpoint: read for each layer, and refused by name where one is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder.checkpoint.open import open_checkpoint
from builder.errors import CheckpointError, UnsupportedError
from tests.quantized import WEIGHTS, write_awq
from tests.quantized_kv import KV_NAMES, kv_scale, write_fp8_with_kv

KEY = "model.layers.1.self_attn.k_proj.k_scale"
INT8: dict[str, Any] = {"modelopt": "INT8"}
FP8: dict[str, Any] = {"modelopt": "FP8"}
"""What a config says, by who writes it; compressed-tensors has a whole scheme, FP8 where nothing is changed."""


def configure(folder: Path, **changed: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= changed
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("naming", KV_NAMES)
@pytest.mark.parametrize("dtype", ["fp8", "int8-static"])
def test_each_layer_has_its_scales(naming: str, dtype: str, tmp_path: Path) -> None:
    told = INT8 if dtype == "int8-static" else FP8
    scheme = {"type": "int" if dtype == "int8-static" else "float"}
    write_fp8_with_kv(tmp_path, naming, told.get(naming, scheme), num_layers=12)
    kv = open_checkpoint(str(tmp_path)).kv
    assert kv is not None
    assert kv.dtype == dtype
    assert kv.keys == tuple(kv_scale(layer, 0) for layer in range(12))
    assert kv.values == tuple(kv_scale(layer, 1) for layer in range(12))


def test_modelopts_scheme_in_the_config_says_the_same_as_its_name(tmp_path: Path) -> None:
    write_fp8_with_kv(tmp_path, "modelopt", None)
    configure(tmp_path, kv_cache_scheme={"dynamic": False, "num_bits": 8, "type": "float"})
    kv = open_checkpoint(str(tmp_path)).kv
    assert kv is not None
    assert kv.dtype == "fp8"


def test_scales_are_no_weights(tmp_path: Path) -> None:
    write_fp8_with_kv(tmp_path)
    assert KEY not in open_checkpoint(str(tmp_path)).tensors


@pytest.mark.parametrize("naming", KV_NAMES)
@pytest.mark.parametrize("which", [0, 1])
def test_a_deleted_scale_is_named(naming: str, which: int, tmp_path: Path) -> None:
    name = f"model.layers.1.{KV_NAMES[naming][which]}"
    write_fp8_with_kv(tmp_path, naming, FP8.get(naming), altered={name: None})
    with pytest.raises(CheckpointError, match=f"quantized .fp8., but tensor {name} is missing"):
        open_checkpoint(str(tmp_path))


def test_scales_that_the_config_does_not_speak_of_are_named(tmp_path: Path) -> None:
    write_fp8_with_kv(tmp_path, "modelopt", None)
    with pytest.raises(CheckpointError, match=r"self_attn\.._proj\.._scale is a scale of keys or"):
        open_checkpoint(str(tmp_path))


def test_scales_in_a_checkpoint_whose_method_has_none_are_named(tmp_path: Path) -> None:
    write_awq(tmp_path)
    tensors = load_file(tmp_path / WEIGHTS) | {KEY: np.ones((), np.float32)}
    save_file(tensors, tmp_path / WEIGHTS)
    with pytest.raises(CheckpointError, match=f"{KEY} is a scale of keys or values, but"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    "name", ["model.layers.2.self_attn.k_proj.k_scale", "model.layers.0.self_attn.v_scale"]
)
def test_a_scale_too_many_is_named(name: str, tmp_path: Path) -> None:
    write_fp8_with_kv(tmp_path, altered={name: np.ones((), np.float32)})
    with pytest.raises(CheckpointError, match=f"{name} is a scale of keys or values too many"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (np.float32(0), "is 0; a scale of keys"),
        (np.float32(-0.5), "is -0.5"),
        (np.float32(1e-39), "is 1e-39"),
        (np.float32(3e38), "is 3e\\+38"),
        (np.float32(np.inf), "holds NaN or infinite numbers"),
        (np.float32(np.nan), "holds NaN or infinite numbers"),
        (np.ones(2, np.float32), "must be one float"),
        (np.ones((), np.int8), "must be one float"),
    ],
)
def test_a_scale_that_is_no_number_to_divide_by_is_named(
    scale: Any, said: str, tmp_path: Path
) -> None:
    write_fp8_with_kv(tmp_path, altered={KEY: np.asarray(scale)})
    with pytest.raises(CheckpointError, match=f"{KEY} {said}|{KEY} is .*{said}"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"kv_cache_quant_algo": "NVFP4"}, "kv_cache_quant_algo nvfp4 is not supported"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "contradict each other"),
        ({"kv_cache_scheme": 8}, "kv_cache_scheme is 8, not an object"),
    ],
)
def test_what_modelopt_says_of_keys_and_values_in_vain_is_named(
    changed: dict[str, Any], named: str, tmp_path: Path
) -> None:
    write_fp8_with_kv(tmp_path)
    configure(tmp_path, **changed)
    with pytest.raises((CheckpointError, UnsupportedError), match=named):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"strategy": "attn_head"}, "strategy attn_head"),
        ({"dynamic": True}, "dynamic True"),
        ({"symmetric": False}, "symmetric False"),
        ({"group_size": 64}, "group_size is 64"),
        ({"surprise": 1}, "surprise not known"),
    ],
)
def test_what_compressed_tensors_says_of_them_in_vain_is_named(
    changed: dict[str, Any], named: str, tmp_path: Path
) -> None:
    write_fp8_with_kv(tmp_path, "compressed-tensors", changed)
    with pytest.raises(UnsupportedError, match=named):
        open_checkpoint(str(tmp_path))
