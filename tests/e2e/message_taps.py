"""Parses byte streams for FaultProxy: cuts a stream into units and names its messages. Knows gRPC over HTTP/2 and KV transfers.
Standard library only.

A tap belongs to one connection. feed(direction, data) returns the units that are now complete, as [(name, bytes)]. Joined, the
units are the stream. `name` is the message that ends with the unit, or None:
  gRPC      "Decode>" a request of the method Decode, "Decode<" a response, "Decode$" the end of the call
  transfer  "Hello>", "Announce>", "Block>" with its payload, "HelloReply<", "Pull<", "Done<", …
Directions are ">" to the server and "<" from it.
"""

import struct

TO_SERVER, TO_CLIENT = ">", "<"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, CONTINUATION = 0, 1, 9
END_STREAM, END_HEADERS, PADDED, PRIORITY = 0x1, 0x4, 0x8, 0x20
STATIC_PATHS = (4, 5)  # of HPACK's static table, which ends at 61
STATIC_ENTRIES = 61
FRAME_TYPES = ("Hello", "HelloReply", "Announce", "Pull", "Block", "Done", "Abort", "Ping", "Pong", "SharedPool",
               "SharedBlock", "NcclOffer", "NcclJoin", "NcclReady", "NcclBatch", "NcclLanded", "NcclStop",
               "TakesLayers", "SharedSlots", "SharedTaken")


class BytesTap:
    """Knows no messages: each piece of data is a unit."""

    def feed(self, _, data):
        return [(None, data)]


class TransferTap:
    """Parses the frames of kvtransfer/protocol/transfer_frame.h."""
    HEADER_BYTES = 20
    PAYLOAD_BYTES_AT = HEADER_BYTES + 32  # in a Block

    def __init__(self):
        self.buffers = {TO_SERVER: bytearray(), TO_CLIENT: bytearray()}

    def feed(self, direction, data):
        buffer = self.buffers[direction]
        buffer += data
        units = []
        while (size := self.frame_size(buffer)) is not None and len(buffer) >= size:
            units.append((FRAME_TYPES[buffer[5] - 1] + direction, bytes(buffer[:size])))
            del buffer[:size]
        return units

    def frame_size(self, buffer):
        if len(buffer) < self.HEADER_BYTES:
            return None
        size = self.HEADER_BYTES + struct.unpack_from("<I", buffer, 8)[0]
        if FRAME_TYPES[buffer[5] - 1] != "Block":
            return size
        if len(buffer) < self.PAYLOAD_BYTES_AT + 8:
            return None
        return size + struct.unpack_from("<q", buffer, self.PAYLOAD_BYTES_AT)[0]


class HeaderTable:
    """Minimal HPACK decoder (RFC 7541) that finds :path. gRPC's C core does not compress :path."""

    def __init__(self):
        self.entries = []  # [(name, value)], the newest first
        self.limit = 4096

    def path(self, block):
        """Decodes a header block. Returns its :path, or None."""
        at, path = 0, None
        while at < len(block):
            first = block[at]
            if first & 0x80:  # indexed
                index, at = self.integer(block, at, 7)
                name, value = self.entry(index)
            elif first & 0xE0 == 0x20:  # the table's size
                self.limit, at = self.integer(block, at, 5)
                self.evict()
                continue
            else:
                kept = bool(first & 0x40)
                index, at = self.integer(block, at, 6 if kept else 4)
                if index == 0:
                    name, at = self.string(block, at)
                else:
                    name = self.entry(index)[0]
                value, at = self.string(block, at)
                if kept:
                    self.entries.insert(0, (name, value))
                    self.evict()
            if name == b":path":
                path = value.decode("latin-1")
        return path

    def entry(self, index):
        if index <= STATIC_ENTRIES:
            return (b":path" if index in STATIC_PATHS else b"", b"")
        return self.entries[index - STATIC_ENTRIES - 1]

    def evict(self):
        while sum(len(name) + len(value) + 32 for name, value in self.entries) > self.limit:
            self.entries.pop()

    @staticmethod
    def integer(block, at, bits):
        value = block[at] & ((1 << bits) - 1)
        at += 1
        if value < (1 << bits) - 1:
            return value, at
        shift = 0
        while True:
            byte = block[at]
            at += 1
            value += (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value, at

    @classmethod
    def string(cls, block, at):
        length, begin = cls.integer(block, at, 7)
        return bytes(block[begin:begin + length]), begin + length


class HalfStream:
    """The gRPC messages of one call in one direction. A message follows one byte of flags and four bytes of length."""

    def __init__(self):
        self.buffered = bytearray()

    def messages_ended_by(self, data):
        self.buffered += data
        ended = 0
        while len(self.buffered) >= 5:
            size = 5 + struct.unpack_from(">I", self.buffered, 1)[0]
            if len(self.buffered) < size:
                break
            del self.buffered[:size]
            ended += 1
        return ended


class GrpcTap:
    """Parses gRPC. Units are HTTP/2 frames. A frame that ends several messages of a call counts once."""

    def __init__(self):
        self.buffers = {TO_SERVER: bytearray(), TO_CLIENT: bytearray()}
        self.greeted = False
        self.tables = {TO_SERVER: HeaderTable(), TO_CLIENT: HeaderTable()}
        self.blocks = {TO_SERVER: bytearray(), TO_CLIENT: bytearray()}
        self.methods = {}  # stream → method
        self.halves = {}   # (stream, direction) → HalfStream

    def feed(self, direction, data):
        buffer = self.buffers[direction]
        buffer += data
        units = []
        if direction == TO_SERVER and not self.greeted:
            if len(buffer) < len(PREFACE):
                return []
            self.greeted = True
            units.append((None, bytes(buffer[:len(PREFACE)])))
            del buffer[:len(PREFACE)]
        while len(buffer) >= 9 and len(buffer) >= (size := 9 + int.from_bytes(buffer[:3], "big")):
            frame = bytes(buffer[:size])
            del buffer[:size]
            units.append((self.name(direction, frame), frame))
        return units

    def name(self, direction, frame):
        kind, flags, stream = frame[3], frame[4], int.from_bytes(frame[5:9], "big")
        payload = frame[9:]
        if kind in (HEADERS, DATA) and flags & PADDED:
            payload = payload[1:len(payload) - payload[0]]
        if kind == HEADERS and flags & PRIORITY:
            payload = payload[5:]
        if kind in (HEADERS, CONTINUATION):
            return self.on_headers(direction, flags, stream, payload)
        if kind != DATA or stream not in self.methods:
            return None
        half = self.halves.setdefault((stream, direction), HalfStream())
        return self.methods[stream] + direction if half.messages_ended_by(payload) else None

    def on_headers(self, direction, flags, stream, payload):
        block = self.blocks[direction]
        block += payload
        if not flags & END_HEADERS:
            return None
        path = self.tables[direction].path(bytes(block))
        block.clear()
        if path is not None:
            self.methods[stream] = path.rsplit("/", 1)[-1]
            return None
        # Trailers: the server's last headers end the call.
        return self.methods.get(stream, "") + "$" if direction == TO_CLIENT and flags & END_STREAM else None
