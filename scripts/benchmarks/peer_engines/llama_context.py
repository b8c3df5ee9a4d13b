"""libllama through the C interface of `llama_driver.cpp`: a context of sequences, steps, greedy choices, logits."""

import ctypes
from pathlib import Path
from typing import Any

LIBRARY = "libllama_driver.so"
MAX_BATCH = 2048
Rows = list[tuple[int, int, int, bool]]
"""Token, position, sequence, and whether the token after it is wanted."""


def load_driver(library: Path) -> ctypes.CDLL:
    """Load the driver that was built for this machine."""
    driver = ctypes.CDLL(str(library))
    driver.driver_open.restype = ctypes.c_void_p
    driver.driver_system.restype = ctypes.c_char_p
    driver.driver_logits.restype = ctypes.POINTER(ctypes.c_float)
    driver.driver_logits.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    driver.driver_forget.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
    driver.driver_vocab_size.argtypes = [ctypes.c_void_p]
    driver.driver_step.argtypes = [ctypes.c_void_p, ctypes.c_int32, *(ctypes.c_void_p,) * 5]
    return driver


class Context:
    """A model, and sequences whose tokens are computed together."""

    def __init__(
        self,
        library: Path,
        gguf: Path,
        *,
        threads: int,
        num_sequences: int,
        num_tokens: int,
        max_outputs: int,
    ) -> None:
        """Open a GGUF file with room for `num_tokens`, in equal shares of the sequences."""
        self._driver = load_driver(library)
        numbers = (threads, num_sequences, num_tokens, MAX_BATCH, max_outputs)
        self._handle = ctypes.c_void_p(self._driver.driver_open(str(gguf).encode(), *numbers))
        if not self._handle:
            raise SystemExit(f"llama.cpp does not load {gguf}")
        self.vocab_size: int = self._driver.driver_vocab_size(self._handle)

    def step(self, rows: Rows) -> list[int]:
        """Compute rows in batches, and give the greedy choices of those wanted."""
        chosen: list[int] = []
        for first in range(0, len(rows), MAX_BATCH):
            batch = rows[first : first + MAX_BATCH]
            tokens, positions, sequences, wanted = zip(*batch, strict=True)
            numbers = ctypes.c_int32 * len(batch)
            choices = numbers()
            columns: list[Any] = [numbers(*tokens), numbers(*positions), numbers(*sequences)]
            columns += [(ctypes.c_int8 * len(batch))(*wanted), choices]
            if code := self._driver.driver_step(self._handle, len(batch), *columns):
                raise SystemExit(f"llama.cpp ends a step with code {code}")
            chosen += [token for token, is_wanted in zip(choices, wanted, strict=True) if is_wanted]
        return chosen

    def logits(self, row: int) -> Any:
        """Give the address of logits `[V]` of a row of the last batch; valid until the next."""
        return self._driver.driver_logits(self._handle, row)

    def forget(self, sequence: int, first: int = 0) -> None:
        """Drop what a sequence holds from position `first` on."""
        self._driver.driver_forget(self._handle, sequence, first)
