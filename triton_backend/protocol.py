"""What a face is: the tables of its tensors, and how they turn into a request and answers into them.

A face is one Triton model of a deployment. Its file in `faces/` has the two tables and a function that reads
the tensors of a request; `config.pbtxt` is generated from the same tables (`model_config.py`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.errors import RequestError
from triton_backend.messages import NO_TERMS, News, Prompt, Terms
from triton_backend.request import SamplingParams

Array = NDArray[Any]
Parameters = Mapping[str, object]

KINDS = {"BOOL": "b", "INT32": "i", "INT64": "i", "UINT32": "u", "FP32": "f", "STRING": "O"}
"""Triton's data types that the faces use, and the kind of numpy array that each arrives as."""
TRITONS_OWN = frozenset({"id"})
"""A request parameter that Triton makes of the request's id in HTTP generate calls."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A line of a face's table."""

    name: str
    data_type: str
    """Triton's name, without TYPE_."""
    length: int
    """The one dimension; -1 is any length."""
    is_optional: bool = True
    """Triton lets a request without it pass; of outputs it says nothing."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as a face read it."""

    prompt: Prompt
    params: SamplingParams
    is_streaming: bool
    """Answer as tokens come; otherwise once, at the end."""
    write: Callable[[Sequence[News]], Sequence[dict[str, Array]]]
    """Give the tensors of the next responses, one at least, from one piece of news per choice that has any."""
    terms: Terms = NO_TERMS


@dataclass(frozen=True, slots=True)
class Face:
    """One tensor contract."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    read: Callable[["Inputs", Parameters, Collection[str]], Ask]
    """Read a request's tensors and parameters; the names are those of the outputs it wants.

    Raises RequestError.
    """


class Inputs:
    """The tensors of one request, read by name and checked against the face's table."""

    def __init__(self, table: Collection[Tensor], arrays: Mapping[str, Array]) -> None:
        """Check what arrived.

        Raises:
            RequestError: a tensor has a wrong type or length; Triton refuses unknown ones.
        """
        self._arrays = arrays
        for tensor in table:
            array = arrays.get(tensor.name)
            if array is None:
                continue
            wrong_length = tensor.length not in (-1, array.size)
            if array.ndim != 1 or wrong_length or array.dtype.kind != KINDS[tensor.data_type]:
                length = "any number" if tensor.length == -1 else f"{tensor.length}"
                raise RequestError(
                    f"{tensor.name} must hold {length} of {tensor.data_type} in one dimension; "
                    f"got {array.dtype.name} of shape {list(array.shape)}."
                )

    def __contains__(self, name: object) -> bool:
        """Tell whether the request has a tensor."""
        return name in self._arrays

    def scalar(self, name: str, default: Any = None) -> Any:
        """Give the one number or boolean of a tensor.

        A float32 is read as the shortest decimal that it stands for: 0.95 is 0.95, on every face.
        """
        array = self._arrays.get(name)
        if array is None:
            return default
        return float(str(array[0])) if array.dtype.kind == "f" else array[0].item()

    def numbers(self, name: str) -> tuple[float, ...]:
        """Give the numbers of a FP32 tensor, read as `scalar` reads one; none if it is absent."""
        return tuple(float(str(value)) for value in self._arrays.get(name, ()))

    def integers(self, name: str) -> tuple[int, ...]:
        """Give the integers of a tensor, none if it is absent."""
        array = self._arrays.get(name)
        return () if array is None else tuple(array.tolist())

    def texts(self, name: str) -> tuple[str, ...]:
        """Give the strings of a tensor, none if it is absent.

        Raises:
            RequestError: one of them is not UTF-8.
        """
        array = self._arrays.get(name)
        if array is None:
            return ()
        return tuple(_text(name, data) for data in array.tolist())


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not UTF-8 text from byte {error.start} on.") from None


def integers(*values: int) -> Array:
    """Make an INT32 tensor."""
    return np.array(values, np.int32)


def floats(*values: float) -> Array:
    """Make an FP32 tensor."""
    return np.array(values, np.float32)


def strings(*values: bytes) -> Array:
    """Make a STRING tensor."""
    # Not np.array(values): bytes of one length would make it an array of fixed width, without ending zeros.
    array = np.empty(len(values), np.object_)
    array[:] = values
    return array
