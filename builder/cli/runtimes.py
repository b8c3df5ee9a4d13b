"""Engine runtimes that exclude each other."""

import importlib.metadata

from builder.errors import UserError


def refuse_two_runtimes() -> None:
    """Refuse an environment in which two builds of ONNX Runtime overwrote each other's files.

    Raises:
        UserError: both `onnxruntime` and `onnxruntime-gpu` are installed.
    """
    if _is_installed("onnxruntime") and _is_installed("onnxruntime-gpu"):
        raise UserError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; run "
            "pip uninstall -y onnxruntime onnxruntime-gpu, then install forerun[cpu] or forerun[gpu]"
        )


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
