"""Configs that contradict themselves, their tensors or each other, and scales that mean nothing, are refused by name."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder import pipeline
from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.quantized.globs import MAX_GLOBS, Globs
from builder.errors import CheckpointError, UnsupportedError, UserError
from builder.pipeline import CompileRequest
from tests.built import compile_model
from tests.quantized import Writer, write_packed, write_w8a8


def write_awq(folder: Path, group: int, told: int, **config: Any) -> Path:
    """Write layers in the AWQ layout of modelopt, in groups of `group`, with a config that names another."""
    out = Writer(folder, dtype="bfloat16", **config)
    for name, weight in out.layers():
        size_out, size_in = weight.shape
        scales = np.full((size_out, -(-size_in // group)), 0.01, np.float32)
        out.tensors |= {
            f"{name}.weight": np.zeros((size_out // 2, size_in), np.uint8),
            f"{name}.weight_scale": scales,
        }
    return out.finish(section("W4A16_AWQ", group_size=told))


def section(algorithm: str, **fields: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"], **fields}


def test_groups_of_awq_are_those_of_the_config_even_where_they_do_not_divide(
    tmp_path: Path,
) -> None:
    weight = next(
        iter(open_checkpoint(str(write_awq(tmp_path, 64, 64))).quantized.values())
    )  # 96 inputs
    assert weight.group == 64


def test_groups_of_another_size_than_the_config_says_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"weight_scale has shape \(64, 3\); it must be"):
        open_checkpoint(str(write_awq(tmp_path, 32, 128)))


@pytest.mark.parametrize("algorithm", ["FP8", "NVFP4", "W8A16"])
def test_a_group_size_that_a_format_does_not_have_is_refused(
    algorithm: str, tmp_path: Path
) -> None:
    folder = write_awq(tmp_path, 32, 32)
    change(folder, section(algorithm, group_size=32))
    with pytest.raises(UnsupportedError, match="group_size 32 is not supported"):
        open_checkpoint(str(folder))


def change(folder: Path, quantization: dict[str, Any]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = quantization
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("value", [0, -1, 1e-38, 3e38, np.inf, np.nan])
def test_smoothing_that_means_nothing_is_refused_by_tensor_and_input(
    value: float, tmp_path: Path
) -> None:
    folder = write_awq(tmp_path / "m", 32, 32)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.mlp.down_proj.pre_quant_scale"
    tensors[name] = np.ones(96, np.float32)
    tensors[name][7] = value
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        compile_model(folder, tmp_path / "out")


ROWS: dict[str, dict[str, Any]] = {
    "FP8 rows": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
    "fixed rows": {"num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": False},
    "FP4 rows": {
        "num_bits": 4,
        "type": "float",
        "strategy": "tensor_group",
        "dynamic": "local",
        "group_size": 16,
    },
}


@pytest.mark.parametrize("rows", ROWS)
def test_rows_that_4_bit_weights_are_not_multiplied_with_here_are_refused(
    rows: str, tmp_path: Path
) -> None:
    write_packed(tmp_path)
    edit_group(tmp_path, lambda group: group | {"input_activations": ROWS[rows]})
    with pytest.raises(UserError, match="_proj"):
        pipeline.plan(CompileRequest(str(tmp_path)))


def edit_group(folder: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    groups = config["quantization_config"]["config_groups"]
    groups["group_0"] = edit(groups["group_0"])
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("strategy", "named"),
    [("token", r"a scale per token \(int8, fixed\)"), ("tensor", "input_scale is missing")],
)
def test_int8_activations_of_a_fixed_scale_are_those_of_a_tensor(
    strategy: str, named: str, tmp_path: Path
) -> None:
    write_w8a8(tmp_path)
    group = json.loads((tmp_path / "config.json").read_text())["quantization_config"][
        "config_groups"
    ]
    group["group_0"]["input_activations"] |= {"dynamic": False, "strategy": strategy}
    edit_group(tmp_path, lambda _: group["group_0"])
    with pytest.raises(UserError, match=named):
        pipeline.plan(CompileRequest(str(tmp_path)))


def test_two_schemes_for_the_same_layers_are_refused(tmp_path: Path) -> None:
    write_w8a8(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    groups = config["quantization_config"]["config_groups"]
    groups["group_1"] = groups["group_0"] | {"input_activations": ROWS["fixed rows"]}
    path.write_text(json.dumps(config))
    with pytest.raises(
        CheckpointError, match=r"several schemes for model\.layers\.0\.mlp\.down_proj"
    ):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    "other", [{"exclude_modules": ["model.layers.0*"]}, {"kv_cache_quant_algo": "FP8"}]
)
def test_two_files_that_differ_in_anything_are_refused(
    other: dict[str, Any], tmp_path: Path
) -> None:
    folder = write_awq(tmp_path, 32, 32)
    inner = {"quant_algo": "W4A16_AWQ", "group_size": 32, "exclude_modules": ["lm_head"]} | other
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": inner}))
    with pytest.raises(CheckpointError, match="name different quantizations"):
        open_checkpoint(str(folder))


def test_patterns_that_would_take_for_ever_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="too much to be matched safely"):
        Globs(["*a*b*c*d*e*"])
    with pytest.raises(UnsupportedError, match=f"{MAX_GLOBS + 1} patterns"):
        Globs([f"x{index}*" for index in range(MAX_GLOBS + 1)])


def test_a_long_list_of_names_and_patterns_is_matched_at_once() -> None:
    globs = Globs([*(f"layers.{i}.q_proj" for i in range(90_000)), *(f"a{i}*" for i in range(900))])
    started = time.monotonic()
    assert globs.name("layers.70000.q_proj")
    assert not any(globs.name(f"layers.{i}.k_proj") for i in range(500))
    assert time.monotonic() - started < 10
