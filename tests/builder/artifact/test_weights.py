"""Weight files: what is written is what other programs read."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from builder.artifact.weights import WeightSpec, write_weights

ARRAYS = {
    "a": np.arange(15, dtype=np.float32).reshape(3, 5),
    "b": np.arange(7, dtype=np.uint8),
    "c.scale": np.float32([[1.5]]),
    "d": np.int8([-1, 2]),
}
NAMES = {"float32": "F32", "uint8": "U8", "int8": "I8"}


def specs() -> list[WeightSpec]:
    return [
        WeightSpec(name, NAMES[array.dtype.name], array.shape, lambda array=array: array)
        for name, array in ARRAYS.items()
    ]


def test_the_safetensors_library_reads_the_file(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.safetensors", specs())
    loaded = load_file(tmp_path / "w.safetensors")
    assert sorted(loaded) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype


def test_every_tensor_begins_at_an_offset_aligned_to_its_elements_that_the_writer_reports(
    tmp_path: Path,
) -> None:
    path = tmp_path / "w.safetensors"
    ranges = write_weights(path, specs())
    data = path.read_bytes()
    for name, (offset, length) in ranges.items():
        assert offset % ARRAYS[name].itemsize == 0
        assert data[offset : offset + length] == ARRAYS[name].tobytes()


def test_progress_adds_up_to_the_bytes_of_the_numbers(tmp_path: Path) -> None:
    seen: list[int] = []
    write_weights(tmp_path / "w.safetensors", specs(), seen.append)
    assert sum(seen) == sum(array.nbytes for array in ARRAYS.values())


def test_tensors_are_read_one_at_a_time_in_order(tmp_path: Path) -> None:
    order: list[str] = []

    def read(name: str) -> np.ndarray:
        order.append(name)
        return np.zeros(4, np.float32)

    lazy = [WeightSpec(name, "F32", (4,), lambda name=name: read(name)) for name in "xyz"]
    write_weights(tmp_path / "w.safetensors", lazy)
    assert order == ["x", "y", "z"]
