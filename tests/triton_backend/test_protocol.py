"""Tensors are read by their table, whatever arrives; Triton is not trusted to have checked them."""

from typing import Any

import numpy as np
import pytest

from builder.errors import RequestError
from triton_backend.protocol import Array, Inputs, Tensor, floats, integers, strings

TABLE = (
    Tensor("text", "STRING", 1),
    Tensor("stop", "STRING", -1),
    Tensor("ids", "INT32", -1),
    Tensor("count", "INT32", 1),
    Tensor("seed", "INT64", 1),
    Tensor("share", "FP32", 1),
    Tensor("flag", "BOOL", 1),
)


def read(**arrays: Array) -> Inputs:
    return Inputs(TABLE, arrays)


def test_scalars_come_as_plain_python_values() -> None:
    inputs = read(
        count=integers(7),
        seed=np.array([-(2**63)], np.int64),
        flag=np.array([True]),
        share=floats(0.5),
    )
    values = [inputs.scalar(name) for name in ("count", "seed", "flag", "share")]
    assert values == [7, -(2**63), True, 0.5]
    assert [type(value) for value in values] == [int, int, bool, float]


@pytest.mark.parametrize("value", [0.95, 0.1, 0.7, 1e-3, 1.0, 100.0, 0.123456])
def test_a_float_is_the_decimal_that_the_client_wrote(value: float) -> None:
    assert read(share=floats(value)).scalar("share") == value


def test_what_is_absent_has_its_default() -> None:
    inputs = read()
    assert inputs.scalar("count") is None
    assert inputs.scalar("count", 3) == 3
    assert inputs.integers("ids") == ()
    assert inputs.texts("stop") == ()
    assert "stop" not in inputs


def test_lists_come_as_tuples_empty_ones_too() -> None:
    inputs = read(ids=integers(3, 1), stop=strings(b"a", "é".encode()))
    assert inputs.integers("ids") == (3, 1)
    assert inputs.texts("stop") == ("a", "é")
    assert read(ids=integers(), stop=strings()).texts("stop") == ()
    assert "ids" in inputs


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (
            "count",
            integers(),
            "count must hold 1 of INT32 in one dimension; got int32 of shape [0].",
        ),
        ("count", integers(1, 2), "got int32 of shape [2]."),
        ("count", np.array([[1]], np.int32), "got int32 of shape [1, 1]."),
        ("count", np.array(1, np.int32), "got int32 of shape []."),
        ("count", floats(1), "got float32 of shape [1]."),
        ("count", np.array([True]), "got bool of shape [1]."),
        ("ids", np.array([[1, 2]], np.int32), "ids must hold any number of INT32 in one"),
        ("text", strings(b"a", b"b"), "text must hold 1 of STRING"),
        ("text", integers(1), "text must hold 1 of STRING"),
        ("flag", integers(1), "flag must hold 1 of BOOL"),
    ],
)
def test_a_wrong_tensor_is_refused_by_name(name: str, array: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**{name: array})
    assert message in str(caught.value)


def test_bytes_that_are_no_text_are_refused_without_quoting_them() -> None:
    with pytest.raises(RequestError) as caught:
        read(text=strings(b"secret\xff")).texts("text")
    assert str(caught.value) == "text is not UTF-8 text from byte 6 on."


def test_strings_keep_zeros_at_their_end() -> None:
    assert strings(b"a\0", b"bc").tolist() == [b"a\0", b"bc"]
    assert strings().dtype == np.object_
