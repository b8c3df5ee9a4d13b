"""Engine runtimes that exclude each other."""

import importlib.metadata

import pytest

from builder.cli import runtimes
from builder.errors import UserError


def install(monkeypatch: pytest.MonkeyPatch, *installed: str) -> None:
    def distribution(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return name

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


@pytest.mark.parametrize("installed", [(), ("onnxruntime",), ("onnxruntime-gpu",)])
def test_one_runtime_or_none_is_fine(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...]
) -> None:
    install(monkeypatch, *installed)
    runtimes.refuse_two_runtimes()


def test_two_runtimes_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "onnxruntime", "onnxruntime-gpu")
    with pytest.raises(UserError, match="pip uninstall -y onnxruntime onnxruntime-gpu"):
        runtimes.refuse_two_runtimes()
