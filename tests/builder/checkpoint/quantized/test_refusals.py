"""What is damaged, contradicts itself or asks for what is not implemented is refused in one line that names it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder.checkpoint.open import open_checkpoint
from builder.errors import CheckpointError, UnsupportedError
from tests.models import tiny_llama
from tests.quantized import Written, write_awq, write_gptq, write_packed, write_w8a8

LAYER = "model.layers.1.mlp.up_proj"
WRITERS: dict[str, Callable[[Path], dict[str, Written]]] = {
    "gptq": lambda p: write_gptq(p, symmetric=False, order=lambda n: np.arange(n) // 32),
    "awq": write_awq,
    "packed": lambda p: write_packed(p, symmetric=False),
    "w8a8": write_w8a8,
}
PARTS = [
    ("gptq", "qweight"), ("gptq", "qzeros"), ("gptq", "scales"), ("awq", "qweight"), ("awq", "qzeros"),
    ("awq", "scales"), ("packed", "weight_packed"), ("packed", "weight_scale"), ("packed", "weight_zero_point"),
    ("packed", "weight_shape"), ("w8a8", "weight"), ("w8a8", "weight_scale"),
]  # fmt: skip


def change(folder: Path, **changed: Any) -> None:
    """Change tensors of one layer; None drops one."""
    path = folder / "model.safetensors"
    arrays: dict[str, Any] = load_file(path) | {f"{LAYER}.{k}": v for k, v in changed.items()}
    save_file({name: value for name, value in arrays.items() if value is not None}, path)


def configure(folder: Path, **changed: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= changed
    path.write_text(json.dumps(config))


def stored(folder: Path, part: str) -> Any:
    return load_file(folder / "model.safetensors")[f"{LAYER}.{part}"].copy()


def read_all(folder: Path) -> None:
    for tensor in open_checkpoint(str(folder)).tensors.values():
        tensor.read()


@pytest.mark.parametrize(("writer", "part"), PARTS)
def test_a_part_that_is_missing_is_named(writer: str, part: str, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path)
    change(tmp_path, **{part: None})
    with pytest.raises(
        CheckpointError, match=rf"{LAYER}.*tensor {LAYER}\.{part} is missing"
    ) as told:
        read_all(tmp_path)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("writer", "part"), PARTS)
def test_a_part_of_another_shape_is_named(writer: str, part: str, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path)
    value = stored(tmp_path, part)
    change(tmp_path, **{part: value[: len(value) // 2]})
    with pytest.raises(CheckpointError, match=rf"{LAYER}\.\w+"):
        read_all(tmp_path)


@pytest.mark.parametrize(("writer", "part"), PARTS)
def test_a_part_of_another_type_is_named(writer: str, part: str, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path)
    change(tmp_path, **{part: stored(tmp_path, part).astype(np.uint16)})
    with pytest.raises(CheckpointError, match=rf"{LAYER}"):
        read_all(tmp_path)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.nan, "infinite or no number"),
        (np.inf, "infinite or no number"),
        (0, "scale of 0"),
        (-0.5, "negative scale"),
    ],
)
@pytest.mark.parametrize(("writer", "part"), [each for each in PARTS if "scale" in each[1]])
def test_a_scale_that_is_none_is_refused(
    writer: str, part: str, value: float, named: str, tmp_path: Path
) -> None:
    WRITERS[writer](tmp_path)
    scales = stored(tmp_path, part)
    scales.flat[-1] = value
    change(tmp_path, **{part: scales})
    with pytest.raises(CheckpointError, match=rf"tensor {LAYER}\.weight has a.*{named}"):
        read_all(tmp_path)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_layer_that_must_be_quantized_and_is_not_is_named(writer: str, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path)
    path = tmp_path / "model.safetensors"
    arrays = {k: v for k, v in load_file(path).items() if not k.startswith(LAYER)}
    arrays[f"{LAYER}.weight"] = np.ones((96, 64), np.float32)
    save_file(arrays, path)
    with pytest.raises(
        CheckpointError, match=rf"{LAYER}\.weight is float32, but quantization_config"
    ):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("writer", "listed"),
    [
        ("awq", {"modules_to_not_convert": ["up_proj"]}),
        ("packed", {"ignore": ["lm_head", LAYER]}),
        ("packed", {"ignore": ["re:.*up_proj$"]}),
        ("packed", {"ignore": ["Linear"]}),
        ("gptq", {"modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.gate_proj"]]}),
    ],
)
def test_a_layer_that_is_excluded_and_quantized_is_named(
    writer: str, listed: dict[str, Any], tmp_path: Path
) -> None:
    WRITERS[writer](tmp_path)
    configure(tmp_path, **listed)
    with pytest.raises(CheckpointError, match=r"_proj is quantized, but quantization_config says"):
        open_checkpoint(str(tmp_path))


def test_a_name_that_is_too_long_for_patterns_is_refused(tmp_path: Path) -> None:
    write_packed(tmp_path)
    configure(tmp_path, ignore=["re:.*a.*a.*b"])
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | {f"{'a' * 200}.weight": np.ones((2, 2), np.float32)}, path)
    with pytest.raises(UnsupportedError, match=r"a name of more than 128 letters"):
        open_checkpoint(str(tmp_path))


def test_a_scale_that_makes_numbers_infinite_is_refused(tmp_path: Path) -> None:
    write_packed(tmp_path)
    scales = stored(tmp_path, "weight_scale").astype(np.float32)
    scales.flat[-1] = 1e38
    change(tmp_path, weight_scale=scales)
    with pytest.raises(CheckpointError, match=rf"tensor {LAYER}\.weight has a scale of 1e\+38"):
        read_all(tmp_path)


def test_a_weight_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    write_gptq(tmp_path)
    change(tmp_path, weight=np.ones((96, 64), np.float32))
    with pytest.raises(
        CheckpointError, match=rf"{LAYER}\.weight is there both quantized and as float32"
    ):
        open_checkpoint(str(tmp_path))


def test_groups_of_unequal_sizes_are_refused_with_the_remedy(tmp_path: Path) -> None:
    def unequal(size_in: int) -> Any:
        return np.where(np.arange(size_in) < 30, 0, 1)

    for number, write in enumerate((write_gptq, write_packed)):
        write(tmp_path / str(number), order=unequal, intermediate_size=64)
        with pytest.raises(
            UnsupportedError, match=r"g_idx: its groups are not of 32 inputs each.*desc_act false"
        ):
            open_checkpoint(str(tmp_path / str(number)))


@pytest.mark.parametrize("index", [-1, 3, 1 << 30])
def test_a_group_that_does_not_exist_is_refused(index: int, tmp_path: Path) -> None:
    WRITERS["gptq"](tmp_path)
    named = stored(tmp_path, "g_idx")
    named[0] = index
    change(tmp_path, g_idx=named)
    with pytest.raises(CheckpointError, match=rf"tensor {LAYER}\.g_idx names group"):
        open_checkpoint(str(tmp_path))


def test_zero_points_that_programs_read_differently_are_refused(tmp_path: Path) -> None:
    write_gptq(tmp_path, symmetric=False)
    change(tmp_path, qzeros=stored(tmp_path, "qzeros") | np.int32(15))
    with pytest.raises(UnsupportedError, match=rf"{LAYER}\.qzeros has .*; save .* as gptq_v2"):
        read_all(tmp_path)


def test_symmetric_numbers_with_zero_points_are_refused(tmp_path: Path) -> None:
    write_gptq(tmp_path / "a")
    change(tmp_path / "a", qzeros=stored(tmp_path / "a", "qzeros") + np.int32(1))
    with pytest.raises(CheckpointError, match=rf"{LAYER}\.qzeros has zero points that are not 8"):
        read_all(tmp_path / "a")
    write_w8a8(tmp_path / "b")
    change(tmp_path / "b", weight_zero_point=np.ones((96, 1), np.int8))
    with pytest.raises(CheckpointError, match=rf"{LAYER}\.weight_zero_point .* says symmetric"):
        read_all(tmp_path / "b")


WEIGHTS = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}


def one_group(**weights: Any) -> dict[str, Any]:
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS | weights}}}


@pytest.mark.parametrize(
    ("writer", "changed", "named"),
    [
        ("gptq", {"bits": 3}, "bits 3 is not supported; supported: 4, 8"),
        ("gptq", {"bits": True}, "bits True is not supported"),
        ("gptq", {"bits": 8}, "sym with 8 bits False"),
        ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format marlin"),
        ("gptq", {"format": "gptq_v2"}, "checkpoint_format and format contradict"),
        ("gptq", {"dynamic": {"-:.*down.*": {}}}, "dynamic is .* not supported"),
        ("gptq", {"group_size": "128"}, "group_size is 128, which is no group size"),
        ("gptq", {"group_size": -5}, "group_size is -5"),
        ("gptq", {"surprise": 1}, "surprise not known; nothing of it is ignored"),
        ("gptq", {"modules_in_block_to_quantize": [[1]]}, "no list of names"),
        ("awq", {"version": "gemv"}, "version gemv is not supported; supported: gemm"),
        ("awq", {"zero_point": False}, "zero_point False"),
        ("awq", {"modules_to_not_convert": "lm_head"}, "no list of names"),
        ("packed", {"format": "marlin-24"}, "format marlin-24"),
        ("packed", {"config_groups": {}}, "config_groups is {}"),
        ("packed", {"config_groups": {"group_0": 1}}, "group_0 is 1, not an object"),
        ("packed", {"kv_cache_scheme": {"num_bits": 8}}, "0.self_attn.k_proj.k_scale is missing"),
        ("packed", {"kv_cache_scheme": {"num_bits": 4}}, "kv_cache_scheme: num_bits 4"),
        (
            "packed",
            {"kv_cache_scheme": "NVFP4"},
            "kv_cache_scheme nvfp4 is not supported; .* fp8, int8",
        ),
        ("packed", {"sparsity_config": {"format": "sparse-24"}}, "sparsity_config is"),
        ("packed", {"transform_config": {"R1": {}}}, "transform_config is"),
        ("packed", {"quantization_status": "frozen"}, "quantization_status frozen"),
        ("packed", {"ignore": ["re:(a+)+$"]}, "too involved to be matched safely"),
        ("packed", {"ignore": ["re:["]}, "no regular expression"),
        ("packed", {"ignore": ["re:.*a.*a.*a.*a.*b"]}, "too involved to be matched safely"),
        ("packed", one_group(num_bits=8, symmetric=False), "pack-quantized int8 with zero points"),
        ("packed", one_group(num_bits=2), "num_bits 2"),
        ("packed", one_group(type="float"), "pack-quantized float4 by group"),
        ("packed", one_group(dynamic=True), "dynamic True"),
        ("packed", one_group(strategy="attn_head"), "strategy attn_head"),
    ],
)
def test_what_a_config_asks_for_in_vain_is_named(
    writer: str, changed: dict[str, Any], named: str, tmp_path: Path
) -> None:
    WRITERS[writer](tmp_path)
    configure(tmp_path, **changed)
    with pytest.raises((CheckpointError, UnsupportedError), match=named):
        open_checkpoint(str(tmp_path))


def test_an_unknown_method_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, quantization_config={"quant_method": "gptx"})
    with pytest.raises(UnsupportedError, match=r"'gptx'.*Did you mean gptq"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("section", "named"),
    [
        (3, "is 3, not an object"),
        ({}, "has no quant_method"),
        ({"quant_method": 1}, "has no quant"),
    ],
)
def test_a_config_that_names_no_method_is_refused(section: Any, named: str, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, quantization_config=section)
    with pytest.raises(CheckpointError, match=named):
        open_checkpoint(str(folder))


def test_a_float_checkpoint_that_says_it_is_quantized_is_refused(tmp_path: Path) -> None:
    folder = tiny_llama(
        tmp_path, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 32}
    )
    with pytest.raises(CheckpointError, match="contradict each other"):
        open_checkpoint(str(folder))


def test_two_files_that_name_different_quantizations_are_refused(tmp_path: Path) -> None:
    write_gptq(tmp_path)
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    with pytest.raises(CheckpointError, match="name different quantizations"):
        open_checkpoint(str(tmp_path))
