"""The weights of a plan, each named by its index; a weight that several operations read is there once."""

import numpy as np
import onnx_ir as ir

from builder.errors import UnsupportedError
from builder.targets.cpu import packing, reading
from builder.targets.cpu.packing import Packed
from builder.targets.cpu.plan import NOTHING, Epilogue


class WeightTable:
    """Hands out indices in the order in which weights are first asked for."""

    def __init__(self) -> None:
        self.all: list[Packed] = []
        self._places: dict[str, int] = {}

    def place(self, packed: Packed) -> int:
        """Give the index of a weight."""
        if packed.name not in self._places:
            self._places[packed.name] = len(self.all)
            self.all.append(packed)
        return self._places[packed.name]

    def vector(self, value: ir.Value, size: int) -> int:
        """Give the index of a vector of `size` float32 numbers."""
        read = packing.pack_vector(str(value.name), size, lambda: reading.numbers(value))
        return self.place(read)

    def order(self, value: ir.Value, size: int) -> int:
        """Give the index of an order of `size` numbers, int32 in the bits of a vector; those that are padded stay in place."""

        def read() -> packing.Float32:
            found, given = np.arange(size, dtype=np.int32), reading.numbers(value)
            found[: len(given)] = given
            return found.view(np.float32)

        return self.place(packing.pack_vector(str(value.name), size, read))

    def rope(self, cosines: ir.Value, sines: ir.Value) -> int:
        """Give the index of a table of cosines; that of their sines follows."""
        positions, half = reading.sizes(cosines)
        first = self.vector(cosines, positions * half)
        self.vector(sines, positions * half)
        return first

    def bias(self, gemms: list[ir.Node], packed: Packed, epilogue: Epilogue) -> int:
        """Give the index of the biases of Gemms that are one operation, in the order of their outputs.

        Raises:
            UnsupportedError: some have none.
        """
        values = [gemm.inputs[2] if len(gemm.inputs) > 2 else None for gemm in gemms]
        found = [value for value in values if value is not None]
        if not found:
            return NOTHING
        if len(found) < len(gemms):
            raise UnsupportedError("target cpu can't join projections with and without a bias")
        name = "+".join(str(value.name) for value in found)
        if epilogue == Epilogue.GATE:
            gate, up = found
            half = packed.size_out // 2

            def interleaved() -> packing.Float32:
                return packing.interleave_vectors(reading.numbers(gate), reading.numbers(up), half)

            return self.place(packing.pack_vector(name, 2 * half, interleaved))
        return self.place(
            packing.pack_vector(name, packed.size_out, lambda: reading.joined_numbers(found))
        )
