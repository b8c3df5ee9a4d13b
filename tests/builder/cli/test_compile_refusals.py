"""What `builder compile` refuses, in one line, and before any work."""

from pathlib import Path

import pytest

from tests.compiling import compile_, leftovers

SUPPORTED = "which supports --kv float32, bfloat16, int8, and --tp 1"


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--kv", "fp8"], "--kv fp8"),
        (["--tp", "2"], "--tp 2"),
        (["--fp8", "--kv", "fp8", "--tp", "2"], "--kv fp8 and --tp 2"),
    ],
    ids=" ".join,
)
def test_what_later_versions_do_is_refused_by_name_before_the_checkpoint_is_touched(
    flags: list[str], named: str
) -> None:
    result = compile_("no-such-checkpoint", *flags)
    assert result.stderr == f"error: {named}: not in this version, {SUPPORTED}\n"
    assert result.stdout == ""
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--quant", "int9"],
            (
                "unknown format 'int9'. Did you mean int8 or int4 or uint4? Known: fp8, fp8-block, fp8-dynamic, "
                "fp8-weight-only, int4, int4-awq, int8, int8-smoothquant, int8-static, int8-weight-only, mxfp4, none, nvfp4, "
                "nvfp4-weight-only, uint4."
            ),
        ),
        (["--int8", "--quant", "none"], "one format at a time; given int8 and none"),
        (["--target", "cpuu"], "unknown target 'cpuu'. Did you mean cpu?"),
        (["--target", "tensorrt"], "target tensorrt is not implemented yet"),
        (["--dtype", "float16"], "dtype float16"),
        (["--fp8", "--nvfp4"], "one format at a time; given fp8 and nvfp4"),
        (["--nvfp4", "--group", "32"], "format nvfp4 fixes its groups; leave out --group"),
        (["--fp8", "--group", "channel"], "format fp8 fixes its groups; leave out --group"),
        (["--fp8", "--dtype", "bfloat16"], "--dtype bfloat16 does not go with format fp8"),
        (["--group", "64"], "--group goes with a quantization format"),
        (["--group", "channel", "--int4"], "int4 has no groups of a whole channel"),
        (["--dtype", "bfloat16", "--int8"], "--dtype bfloat16 does not go with format int8"),
        (["--target", "portable", "--int8", "--group", "128"], "--group 128; supported: 32, 64"),
        (["--block-size", "7"], "--block-size 7"),
        (["--max-seq-len", "513"], "--max-seq-len 513"),
        (["--kv-cache-bytes", "1k"], "--kv-cache-bytes 1024"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_that_can_not_be_met_is_refused_in_one_line(
    tiny_folder: Path, tmp_path: Path, flags: list[str], message: str
) -> None:
    result = compile_(tiny_folder, "-o", tmp_path / "out", *flags)
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.exit_code == 2
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "flags", [["--tp", "0"], ["--max-seq-len", "x"], ["--group", "48"], ["--calibrate"]]
)
def test_an_option_that_makes_no_sense_is_a_usage_error(flags: list[str]) -> None:
    result = compile_("model", *flags)
    assert result.stderr.startswith("Usage: ")
    assert result.exit_code == 2
