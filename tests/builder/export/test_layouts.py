"""What a layout writes for a format is what the importer of that layout reads, and what torch makes of it: the same numbers."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from builder.artifact.weights import write_weights
from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.rows import FIXED, RowScales
from builder.errors import UnsupportedError
from builder.export import block_fp8, modelopt
from builder.export.folder import plan_export
from builder.export.layouts import LAYOUTS, SMOOTHED, layout_of, specs_of
from builder.quant import FORMATS
from builder.quant.imported import format_of
from builder.targets.held import HeldWeight
from tests.builder.export.exporting import export
from tests.built import compile_model
from tests.models import tiny_llama

SUFFIX = "_proj.weight"


FIXED_SCALE = np.float32(0.013)


def held(folder: Path, precision: str, *, is_smoothed: bool = False) -> list[HeldWeight]:
    """Quantize the linear layers of a tiny model; the rest stays float."""
    found = []
    for name, numbers in load_file(folder / "model.safetensors").items():
        kind, group, parts, rows = "float32", 0, (numbers,), RowScales()
        if name.endswith(SUFFIX):
            kind, group = precision, FORMATS[precision].GROUP
            parts, rows = FORMATS[precision].pack(numbers, group), fixed_rows(precision)
            if is_smoothed and "down_proj" in name:
                factors = np.linspace(0.5, 2, numbers.shape[1], dtype=np.float32)
                rows = RowScales(rows.fixed, lambda factors=factors: factors)
        found.append(HeldWeight(name, kind, group, numbers.shape, lambda parts=parts: parts, rows))
    return found


def fixed_rows(precision: str) -> RowScales:
    has_scale = FORMATS[precision].ROWS in FIXED
    return RowScales((lambda: np.array(FIXED_SCALE)) if has_scale else None)


def write(folder: Path, weights: list[HeldWeight]) -> Any:
    """Put weights in the place of a folder's own."""
    layout = layout_of(weights)
    assert layout is not None
    specs = [spec for weight in weights for spec in specs_of(weight, layout)]
    write_weights(folder / "model.safetensors", specs, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    linear = [one for one in weights if len(one.shape) == 2 and "embed" not in one.name]
    section = config["quantization_config"] = layout.section(linear)
    (folder / "config.json").write_text(json.dumps(config))
    if section["quant_method"] == "modelopt":
        (folder / modelopt.FILE_NAME).write_text(json.dumps(modelopt.own_file(section)))
    return section


CASES = [(name, False) for name in LAYOUTS] + [(name, True) for name in SMOOTHED]


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize(("precision", "is_smoothed"), CASES)
def test_the_importer_reads_the_same_parts_of_the_same_format(
    precision: str, is_smoothed: bool, untied: bool, tmp_path: Path
) -> None:
    model = tiny_llama(tmp_path / "m", tie_word_embeddings=not untied)
    weights = held(model, precision, is_smoothed=is_smoothed)
    write(model, weights)
    opened = open_checkpoint(str(model))
    assert len(opened.quantized) == 14
    for weight in weights:
        if weight.precision not in FORMATS:
            assert np.array_equal(opened.tensors[weight.name].read(), weight.read()[0])
            continue
        found = opened.quantized[weight.name]
        assert format_of(found, opened.method) == precision
        assert found.group == weight.group
        for part, expected in zip(found.read(), weight.read(), strict=True):
            assert np.array_equal(part.astype(np.float32), expected.astype(np.float32))
        same_rows(found.row_scales, weight.rows)


def same_rows(found: RowScales, expected: RowScales) -> None:
    for name in ("fixed", "factors"):
        read, wanted = getattr(found, name), getattr(expected, name)
        assert (read is None) == (wanted is None)
        assert read is None or np.array_equal(read(), wanted())


@pytest.mark.parametrize("precision", ["fp8-dynamic", "fp8-weight-only"])
def test_torch_dequantizes_fp8_to_our_own_weights(precision: str, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m")
    weights = held(model, precision)
    write(model, weights)
    with safe_open(model / "model.safetensors", "pt") as stored:
        assert stored.metadata() == {"format": "pt"}
        for weight in weights:
            if weight.precision not in FORMATS:
                continue
            numbers, scale = (stored.get_tensor(f"{weight.name}{s}") for s in ("", "_scale"))
            assert numbers.dtype == torch.float8_e4m3fn
            theirs = numbers.float() * scale.reshape(-1, 1)
            ours = FORMATS[precision].unpack(*weight.read(), weight.group)
            assert np.array_equal(theirs.numpy(), ours)


def test_a_pair_of_nvfp4_numbers_has_the_first_in_its_lower_half(tmp_path: Path) -> None:
    numbers = np.zeros((1, 16), ml_dtypes.float4_e2m1fn)
    numbers[0, :2] = [0.5, -6]
    scales = np.ones((1, 1), ml_dtypes.float8_e4m3fn)
    weight = HeldWeight(
        "w", "nvfp4-weight-only", 16, (1, 16), lambda: (numbers, scales, np.float32(2))
    )
    packed, scale, whole = (spec.read() for spec in modelopt.nvfp4(weight))
    assert packed.tolist() == [[0xF1, 0, 0, 0, 0, 0, 0, 0]]
    assert scale.tolist() == [[0x38]]
    assert whole == 2


def test_nvfp4_of_a_row_that_is_no_whole_number_of_groups_is_refused() -> None:
    weight = HeldWeight("w.weight", "nvfp4-weight-only", 16, (4, 20), tuple)
    with pytest.raises(UnsupportedError, match=r"w\.weight has 20 inputs, not a multiple of 16"):
        modelopt.nvfp4(weight)


def test_a_format_without_a_layout_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(
        UnsupportedError, match=r"in mxfp4, which no layout .* float32, bfloat16, int8, .*nvfp4"
    ):
        layout_of([HeldWeight("w", "mxfp4", 32, (4, 32), tuple)])


def test_rows_that_are_multiplied_first_are_never_dropped() -> None:
    rows = RowScales(None, lambda: np.ones(32, np.float32))
    weights = [
        HeldWeight("a", "uint4", 32, (4, 32), tuple),
        HeldWeight("b", "uint4", 32, (4, 32), tuple, rows),
    ]
    with pytest.raises(
        UnsupportedError,
        match=r"in uint4 with rows .* can be int8-static, int4 with such rows",
    ):
        layout_of(weights)


def test_awq_of_odd_sizes_or_several_groups_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="an even number of outputs and whole groups"):
        modelopt.awq(HeldWeight("w.weight", "int4", 32, (4, 80), tuple))
    mixed = [HeldWeight("w", "int4", group, (4, 128), tuple) for group in (32, 64)]
    with pytest.raises(UnsupportedError, match="in groups of 32 and 64"):
        modelopt.awq_section(mixed)


def test_scales_that_a_layout_has_no_place_for_are_refused_when_they_are_read() -> None:
    scales = np.ones((200, 1), np.float32)
    scales[150:] = 2
    parts = (np.zeros((200, 16), ml_dtypes.float8_e4m3fn), scales)
    weight = HeldWeight("w.weight", "fp8", 0, (200, 16), lambda: parts, fixed_rows("fp8"))
    with pytest.raises(UnsupportedError, match=r"w\.weight has more scales than one for each 200"):
        modelopt.fp8(weight)[1].read()
    with pytest.raises(UnsupportedError, match=r"more scales than one for each 128 outputs"):
        block_fp8.blocks(weight)[1].read()


def test_formats_of_two_layouts_are_refused_together() -> None:
    mixed = [
        HeldWeight("a", "int4", 32, (4, 32), tuple),
        HeldWeight("b", "fp8-dynamic", 0, (4, 32), tuple),
    ]
    with pytest.raises(
        UnsupportedError, match=r"int4 \(compressed-tensors .*\) and fp8-dynamic \(modelopt"
    ):
        layout_of(mixed)


def test_the_head_of_another_format_is_a_scheme_of_its_own(tmp_path: Path) -> None:
    artifact = compile_model(tiny_llama(tmp_path / "m"), tmp_path / "a", quant="int4")
    plan = plan_export(artifact, None)
    section = plan.config["quantization_config"]
    first, second = section["config_groups"].values()
    assert (first["targets"], first["weights"]["num_bits"]) == (["Linear"], 4)
    assert (second["targets"], second["weights"]["num_bits"]) == (["lm_head"], 8)
    assert section["ignore"] == []
    assert plan.config["tie_word_embeddings"] is False


def test_a_float_head_is_on_the_list_of_what_is_left_out(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m", tie_word_embeddings=False)
    sections = [write(model, held(model, "fp8-dynamic"))]
    assert sections[0]["ignore"] == ["lm_head"]
    assert json.loads((model / modelopt.FILE_NAME).read_text()) == {
        "producer": sections[0]["producer"],
        "quantization": {
            "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN",
            "kv_cache_quant_algo": None,
            "exclude_modules": ["lm_head"],
        },
    }


def test_a_flipped_sign_of_an_exported_scale_is_found(tmp_path: Path) -> None:
    """That the round trips can fail: one number altered in the file is another model, or refused."""
    artifact = compile_model(tiny_llama(tmp_path / "m"), tmp_path / "a", quant="int8")
    folder = export(artifact, tmp_path / "out")
    stored = load_file(folder / "model.safetensors")
    stored["model.layers.0.mlp.up_proj.weight_scale"][0, 0] *= -1
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    opened = open_checkpoint(str(folder))
    with pytest.raises(Exception, match="negative scale"):
        opened.quantized["model.layers.0.mlp.up_proj.weight"].read()
