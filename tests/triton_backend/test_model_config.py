"""config.pbtxt says exactly what the tables of the faces say."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from builder.errors import UnsupportedError
from triton_backend.faces import FACES
from triton_backend.model_config import model_config
from triton_backend.protocol import KINDS, Face


@pytest.fixture(params=FACES.values(), ids=list(FACES))
def face(request: pytest.FixtureRequest) -> Face:
    return request.param


def test_every_tensor_is_there_with_its_type_and_length(face: Face) -> None:
    config = model_config(face.name, model_name="chat", parameters={})
    inputs = [
        (i.name, pb.DataType.Name(i.data_type), list(i.dims), i.optional) for i in config.input
    ]
    assert inputs == [
        (tensor.name, f"TYPE_{tensor.data_type}", [tensor.length], tensor.is_optional)
        for tensor in face.inputs
    ]
    outputs = [(o.name, pb.DataType.Name(o.data_type), list(o.dims)) for o in config.output]
    assert outputs == [
        (tensor.name, f"TYPE_{tensor.data_type}", [tensor.length]) for tensor in face.outputs
    ]


def test_a_model_is_decoupled_unbatched_and_alone_on_the_processor(face: Face) -> None:
    config = model_config(face.name, model_name="chat", parameters={"face": face.name, "x": 'a"b'})
    assert (config.name, config.backend, config.max_batch_size) == ("chat", "python", 0)
    assert config.model_transaction_policy.decoupled
    (group,) = config.instance_group
    assert (group.kind, group.count) == (pb.ModelInstanceGroup.KIND_CPU, 1)
    assert not config.HasField("dynamic_batching")
    parameters = {name: value.string_value for name, value in config.parameters.items()}
    assert parameters == {"face": face.name, "x": 'a"b'}


def test_its_text_form_reads_back_equal(face: Face) -> None:
    config = model_config(face.name, model_name="chat", parameters={"artifact": '/a "b"/é'})
    text = text_format.MessageToString(config)
    assert text_format.Parse(text, pb.ModelConfig()) == config


def test_names_are_used_once_and_types_are_known(face: Face) -> None:
    for table in (face.inputs, face.outputs):
        names = [tensor.name for tensor in table]
        assert len(set(names)) == len(names)
        assert {tensor.data_type for tensor in table} <= set(KINDS)


def test_an_unknown_face_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"unknown face 'vlm'. Did you mean vllm\?"):
        model_config("vlm", model_name="chat", parameters={})
