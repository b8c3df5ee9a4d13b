"""Clients without the manners of a library: they send header names and values as they are told, byte by byte."""

import contextlib
import socket
import struct

WAIT_S = 60.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, DATA = 4, 1, 0
END_HEADERS, END_STREAM = 4, 1


def http_reply(port: int, method: str, path: str, *, header: bytes) -> bytes:
    """Make an HTTP/1.1 call with one more header line, or lines; give what comes back, b"" for a closed connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        head = f"{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n"
        connection.sendall(head.encode() + header + b"\r\n\r\n{}")
        return _read(connection, until=b"}")


def grpc_reply(port: int, method: str, message: bytes, *, name: bytes, value: bytes) -> bytes:
    """Make a gRPC call with one more entry of metadata; give the frames that come back."""
    headers = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": f"/inference.GRPCInferenceService/{method}".encode(),
        b":authority": b"a",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
        name: value,
    }
    body = b"\0" + struct.pack(">I", len(message)) + message
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        connection.sendall(
            PREFACE
            + _frame(SETTINGS, 0, b"", stream=0)
            + _frame(HEADERS, END_HEADERS, b"".join(map(_literal, headers.items())), stream=1)
            + _frame(DATA, END_STREAM, body, stream=1)
        )
        return _read(connection, until=b"grpc-status")


def _literal(header: tuple[bytes, bytes]) -> bytes:
    """Write a header as HPACK without compression."""
    return b"\0" + b"".join(bytes([len(text)]) + text for text in header)


def _frame(kind: int, flags: int, content: bytes, *, stream: int) -> bytes:
    return (
        struct.pack(">I", len(content))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + content
    )


def _read(connection: socket.socket, *, until: bytes) -> bytes:
    heard = b""
    with contextlib.suppress(ConnectionError):
        while until not in heard and (part := connection.recv(65536)):
            heard += part
    return heard
