"""Recipes: groups that divide a model's layers, names for people, and a way out where calibration is not possible."""

import pytest

from builder.errors import UnsupportedError
from builder.gate.thresholds import DEFAULTS
from builder.quant import FORMATS
from builder.quant.calibration import requirements
from builder.quant.calibration.requirements import check_installed
from builder.quant.recipes import RECIPES, group_for, label_for, number_formats, refuse_unscaled


@pytest.mark.parametrize(
    ("sizes", "group"),
    [((512, 1024), 128), ((576, 1536), 64), ((96, 64), 32)],
)
def test_the_largest_group_that_divides_all_inputs_is_taken(
    sizes: tuple[int, ...], group: int
) -> None:
    assert group_for("int4-awq", sizes, None) == group


def test_inputs_that_no_group_divides_are_named() -> None:
    with pytest.raises(UnsupportedError, match=r"layers of 80, 96 inputs; --int4"):
        group_for("int4-awq", (96, 80), None)


def test_a_group_that_is_asked_for_is_taken_or_refused() -> None:
    assert group_for("int4-awq", (128, 64), 32) == 32
    with pytest.raises(UnsupportedError, match="int4-awq in groups of a whole channel"):
        group_for("int4-awq", (128, 64), 0)


def test_a_format_that_fixes_its_groups_has_none_to_choose() -> None:
    assert group_for("fp8", (80,), None) is None


def test_a_name_says_the_group_where_there_is_a_choice() -> None:
    assert label_for("int4-awq", 64, None) == "int4-awq-g64"
    assert label_for("int8-smoothquant", 0, None) == "int8-smoothquant"
    assert label_for("auto", 0, 6) == "auto-6.0-bits"


def test_without_the_extra_a_calibrated_format_is_refused_with_one_that_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requirements, "LIBRARIES", ("torch", "no_such_library"))
    with pytest.raises(UnsupportedError) as caught:
        check_installed("fp8")
    assert (
        'needs no_such_library: run scripts/install quant in a checkout, or pip install "forerun[quant]"'
        in str(caught.value)
    )
    assert "--quant fp8-dynamic" in str(caught.value)
    check_installed("int8")


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_calibrated_has_a_format_a_gate_and_a_neighbour_that_is_not(name: str) -> None:
    recipe = RECIPES[name]
    assert set(recipe.configs) <= set(FORMATS)
    assert recipe.instead in FORMATS
    assert recipe.instead not in RECIPES
    assert name in DEFAULTS


@pytest.mark.parametrize("name", ["none", *FORMATS, *RECIPES])
def test_fixed_scales_come_from_a_recipe_or_are_refused_with_one(name: str) -> None:
    if name != "int8-static":
        refuse_unscaled(name)
        assert set(number_formats(name)) <= {"none", *FORMATS}
        return
    with pytest.raises(UnsupportedError, match=r"int8-static .* --quant int8-smoothquant calibr"):
        refuse_unscaled(name)
