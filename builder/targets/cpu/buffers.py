"""Which buffer each value of a graph lives in: a buffer is free again when the last reader of its value is emitted."""

import onnx_ir as ir

from builder.targets.cpu.plan import Buffer
from builder.targets.cpu.reading import readers


class Buffers:
    """Hands out buffers by their shape, and takes them back."""

    def __init__(self) -> None:
        self.all: list[Buffer] = []
        self._free: list[int] = []
        self._place: dict[ir.Value, int] = {}
        self._reads_left: dict[ir.Value, int] = {}

    def place(self, value: ir.Value) -> int:
        """Give the buffer that a value lives in."""
        return self._place[value]

    def new(self, value: ir.Value, buffer: Buffer) -> int:
        """Give a value a buffer of this shape."""
        return self._settle(value, self.take(buffer))

    def take(self, buffer: Buffer) -> int:
        """Give a free buffer of this shape, or a new one; whoever takes it gives it back."""
        for place in self._free:
            if self.all[place] == buffer:
                self._free.remove(place)
                return place
        self.all.append(buffer)
        return len(self.all) - 1

    def give_back(self, place: int) -> None:
        """Free a buffer that was taken."""
        self._free.append(place)

    def read(self, value: ir.Value) -> None:
        """Count one reader of a value as emitted; after the last one its buffer is free."""
        self._reads_left[value] -= 1
        if not self._reads_left[value]:
            self.give_back(self._place[value])

    def add_to(self, residual: ir.Value, result: ir.Value) -> int:
        """Give the buffer of a sum that a value goes into: its own if nobody else reads it any more."""
        place = self._place[residual]
        self.read(residual)
        if self._reads_left[residual]:
            return self.new(result, self.all[place])
        self._free.remove(place)
        return self._settle(result, place)

    def _settle(self, value: ir.Value, place: int) -> int:
        self._place[value] = place
        self._reads_left[value] = len(list(readers(value)))
        return place
