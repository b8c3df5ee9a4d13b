"""The tensor contracts that a deployment offers, one file each.

To add one, write its file here and a line in FACES.
"""

from builder.errors import UnsupportedError, unknown_name
from triton_backend.faces.forerun import FORERUN
from triton_backend.faces.vllm import VLLM
from triton_backend.protocol import Face

FACES: dict[str, Face] = {face.name: face for face in (FORERUN, VLLM)}
"""Faces by name."""


def find_face(name: str) -> Face:
    """Give the face of a name.

    Raises:
        UnsupportedError: there is none.
    """
    if name not in FACES:
        raise UnsupportedError(unknown_name("face", name, FACES))
    return FACES[name]
