"""Formats and keys and values that a GPU target can't run are refused by name, with what can."""

import pytest
from click.testing import CliRunner

from builder.cli.main import main
from builder.errors import UnsupportedError
from builder.quant import FORMATS
from builder.quant.hardware import MACHINES, capabilities_for, check_hardware, places_of
from builder.quant.recipes import RECIPES
from tests.compiling import compile_


def test_fp8_needs_sm89_on_every_gpu_target() -> None:
    assert capabilities_for("fp8", "tensorrt") == (89, 90, 100, 103, 120, 121)
    assert capabilities_for("fp8", "tensorrt-rtx") == (89, 120, 121)


def test_nvfp4_needs_blackwell() -> None:
    assert capabilities_for("nvfp4", "tensorrt") == (100, 103, 120, 121)
    assert capabilities_for("nvfp4", "tensorrt-rtx") == (120, 121)


@pytest.mark.parametrize("quant", ["int4", "int8"])
def test_integers_need_sm80(quant: str) -> None:
    assert capabilities_for(quant, "tensorrt-rtx") == (80, 86, 89, 120, 121)


@pytest.mark.parametrize("quant", ["uint4", "mxfp4"])
@pytest.mark.parametrize("target", MACHINES)
def test_zero_points_and_scales_of_e8m0_run_on_no_gpu(quant: str, target: str) -> None:
    assert capabilities_for(quant, target) == ()
    with pytest.raises(UnsupportedError, match=f"can't run format {quant}.*runs on cpu"):
        check_hardware([target], quant, None)


@pytest.mark.parametrize(
    ("target", "quant", "kv", "message"),
    [
        (
            "tensorrt:sm80",
            "fp8",
            None,
            r"sm80 can't run format fp8; it runs none, int8, .*; fp8 runs on .*, tensorrt:sm89\+, tensorrt-rtx:sm89\+$",
        ),
        (
            "tensorrt-rtx:sm89",
            "nvfp4",
            None,
            r"; nvfp4 runs on .*tensorrt:sm100\+, tensorrt-rtx:sm120\+$",
        ),
        ("tensorrt-rtx:sm75", "int8", None, r"it runs none; int8 runs on cpu"),
        (
            "tensorrt-rtx",
            "fp8",
            "fp8",
            r"keys and values in fp8; supported: float32, bfloat16; .* target tensorrt$",
        ),
        (
            "tensorrt-rtx:sm90",
            "none",
            None,
            r"for sm90; supported: sm75, .*, sm121; or use tensorrt:sm90$",
        ),
        ("tensorrt:banana", "none", None, r"nothing for banana; supported: sm80, .*, sm121$"),
    ],
)
def test_what_can_not_run_is_refused_with_what_can(
    target: str, quant: str, kv: str | None, message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        check_hardware(["cpu", target], quant, kv)


@pytest.mark.parametrize(
    ("target", "quant", "kv"),
    [
        ("tensorrt:sm90", "fp8", "fp8"),
        ("tensorrt-rtx:sm120", "nvfp4", "bfloat16"),
        ("tensorrt", "nvfp4", None),
        ("cpu", "mxfp4", "int8"),
        ("elsewhere:sm80", "fp8", None),
    ],
)
def test_what_can_run_and_other_targets_pass(target: str, quant: str, kv: str | None) -> None:
    check_hardware([target], quant, kv)


def test_the_command_line_refuses_before_it_looks_at_the_checkpoint() -> None:
    result = compile_("no-such-checkpoint", "--fp8", "--target", "tensorrt:sm80")
    assert result.stderr.startswith(
        "error: target tensorrt:sm80 can't run format fp8; it runs none, "
    )
    assert (result.stderr.count("\n"), result.exit_code) == (1, 2)
    able = compile_("no-such-checkpoint", "--fp8", "--target", "tensorrt:sm89")
    assert "target tensorrt:sm89 is not implemented yet" in able.stderr


def test_help_names_the_targets_of_every_format() -> None:
    shown = CliRunner().invoke(main, ["compile", "--help"], terminal_width=120).stdout
    for quant in FORMATS:
        (line,) = (line for line in shown.splitlines() if line.split()[:1] == [quant])
        assert line.endswith(f" {places_of(quant)}")
        is_calibrated = quant in RECIPES
        assert ("calibrated" in line) == is_calibrated
