"""Scriptable TCP proxy between two processes, for fault injection. It delays, stalls, cuts, truncates and corrupts the stream,
and calls a test's function when a certain message passes. Standard library only.

  proxy = FaultProxy(("127.0.0.1", 9000), GrpcTap)   # clients connect to proxy.address
  proxy.stall(TO_CLIENT)                             # a partition in one direction; proxy.heal() ends it
  proxy.when("Decode<", 3, kill)                     # calls kill() before the third response of Decode passes
  proxy.when("Block>", 1, CORRUPT)
  proxy.hold("Decode>")                              # keeps requests of Decode back; proxy.release() ends it

Settings of a direction apply to all connections, present and future. A fault at a message strikes once. The proxy runs on its
own thread and calls actions there.
"""

import asyncio
import socket
import struct
import threading

from message_taps import DATA, TO_CLIENT, TO_SERVER, BytesTap

BOTH = (TO_SERVER, TO_CLIENT)
CHUNK_BYTES = 1 << 16
LOOK_S = 0.005     # poll interval of a stalled direction
MAX_QUEUED = 256   # units in flight in one direction; at this limit the proxy stops reading


def CORRUPT(unit):
    """Flips one bit near the end of the unit, in its payload."""
    at = len(unit) - 1 - len(unit) // 8
    return unit[:at] + bytes([unit[at] ^ 0x10]) + unit[at + 1:]


def RESET(_):
    raise Cut(b"")


def TRUNCATE(unit):
    raise Cut(unit[:len(unit) // 2])


class Cut(Exception):
    """Ends the connection after `last_bytes`."""

    def __init__(self, last_bytes):
        super().__init__("cut")
        self.last_bytes = last_bytes


class Direction:
    """Fault settings of one direction."""

    def __init__(self):
        self.delay_s = 0.0
        self.bytes_per_s = None
        self.stalled = False


class FaultProxy:
    def __init__(self, target, tap=BytesTap):
        self.target = target
        self.tap = tap
        self.directions = {TO_SERVER: Direction(), TO_CLIENT: Direction()}
        self.refusing = False
        self.triggers = {}  # message name → [(count at which the action runs, action)]
        self.counts = {}    # message name → messages counted so far
        self.holding = set()  # message names
        self.connections = set()
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(started,), name="fault-proxy", daemon=True)
        self.thread.start()
        started.wait()

    # ---- for tests; from any thread ----

    def stall(self, *directions):
        for direction in directions or BOTH:
            self.directions[direction].stalled = True

    def delay(self, seconds, *directions):
        for direction in directions or BOTH:
            self.directions[direction].delay_s = seconds

    def cap(self, bytes_per_s, *directions):
        for direction in directions or BOTH:
            self.directions[direction].bytes_per_s = bytes_per_s

    def refuse(self):
        """Cuts every new connection at once."""
        self.refusing = True

    def heal(self):
        self.refusing = False
        for direction in BOTH:
            self.directions[direction].__init__()

    def reset(self):
        """Cuts all connections."""
        self.on_thread(lambda: [connection.cut() for connection in list(self.connections)])

    def when(self, name, nth, action):
        """Calls `action(unit)` once, before the nth message of this name from now on passes. The action may return bytes to send
        instead, or raise Cut."""
        def add():
            self.triggers.setdefault(name, []).append((self.counts.get(name, 0) + nth, action))
        self.on_thread(add)

    def hold(self, name):
        """Keeps all calls of gRPC with such a request back from now on, until release(). Everything else passes, so that the connection
        stays alive however long that takes."""
        self.on_thread(lambda: self.holding.add(name))

    def release(self):
        def pass_all():
            self.holding.clear()
            for connection in self.connections:
                connection.pass_held()
        self.on_thread(pass_all)

    def forget(self):
        """Removes all triggers."""
        self.on_thread(self.triggers.clear)

    def count(self, name):
        return self.counts.get(name, 0)

    def close(self):
        self.on_thread(self.end)
        self.thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- the proxy's thread ----

    def on_thread(self, function):
        done = threading.Event()
        def call():
            function()
            done.set()
        if threading.current_thread() is self.thread:
            return function()
        self.loop.call_soon_threadsafe(call)
        done.wait()

    def run(self, started):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        started.set()
        self.loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    def end(self):
        for connection in list(self.connections):
            connection.cut()
        self.loop.stop()

    async def serve(self, reader, writer):
        connection = Connection(self, writer)
        try:
            if self.refusing:
                return
            target = await asyncio.open_connection(*self.target)
            connection.writers[TO_SERVER] = target[1]
            self.connections.add(connection)
            await asyncio.gather(connection.pass_on(TO_SERVER, reader), connection.pass_on(TO_CLIENT, target[0]))
        except (OSError, Cut, asyncio.CancelledError):
            pass
        finally:
            self.connections.discard(connection)
            connection.cut()

    def struck(self, name, unit):
        """Counts a message and runs its triggers. Returns the bytes to send."""
        self.counts[name] = self.counts.get(name, 0) + 1
        waiting = self.triggers.get(name, [])
        for trigger in [t for t in waiting if t[0] == self.counts[name]]:
            waiting.remove(trigger)
            instead = trigger[1](unit)
            unit = instead if isinstance(instead, bytes) else unit
        return unit


class Connection:
    def __init__(self, proxy, client_writer):
        self.proxy = proxy
        self.tap = proxy.tap()
        self.writers = {TO_CLIENT: client_writer}
        self.held = {}  # stream of HTTP/2 → frames that are kept back

    def cut(self):
        """Resets the connection at both ends."""
        for writer in self.writers.values():
            held = writer.get_extra_info("socket")
            if held.fileno() >= 0:
                held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def keeps_back(self, name, frame):
        stream = frame[5:9]
        if name in self.proxy.holding:
            self.held.setdefault(stream, [])
        if stream not in self.held or frame[3] != DATA:
            return False
        self.held[stream].append(frame)
        return True

    def pass_held(self):
        for frames in self.held.values():
            self.writers[TO_SERVER].write(b"".join(frames))
        self.held.clear()

    async def pass_on(self, direction, reader):
        queue = asyncio.Queue()
        sender = asyncio.ensure_future(self.send(direction, queue))
        try:
            while data := await reader.read(CHUNK_BYTES):
                for name, unit in self.tap.feed(direction, data):
                    queue.put_nowait((self.proxy.loop.time(), name, unit))
                while queue.qsize() >= MAX_QUEUED and not sender.done():
                    await asyncio.sleep(LOOK_S)
                if sender.done():
                    break
            queue.put_nowait(None)
            await sender
        finally:
            sender.cancel()

    async def send(self, direction, queue):
        writer, how = self.writers[direction], self.proxy.directions[direction]
        while (item := await queue.get()) is not None:
            arrived, name, unit = item
            while how.stalled:
                await asyncio.sleep(LOOK_S)
            if (wait := arrived + how.delay_s - self.proxy.loop.time()) > 0:
                await asyncio.sleep(wait)
            if how.bytes_per_s is not None:
                await asyncio.sleep(len(unit) / how.bytes_per_s)
            try:
                if name is not None:
                    unit = self.proxy.struck(name, unit)
            except Cut as cut:
                writer.write(cut.last_bytes)
                await writer.drain()
                self.cut()
                raise
            if direction == TO_SERVER and (name in self.proxy.holding or self.held) and self.keeps_back(name, unit):
                continue
            writer.write(unit)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
