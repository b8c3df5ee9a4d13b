import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from builder.checkpoint.sources.gguf_file import MAX_LIST_LENGTH, read_gguf
from builder.errors import CheckpointError, ForerunError, UnsupportedError
from tests.gguf_file import ARRAY, STRING, Stored, Typed, write_gguf
from tests.models import smollm2_gguf

VALUES = {
    "a.string": "é<|x|>",
    "a.uint": 7,
    "a.int8": Typed(1, -3),
    "a.uint64": Typed(10, 1 << 63),
    "a.float": 0.5,
    "a.double": Typed(12, 0.1),
    "a.bool": True,
    "a.strings": ["", "b", "日本"],
    "a.ints": [1, -2, 3],
    "a.bools": Typed(ARRAY, [True, False], element=7),
    "a.nothing": [],
}
ONE = np.arange(64, dtype=np.float32).reshape(2, 32)


def one_tensor(**changed: object) -> Stored:
    fields = {"kind": 0, "shape": (2, 32), "data": ONE.tobytes(), **changed}
    return Stored(**fields)  # type: ignore[arg-type]


def head(num_tensors: int, num_keys: int, *, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys)


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_of_every_type_is_read(version: int, tmp_path: Path) -> None:
    file = read_gguf(write_gguf(tmp_path / "f", VALUES, {}, version=version))
    assert file.metadata == {k: v.value if isinstance(v, Typed) else v for k, v in VALUES.items()}


def test_tensors_are_found_whatever_their_type(tmp_path: Path) -> None:
    tensors = {
        kind: Stored.from_numbers(ONE, kind) for kind in ("F32", "F16", "BF16", "Q4_0", "Q8_0")
    }
    file = read_gguf(write_gguf(tmp_path / "f", {"general.alignment": 64}, tensors))
    for kind, tensor in file.tensors.items():
        assert tensor.shape == (2, 32)
        assert tensor.type.name == kind
        assert tensor.raw.tobytes() == tensors[kind].data
        assert len(tensor.raw) == 2


