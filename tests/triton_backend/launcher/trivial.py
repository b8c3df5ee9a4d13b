"""A repository with a trivial model, a server for it, and a client that streams from it."""

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tritonclient import grpc
from tritonclient.utils import np_to_triton_dtype

from triton_backend.launcher.addresses import Addresses, free_ports
from triton_backend.launcher.installation import find_installation
from triton_backend.launcher.server import LaunchPlan

CODE = Path(__file__).with_name("trivial_model.py")
HOST = "127.0.0.1"
WAIT_S = 60.0
CONFIG = """\
name: "trivial"
backend: "python"
model_transaction_policy { decoupled: true }
input [
  { name: "text" data_type: TYPE_STRING dims: [1] },
  { name: "count" data_type: TYPE_INT32 dims: [1] },
  { name: "pause_s" data_type: TYPE_FP32 dims: [1] }
]
output { name: "text" data_type: TYPE_STRING dims: [1] }
instance_group { kind: KIND_CPU count: 1 }
"""

Answer = queue.SimpleQueue[tuple[grpc.InferResult | None, Exception | None]]


def trivial_repository(root: Path) -> Path:
    """Write a repository whose one model is `trivial`."""
    (root / "trivial" / "1").mkdir(parents=True)
    (root / "trivial" / "config.pbtxt").write_text(CONFIG)
    (root / "trivial" / "1" / "model.py").write_text(CODE.read_text())
    return root


def trivial_plan(
    repository: Path, *, drain_s: float = 0.0, fronts: tuple[str, ...] = ()
) -> LaunchPlan:
    """Plan a server of the trivial model on free ports; as a model of others, unless it is named as a front."""
    ports = free_ports(HOST, {"http": 0, "grpc": 0, "metrics": 0})
    return LaunchPlan(
        installation=find_installation(),
        repository=repository,
        fronts=fronts,
        others=() if fronts else ("trivial",),
        addresses=Addresses(HOST, ports["http"], ports["grpc"], ports["metrics"]),
        drain_s=drain_s,
    )


@contextmanager
def stream(address: str, *, count: int, pause_s: float = 0.0) -> Iterator[Answer]:
    """Ask the trivial model over gRPC; give the queue that its responses go into."""
    answer: Answer = queue.SimpleQueue()
    values = {
        "text": np.array([b"hello"], np.object_),
        "count": np.array([count], np.int32),
        "pause_s": np.array([pause_s], np.float32),
    }
    inputs = []
    for name, array in values.items():
        inputs.append(grpc.InferInput(name, [1], np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    with grpc.InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: answer.put((result, error)))
        client.async_stream_infer("trivial", inputs, enable_empty_final_response=True)
        yield answer
        client.stop_stream(cancel_requests=True)
