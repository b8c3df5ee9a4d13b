import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from builder.checkpoint.sources.safetensors_file import DTYPES, MAX_HEADER_BYTES, read_safetensors
from builder.errors import CheckpointError, UnsupportedError


def write(path: Path, header: Any, data: bytes = b"", *, length: int | None = None) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + data)
    return path


def entry(begin: int, end: int, **changed: Any) -> dict[str, Any]:
    fields = {
        "dtype": "F32",
        "shape": [(end - begin) // 4],
        "data_offsets": [begin, end],
        **changed,
    }
    return {name: value for name, value in fields.items() if value is not None}


def test_what_the_safetensors_library_writes_is_read_back(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {
        "a": random.standard_normal((3, 5), np.float32),
        "b": random.standard_normal((7,)).astype(np.float16),
        "scalar": np.array(4, np.float32),
        "empty": np.zeros((0, 4), np.float32),
    }
    save_file(weights, tmp_path / "w.safetensors", metadata={"format": "pt"})
    tensors = read_safetensors(tmp_path / "w.safetensors")
    assert tensors.keys() == weights.keys()
    for name, value in weights.items():
        assert tensors[name].shape == value.shape
        assert tensors[name].nbytes_stored == value.nbytes
        np.testing.assert_array_equal(tensors[name].read(), value.astype(np.float32))
        assert tensors[name].read().flags.c_contiguous
    assert (tensors["a"].stored, tensors["b"].stored) == ("float32", "float16")


def test_a_float32_tensor_is_a_read_only_view_of_the_file(tmp_path: Path) -> None:
    save_file({"a": np.ones(4, np.float32)}, tmp_path / "w.safetensors")
    values = read_safetensors(tmp_path / "w.safetensors")["a"].read()
    assert not values.flags.writeable
    assert not values.flags.owndata


@pytest.mark.parametrize("dtype", sorted(DTYPES.keys() - {"F32", "F16", "BF16"}))
def test_other_number_types_open_and_are_refused_when_read(dtype: str, tmp_path: Path) -> None:
    bits, _ = DTYPES[dtype]
    data = bytes(bits)
    path = write(tmp_path / "w", {"a": entry(0, len(data), dtype=dtype, shape=[8])}, data)
    tensor = read_safetensors(path)["a"]
    with pytest.raises(UnsupportedError, match=f"tensor a is stored as {dtype}"):
        tensor.read()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"dtype": "F33"}, "unknown number type 'F33'"),
        ({"dtype": 32}, "unknown number type '32'"),
        ({"dtype": None}, "must have dtype, shape and data_offsets"),
        ({"shape": None}, "must have dtype, shape and data_offsets"),
        ({"more": 1}, "must have dtype, shape and data_offsets"),
        ({"shape": [3]}, "does not fit F32"),
        ({"shape": [-2, -1]}, "not a short list of sizes"),
        ({"shape": [2.0]}, "not a short list of sizes"),
        ({"shape": [True, 2]}, "not a short list of sizes"),
        ({"shape": [1 << 64]}, "not a short list of sizes"),
        ({"shape": [1] * 9}, "not a short list of sizes"),
        ({"shape": 2}, "not a short list of sizes"),
        ({"data_offsets": [8, 0]}, "not a begin and an end"),
        ({"data_offsets": [0]}, "not a begin and an end"),
        ({"data_offsets": ["0", "8"]}, "not a begin and an end"),
        ({"data_offsets": [0, 12], "shape": [3]}, "is truncated"),
        ({"data_offsets": [0, 4], "shape": [1]}, "its tensors end at 4"),
        ({"data_offsets": [4, 8], "shape": [1]}, "leaves a hole"),
    ],
)
def test_a_wrong_header_entry_is_refused_with_the_reason(
    changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "w", {"a": entry(0, 8, **changed)}, bytes(8))
    with pytest.raises((CheckpointError, UnsupportedError), match=reason):
        read_safetensors(path)


def test_tensors_that_overlap_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "w", {"a": entry(0, 8), "b": entry(4, 12)}, bytes(12))
    with pytest.raises(CheckpointError, match=r"tensor 'b' .* overlaps another tensor"):
        read_safetensors(path)


def test_a_tensor_that_appears_twice_is_refused(tmp_path: Path) -> None:
    one = json.dumps(entry(0, 8))
    path = write(tmp_path / "w", f'{{"a": {one}, "a": {one}}}'.encode(), bytes(8))
    with pytest.raises(CheckpointError, match="key 'a' appears twice"):
        read_safetensors(path)


@pytest.mark.parametrize("name", ["", "x" * 600, "a\nb"])
def test_a_name_that_nobody_would_write_is_refused(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "w", {name: entry(0, 8)}, bytes(8))
    with pytest.raises(CheckpointError, match="no name that could be meant") as caught:
        read_safetensors(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (1 << 63, "claims a header"),
        (MAX_HEADER_BYTES + 1, "claims a header"),
        (1000, "is truncated"),
        (3, "JSON"),
    ],
)
def test_a_header_length_that_can_not_be_is_refused(
    length: int, reason: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "w", {"a": entry(0, 8)}, bytes(8), length=length)
    with pytest.raises(CheckpointError, match=reason):
        read_safetensors(path)


def test_a_file_of_a_few_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"abc")
    with pytest.raises(CheckpointError, match="too few for safetensors"):
        read_safetensors(tmp_path / "w")