@pytest.mark.model
@pytest.mark.slow
def test_the_real_file_is_read_as_the_gguf_package_reads_it() -> None:
    ours, theirs = read_gguf(smollm2_gguf()), gguf.GGUFReader(smollm2_gguf())
    fields = {key: field for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert ours.metadata.keys() == fields.keys()
    for key, field in fields.items():
        if key != "tokenizer.ggml.merges":  # their reader takes seconds to turn it into strings
            assert ours.metadata[key] == field.contents(), key
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert mine.raw.tobytes() == tensor.data.tobytes()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"GG", "the magic needs 4 bytes"),
        (b"GGML" + bytes(40), "does not begin with GGUF"),
        (head(0, 0)[:10], "the number of tensors needs 8 bytes"),
        (head(1 << 60, 0), "claims 1152921504606846976 for the number of tensors"),
        (head(0, 1 << 60), "for the number of metadata keys"),
        (head(0, 1) + struct.pack("<Q", 1 << 62) + bytes(40), "for a metadata key"),
        (head(0, 1) + struct.pack("<Q", 0) + bytes(40), "a metadata key is not a name"),
        (head(0, 1) + struct.pack("<Q", 1) + b"\n" + bytes(40), "a metadata key is not a name"),
        (head(0, 1) + struct.pack("<Q", 1) + b"\xff" + bytes(40), "not UTF-8"),
        (head(0, 1) + struct.pack("<Q1sI", 1, b"k", 99) + bytes(40), "metadata 'k' has type 99"),
        (head(0, 1) + struct.pack("<Q1sIB", 1, b"k", 7, 2) + bytes(40), "has 2 for a bool"),
        (head(0, 1) + struct.pack("<Q1sIQ", 1, b"k", STRING, 1 << 50), "for k"),
        (head(0, 1) + struct.pack("<Q1sIIQ", 1, b"k", ARRAY, ARRAY, 1), "a list of type 9"),
        (head(0, 1) + struct.pack("<Q1sIIQ", 1, b"k", ARRAY, STRING, 1 << 40), "for k"),
        (head(0, 1) + struct.pack("<Q1sIIQ", 1, b"k", ARRAY, 12, 1 << 40), "for k"),
        (
            head(0, 1) + struct.pack("<Q1sIIQQ", 1, b"k", ARRAY, STRING, 1, 9),
            "a string of 'k' reaches past",
        ),
        (
            head(0, 1) + struct.pack("<Q1sIIQQ1s", 1, b"k", ARRAY, STRING, 1, 1, b"\xff"),
            "is not UTF-8",
        ),
    ],
)
def test_a_damaged_header_is_refused_with_the_reason(
    raw: bytes, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(CheckpointError, match=reason) as caught:
        read_gguf(tmp_path / "f")
    assert "\n" not in str(caught.value)


def test_a_list_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    raw = head(0, 1) + struct.pack("<Q1sIIQ", 1, b"k", ARRAY, 0, MAX_LIST_LENGTH + 1)
    (tmp_path / "f").write_bytes(raw + bytes(MAX_LIST_LENGTH + 1))
    with pytest.raises(CheckpointError, match=f"at most {MAX_LIST_LENGTH} are allowed"):
        read_gguf(tmp_path / "f")


@pytest.mark.parametrize(
    ("version", "reason"), [(1, "version 1"), (4, "version 4"), (3 << 24, "big-endian")]
)
def test_other_versions_and_byte_orders_are_refused_by_name(
    version: int, reason: str, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "f", {}, {}, version=version)
    with pytest.raises(UnsupportedError, match=f"{reason} GGUF files are not supported"):
        read_gguf(tmp_path / "f")


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (one_tensor(shape=()), "has 0 dimensions"),
        (one_tensor(shape=(1,) * 5), "has 5 dimensions"),
        (one_tensor(shape=(0, 32)), "is empty"),
        (one_tensor(shape=(3, 32)), "ends at 384 of the data, which has 256"),
        (one_tensor(shape=(1 << 60, 1 << 60)), "ends at"),
        (one_tensor(shape=(1, 32)), "128 bytes follow the last tensor"),
        (one_tensor(kind=2, shape=(2, 31)), "not whole Q4_0 blocks"),
        (one_tensor(kind=4), "has type number 4; known: .*Q4_0"),
    ],
)
def test_a_tensor_that_can_not_be_is_refused(tensor: Stored, reason: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "f", {}, {"t": tensor})
    with pytest.raises((CheckpointError, UnsupportedError), match=reason):
        read_gguf(tmp_path / "f")


def test_tensors_must_follow_each_other(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "f", {}, {"t": one_tensor(), "u": one_tensor()})
    raw = path.read_bytes()
    at = raw.rindex(struct.pack("<IQ", 0, 256))  # type and offset of the second tensor
    for offset in (0, 224, 288):
        path.write_bytes(raw[:at] + struct.pack("<IQ", 0, offset) + raw[at + 12 :])
        with pytest.raises(CheckpointError, match=r"tensor '[tu]' is at \d+ of the data, not \d+"):
            read_gguf(path)


def test_keys_and_tensors_appear_once(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "f", {"aaa": 1, "bbb": 2}, {"ttt": one_tensor(), "uuu": one_tensor()}
    )
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"bbb", b"aaa"))
    with pytest.raises(CheckpointError, match="metadata key 'aaa' appears twice"):
        read_gguf(path)
    path.write_bytes(raw.replace(b"uuu", b"ttt"))
    with pytest.raises(CheckpointError, match="tensor 'ttt' appears twice"):
        read_gguf(path)


@pytest.mark.parametrize("alignment", [0, 3, -32, 1 << 30, "32", 1.5])
def test_an_alignment_that_is_no_power_of_two_is_refused(alignment: object, tmp_path: Path) -> None:
    value = Typed(5, alignment) if type(alignment) is int else alignment
    raw = (
        head(0, 1) + write_gguf(tmp_path / "g", {"general.alignmen_": value}, {}).read_bytes()[24:]
    )
    (tmp_path / "f").write_bytes(raw.replace(b"alignmen_", b"alignment"))
    with pytest.raises(CheckpointError, match="not a power of two"):
        read_gguf(tmp_path / "f")


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "f", VALUES, {"t": one_tensor(), "u": one_tensor()})
    raw = path.read_bytes()
    for size in range(0, len(raw), 7):
        path.write_bytes(raw[:size])
        with pytest.raises(ForerunError):
            read_gguf(path)
