"""Sizes and durations, read and written."""

import click
import pytest
from click.testing import CliRunner

from builder.cli.sizes import ByteSize, format_bytes, format_duration, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("1048576", 1 << 20),
        ("12b", 12),
        ("1k", 1 << 10),
        ("1g", 1 << 30),
        ("1G", 1 << 30),
        ("512MiB", 512 << 20),
        ("512 mib", 512 << 20),
        ("2GB", 2 * 10**9),
        ("1.5GiB", 3 << 29),
        ("0.5kB", 500),
        ("2TiB", 2 << 40),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "G", "-1", "1e9", "1 GiBs", "1,5G", "0x10", "two", "1XB", "٣"]
)
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["0", "0GiB", "1.5"])
def test_a_size_that_is_no_positive_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number of bytes above zero"):
        parse_bytes(text)


def test_a_wrong_size_on_the_command_line_is_a_usage_error_that_names_the_option() -> None:
    @click.command()
    @click.option("--room", type=ByteSize())
    def command(room: int) -> None:
        click.echo(room)

    assert CliRunner().invoke(command, ["--room", "2k"]).stdout == "2048\n"
    refused = CliRunner().invoke(command, ["--room", "lots"])
    assert refused.exit_code == 2
    assert "--room" in refused.stderr
    assert "'lots' is no size" in refused.stderr


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9994, "9.99 kB"),
        (9995, "10.0 kB"),
        (99_950, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (538_090_000, "538 MB"),
        (139 * 10**9, "139 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_a_size_is_written_with_three_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125.2, "2 min 05 s"),
    ],
)
def test_a_duration_is_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_size_may_be_written_with_a_point_and_never_be_too_long() -> None:
    assert parse_bytes("1048576.0") == 1048576
    for text in ("9" * 400, "9" * 400 + "GB"):
        with pytest.raises(ValueError, match="too large"):
            parse_bytes(text)
