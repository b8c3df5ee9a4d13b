"""What changes a server is closed to everybody, even to one who has read its command line."""

import re

import psutil
import pytest
from tritonclient import grpc
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from tests.triton_backend.launcher.raw_clients import grpc_reply, http_reply
from triton_backend.launcher.server import LaunchPlan, TritonServer

Shared = tuple[TritonServer, LaunchPlan]
OK = re.compile(rb"grpc-status\x010")
HTTP_CALLS = [
    ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/trivial/load"),
    ("POST", "/v2/repository/models/trivial/unload"),
    ("GET", "/v2/systemsharedmemory/status"),
    ("POST", "/v2/systemsharedmemory/region/any/register"),
    ("GET", "/v2/trace/setting"),
    ("POST", "/v2/logging"),
]
GRPC_CALLS = {
    "RepositoryIndex": service_pb2.RepositoryIndexRequest(),
    "RepositoryModelLoad": service_pb2.RepositoryModelLoadRequest(model_name="trivial"),
    "RepositoryModelUnload": service_pb2.RepositoryModelUnloadRequest(model_name="trivial"),
    "SystemSharedMemoryRegister": service_pb2.SystemSharedMemoryRegisterRequest(name="any"),
    "TraceSetting": service_pb2.TraceSettingRequest(),
    "LogSettings": service_pb2.LogSettingsRequest(),
}


def told(server: TritonServer, option: str) -> tuple[bytes, bytes]:
    """Read the header that opens what is closed from the command line, as every user of the machine can."""
    (text,) = [
        each.partition("=")[2]
        for each in psutil.Process(server.pid).cmdline()
        if each.startswith(option)
    ]
    name, _, value = text.partition(":")[2].partition("=")
    return name.encode(), value.encode()


@pytest.mark.parametrize(("method", "path"), HTTP_CALLS)
def test_http_clients_can_t_change_the_server(shared: Shared, method: str, path: str) -> None:
    reply = http_reply(shared[1].addresses.http_port, method, path, header=b"a: b")
    assert reply.startswith(b"HTTP/1.1 403 ")
    assert b"restricted" in reply


@pytest.mark.parametrize(("method", "path"), HTTP_CALLS)
def test_the_command_line_does_not_help_an_http_client(
    shared: Shared, method: str, path: str
) -> None:
    name, value = told(shared[0], "--http-restricted-api")
    port = shared[1].addresses.http_port
    folded = (
        name.replace(b"\n", b"\r\n "),
        name.replace(b"\n", b"\n "),
        name.replace(b"\n", b"\r"),
    )
    for written in (name, name.lower(), *folded, *name.split(b"\n")):
        for sent in (value, b"", value.strip(), value.replace(b"\n", b"\r\n ")):
            reply = http_reply(port, method, path, header=written + b": " + sent)
            assert not reply.startswith(b"HTTP/1.1 200"), (written, sent)


@pytest.mark.parametrize("method", GRPC_CALLS)
def test_the_command_line_does_not_help_a_grpc_client(shared: Shared, method: str) -> None:
    name, value = told(shared[0], "--grpc-restricted-protocol")
    message = GRPC_CALLS[method].SerializeToString()
    for written in (name, name.lower(), *name.split(b"\n")):
        for prefixed in (written, b"triton-grpc-protocol-" + written):
            reply = grpc_reply(
                shared[1].addresses.grpc_port, method, message, name=prefixed, value=value
            )
            assert b"grpc-status" in reply
            assert not OK.search(reply), prefixed


def test_the_raw_clients_are_understood_where_nothing_is_closed(shared: Shared) -> None:
    ports = shared[1].addresses
    reply = http_reply(ports.http_port, "GET", "/v2/health/live", header=b"a: b")
    assert reply.startswith(b"HTTP/1.1 200")
    message = service_pb2.ServerLiveRequest().SerializeToString()
    reply = grpc_reply(ports.grpc_port, "ServerLive", message, name=b"a", value=b"x\ny")
    assert OK.search(reply), "and a line end in a value keeps nobody out"


def test_clients_of_a_library_are_told_that_it_is_closed(shared: Shared) -> None:
    calls = (
        ("get_model_repository_index", ()),
        ("load_model", ("trivial",)),
        ("unload_model", ("trivial",)),
        ("get_system_shared_memory_status", ()),
        ("get_trace_settings", ()),
        ("get_log_settings", ()),
    )
    with grpc.InferenceServerClient(shared[1].addresses.grpc) as client:
        for name, arguments in calls:
            with pytest.raises(InferenceServerException, match="restricted"):
                getattr(client, name)(*arguments)
