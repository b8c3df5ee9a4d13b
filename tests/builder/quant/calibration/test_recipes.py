"""Recipes: groups that divide a model's layers, and a name for every format that is calibrated."""

import pytest

from builder.errors import UnsupportedError
from builder.quant import recipes
from builder.quant.calibration import requirements
from builder.quant.calibration.recipes import RECIPES, group_for
from builder.quant.calibration.requirements import UNCALIBRATED, check_installed


@pytest.mark.parametrize(
    ("sizes", "group"),
    [((512, 1024), 128), ((576, 1536), 64), ((96, 64), 32)],
)
def test_the_largest_group_that_divides_all_inputs_is_taken(
    sizes: tuple[int, ...], group: int
) -> None:
    assert group_for("int4-awq", sizes) == group


def test_inputs_that_no_group_divides_are_named() -> None:
    with pytest.raises(UnsupportedError, match=r"layers of 80, 96 inputs; --int4"):
        group_for("int4-awq", (96, 80))


def test_a_group_that_is_asked_for_is_taken_or_refused() -> None:
    assert group_for("int4-awq", (128, 64), 32) == 32
    with pytest.raises(UnsupportedError, match="int4-awq in groups of a whole channel"):
        group_for("int4-awq", (128, 64), 0)


def test_a_format_that_fixes_its_groups_has_none_to_choose() -> None:
    assert group_for("fp8", (80,)) == 0


def test_without_the_extra_a_calibrated_format_is_refused_with_one_that_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requirements, "LIBRARIES", ("torch", "no_such_library"))
    with pytest.raises(UnsupportedError) as caught:
        check_installed("fp8")
    assert 'needs no_such_library: pip install "forerun[quant]"' in str(caught.value)
    assert "--quant fp8-dynamic" in str(caught.value)
    check_installed("int8")


def test_every_calibrated_format_has_a_neighbour_that_is_not() -> None:
    assert UNCALIBRATED.keys() == RECIPES.keys() == recipes.RECIPES.keys()
    assert not set(UNCALIBRATED.values()) & set(RECIPES)
