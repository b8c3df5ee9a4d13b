"""Write ONNX nodes the short way: `emit("Add", a, b)` instead of building values and nodes by hand."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.tape import Tape

OPSET = 23
IR_VERSION = 11


class Emitter:
    """Records nodes in order. Constants that occur twice become one node."""

    def __init__(self) -> None:
        self._tape = Tape()
        self._constants: dict[tuple[int, ...], ir.Value] = {}
        self.initializers: dict[str, ir.Value] = {}

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """All nodes so far."""
        return tuple(self._tape.nodes)

    def __call__(self, op_type: str, *inputs: ir.Value | None, **attributes: object) -> ir.Value:
        """Add a node of the standard domain and give its only output."""
        return self._tape.op(op_type, inputs, attributes)  # type: ignore[arg-type]

    def call(
        self, function: ir.Function, *inputs: ir.Value, **attributes: object
    ) -> tuple[ir.Value, ...]:
        """Add a call of a local function and give its outputs."""
        domain, name, _ = function.identifier()
        outputs = self._tape.op_multi_out(
            name,
            inputs,
            attributes,  # type: ignore[arg-type]
            num_outputs=len(function.outputs),
            domain=domain,
        )
        return tuple(outputs)

    def ints(self, *numbers: int) -> ir.Value:
        """Give a constant int64 vector."""
        if numbers not in self._constants:
            self._constants[numbers] = self("Constant", value_ints=list(numbers))
        return self._constants[numbers]

    def initializer(
        self,
        name: str,
        read: Callable[[], NDArray[np.generic]],
        dtype: ir.DataType,
        shape: tuple[int, ...],
    ) -> ir.Value:
        """Add a weight that is read only when it is written out; the same name gives the same value."""
        if name not in self.initializers:
            self.initializers[name] = lazy_weight(name, read, dtype, shape)
        return self.initializers[name]


def lazy_weight(
    name: str,
    read: Callable[[], NDArray[np.generic]],
    dtype: ir.DataType,
    shape: Sequence[int],
) -> ir.Value:
    """Give a weight that is read only when it is written out."""
    tensor = ir.LazyTensor(
        lambda: ir.Tensor(read(), dtype=dtype, name=name),
        dtype=dtype,
        shape=ir.Shape(shape),
        name=name,
    )
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=tensor)
