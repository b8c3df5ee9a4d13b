"""The link between a front and the engine host: whole messages over a stream socket.

A frame is its length (4 bytes, little-endian) and one message in MessagePack. Whatever breaks that form, or is no
message of the other side, ends the link: there is no place to resume from.
"""

import contextlib
import socket
import struct
import threading
from typing import Any, Generic, TypeVar

import msgspec

from builder.errors import RequestError, WorkError

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""A prompt of several million tokens; anything longer is a mistake, and would only cost memory."""
_LENGTH = struct.Struct("<I")

Incoming = TypeVar("Incoming")


class LinkError(WorkError):
    """The link broke, or the other side does not keep its form."""


class FrameSizeError(LinkError):
    """A message is too large for a frame; nothing of it was sent, and the link goes on."""


class Link(Generic[Incoming]):
    """One end of a link. One thread receives; any thread may send or close."""

    def __init__(self, connection: socket.socket, incoming: Any) -> None:
        """Take over a connected socket; `incoming` is the union of the messages that may arrive."""
        self._socket = connection
        self._stream = connection.makefile("rb", buffering=1 << 16)
        self._decoder = msgspec.msgpack.Decoder(incoming)
        self._encoder = msgspec.msgpack.Encoder()
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Send a whole message, waiting while the other side does not read.

        Raises:
            FrameSizeError: it is larger than a frame may be.
            LinkError: the link has ended.
        """
        self.send_frame(self.pack(message))

    def pack(self, message: msgspec.Struct) -> bytearray:
        """Give the frame of a message.

        Raises:
            FrameSizeError: it is larger than a frame may be.
        """
        frame = bytearray(_LENGTH.size)
        self._encoder.encode_into(message, frame, _LENGTH.size)
        size = len(frame) - _LENGTH.size
        if size > MAX_FRAME_BYTES:
            raise FrameSizeError(f"a message of {size} bytes; at most {MAX_FRAME_BYTES} fit")
        _LENGTH.pack_into(frame, 0, size)
        return frame

    def send_frame(self, frame: bytearray) -> None:
        """Send what `pack` gave, waiting while the other side does not read.

        Raises:
            LinkError: the link has ended.
        """
        try:
            with self._sending:
                self._socket.sendall(frame)
        except OSError as error:
            # A part of the frame may be on its way: nothing can follow it.
            self.close()
            raise LinkError(f"the link has ended: {error.strerror or error}") from error

    def receive(self) -> Incoming | None:
        """Wait for the next message; None when the other side has ended the link, or this one did.

        Raises:
            LinkError: the other side broke the form.
        """
        head = self._read(_LENGTH.size)
        if not head:
            return None
        if len(head) < _LENGTH.size:
            raise LinkError("the link ended inside a frame")
        (size,) = _LENGTH.unpack(head)
        if size > MAX_FRAME_BYTES:
            raise LinkError(
                f"a frame announces {size} bytes; at most {MAX_FRAME_BYTES} are allowed"
            )
        body = self._read(size)
        if len(body) < size:
            raise LinkError("the link ended inside a frame")
        try:
            message: Incoming = self._decoder.decode(body)
        except (msgspec.MsgspecError, RequestError, UnicodeDecodeError, RecursionError) as error:
            # What the decoder says is left out: it quotes what it could not read.
            raise LinkError(f"a frame holds no message ({type(error).__name__})") from None
        return message

    def close(self) -> None:
        """End the link; a thread that waits in `receive` gets None. Closing twice is allowed."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._stream.close()
            self._socket.close()

    def _read(self, size: int) -> bytes:
        """Read `size` bytes, or fewer if the link ends."""
        try:
            data: bytes = self._stream.read(size)
        except (OSError, ValueError):  # it broke, or was closed from here
            return b""
        return data
