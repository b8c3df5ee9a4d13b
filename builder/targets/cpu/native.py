"""The C++ library of this target, built beside this file when Forerun is installed and loaded with ctypes, which releases the GIL.

It knows the C interface (`native/interface.cpp`) and nothing of steps or artifacts.
"""

import ctypes
from enum import IntEnum
from functools import cache
from pathlib import Path

from builder.errors import UnsupportedError

FILE_NAME = "libforerun_cpu.so"
ERROR_BYTES = 256
MISSING = (
    "target cpu has no native library here: it was installed without a C++ compiler; install g++ 12 or later and "
    "install forerun again, or use --target portable"
)
_POINTER = ctypes.c_void_p


class Cause(IntEnum):
    """`Cause` of native/failure.h: why an engine can't be opened."""

    PLAN = 1
    LIMITS = 2
    BUILD = 3
    MEMORY = 4
    THREADS = 5


class Limits(ctypes.Structure):
    """`EngineLimits` of native/limits.h."""

    _fields_ = (
        ("max_num_tokens", ctypes.c_int32),
        ("max_num_seqs", ctypes.c_int32),
        ("max_logit_rows", ctypes.c_int32),
        ("max_seq_len", ctypes.c_int32),
        ("num_blocks", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
        ("max_bytes", ctypes.c_int64),
    )


class Inputs(ctypes.Structure):
    """`StepInputs` of plugins/native/step.h."""

    _fields_ = (
        ("num_tokens", ctypes.c_int32),
        ("num_seqs", ctypes.c_int32),
        ("table_width", ctypes.c_int32),
        ("num_rows", ctypes.c_int32),
        ("num_candidates", ctypes.c_int32),
        ("token_ids", _POINTER),
        ("positions", _POINTER),
        ("query_start", _POINTER),
        ("seq_lens", _POINTER),
        ("block_tables", _POINTER),
        ("slot_mapping", _POINTER),
        ("logit_rows", _POINTER),
        ("temperatures", _POINTER),
    )


class Outputs(ctypes.Structure):
    """`StepOutputs` of plugins/native/step.h."""

    _fields_ = (
        ("argmax", _POINTER),
        ("candidate_ids", _POINTER),
        ("candidate_logits", _POINTER),
        ("logsumexp", _POINTER),
    )


@cache
def library() -> ctypes.CDLL:
    """Load the library.

    Raises:
        UnsupportedError: it was not built, or does not load here.
    """
    path = Path(__file__).with_name(FILE_NAME)
    if not path.is_file():
        raise UnsupportedError(MISSING)
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise UnsupportedError(
            f"target cpu can't load {path.name}: {error}; install forerun again, or use --target portable"
        ) from error
    found.forerun_build_name.restype = ctypes.c_char_p
    found.forerun_open.restype = ctypes.c_int32
    found.forerun_open.argtypes = (
        *(ctypes.c_char_p, ctypes.c_int64, _POINTER, ctypes.c_int64),
        *(ctypes.POINTER(Limits), ctypes.c_char_p, ctypes.POINTER(_POINTER), ctypes.c_char_p),
    )
    found.forerun_close.argtypes = (_POINTER,)
    found.forerun_close.restype = None
    found.forerun_run.restype = ctypes.c_int32
    found.forerun_run.argtypes = (
        *(_POINTER, ctypes.POINTER(Inputs), ctypes.POINTER(Outputs)),
        *(_POINTER, ctypes.c_int32, ctypes.c_char_p),
    )
    found.forerun_rank.restype = None
    found.forerun_rank.argtypes = (
        *(_POINTER, _POINTER, ctypes.c_int32, ctypes.c_int32),
        *(_POINTER, _POINTER),
    )
    found.forerun_logits.restype = ctypes.POINTER(ctypes.c_float)
    found.forerun_logits.argtypes = (_POINTER, ctypes.c_int32)
    found.forerun_times_ns.restype = ctypes.POINTER(ctypes.c_int64)
    found.forerun_times_ns.argtypes = (_POINTER,)
    return found


def builds() -> tuple[str, ...]:
    """Name the instruction sets that this machine can run, best first."""
    names: list[str] = []
    while (name := library().forerun_build_name(len(names))) is not None:
        names.append(name.decode())
    return tuple(names)
