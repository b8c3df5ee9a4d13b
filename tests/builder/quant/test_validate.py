"""What is wrong with a weight or its scales is told by the tensor's name, before anything of it is written."""

from pathlib import Path

import numpy as np
import pytest

from builder.checkpoint.rows import FIXED
from builder.errors import BuildError
from builder.quant import FORMATS
from builder.quant.groups import Parts
from builder.quant.validate import check_scales, check_weight, group_peaks
from tests.built import compile_model
from tests.models import tiny_llama

WEIGHT = np.random.default_rng(0).standard_normal((6, 70), dtype=np.float32)


def test_peaks_are_those_of_each_group_the_last_one_shorter() -> None:
    peaks = group_peaks(WEIGHT, 32)
    expected = [np.abs(WEIGHT[:, first : first + 32]).max(axis=1) for first in (0, 32, 64)]
    np.testing.assert_array_equal(peaks, np.stack(expected, axis=1))
    np.testing.assert_array_equal(group_peaks(WEIGHT, 0)[:, 0], np.abs(WEIGHT).max(axis=1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", FORMATS)
def test_a_weight_that_is_no_number_is_told_by_tensor_and_group(name: str, value: float) -> None:
    weight, group = WEIGHT.copy(), FORMATS[name].GROUP
    weight[4, 66] = value
    place = rf"\[4, {66 // group if group else 0}\]"
    with pytest.raises(BuildError, match=rf"^layer\.w holds a NaN or an infinity in group {place}"):
        check_weight("layer.w", weight, group)


@pytest.mark.parametrize("name", FORMATS)
def test_honest_parts_pass(name: str) -> None:
    rules = FORMATS[name]
    check_scales("w", check_weight("w", WEIGHT, rules.GROUP), rules.pack(WEIGHT))


def spoiled(name: str, value: float, index: int = 1) -> tuple[np.ndarray, Parts]:
    """Give the peaks of a weight and its parts, of which one scale has another value."""
    rules = FORMATS[name]
    parts = [part.copy() for part in rules.pack(WEIGHT)]
    parts[index][(5, 0) if parts[index].ndim else ()] = value
    return group_peaks(WEIGHT, rules.GROUP), tuple(parts)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "mxfp4"])
def test_a_scale_of_zero_is_refused_where_the_group_is_not(name: str) -> None:
    with pytest.raises(BuildError, match=r"^w has a scale of 0 for group \[5, 0\], which is not"):
        check_scales("w", *spoiled(name, 0))


@pytest.mark.parametrize("name", FORMATS)
def test_a_scale_that_is_no_number_is_refused(name: str) -> None:
    with pytest.raises(BuildError, match=r"^w has a scale of nan for group \[5, 0\]$"):
        check_scales("w", *spoiled(name, np.nan))


@pytest.mark.parametrize("value", [0, np.inf, np.nan, -1])
def test_a_scale_of_the_tensor_that_can_not_be_is_refused(value: float) -> None:
    with pytest.raises(BuildError, match=rf"^w has a scale of {value:g} for the whole tensor"):
        check_scales("w", *spoiled("nvfp4", value, 2))


def test_a_scale_at_the_ceiling_is_refused_where_a_larger_one_was_needed() -> None:
    peaks, (numbers, scales, whole) = spoiled("nvfp4", 448)
    check_scales("w", peaks, (numbers, scales, whole))  # reaches its group, if coarsely
    with pytest.raises(BuildError, match=r"ceiling of E4M3, 448, for group .*, which needs"):
        check_scales("w", peaks, (numbers, scales, whole * np.float32(0.1)))


@pytest.mark.parametrize(
    "name", [name for name, rules in FORMATS.items() if rules.ROWS not in FIXED]
)
def test_a_format_that_packs_badly_gives_no_artifact_and_one_line(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, value = FORMATS[name], np.nan if name == "mxfp4" else 0
    pack = rules.pack

    def badly(weight: np.ndarray, group: int) -> Parts:
        parts = [part.copy() for part in pack(weight, group)]
        parts[1][2, 0] = value
        return tuple(parts)

    monkeypatch.setattr(rules, "pack", badly)
    model = tiny_llama(tmp_path / "model")
    with pytest.raises(BuildError, match=r"^model\.\S+ has a scale of (0|nan) for group \[2, 0\]"):
        compile_model(model, tmp_path / "out", quant=name)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
