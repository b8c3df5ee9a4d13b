"""The tensors that go in and out of an engine, as a manifest names them."""

import onnx_ir as ir

from builder.artifact.manifest import Binding


def binding(value: ir.Value) -> Binding:
    """Describe an input or an output of a graph."""
    assert value.dtype is not None
    assert value.shape is not None
    shape = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    return Binding(str(value.name), value.dtype.name.lower(), shape)
