"""The config.pbtxt of a face, made from its tables as Triton's own protocol buffer."""

from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from triton_backend.faces import find_face
from triton_backend.protocol import Tensor


def model_config(face: str, *, model_name: str, parameters: Mapping[str, str]) -> Any:
    """Give the ModelConfig of a model with the tensors of `face`.

    Raises:
        UnsupportedError: there is no such face.
    """
    table = find_face(face)
    return pb.ModelConfig(
        name=model_name,
        backend="python",
        max_batch_size=0,
        input=[
            pb.ModelInput(**_fields(tensor), optional=tensor.is_optional) for tensor in table.inputs
        ],
        output=[pb.ModelOutput(**_fields(tensor)) for tensor in table.outputs],
        instance_group=[pb.ModelInstanceGroup(kind=pb.ModelInstanceGroup.KIND_CPU, count=1)],
        model_transaction_policy=pb.ModelTransactionPolicy(decoupled=True),
        parameters={name: pb.ModelParameter(string_value=parameters[name]) for name in parameters},
    )


def _fields(tensor: Tensor) -> dict[str, Any]:
    data_type = pb.DataType.Value(f"TYPE_{tensor.data_type}")
    return {"name": tensor.name, "data_type": data_type, "dims": [tensor.length]}
