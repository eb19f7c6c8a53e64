"""The Lockstep half of a driver in Python: frames on standard input and output, and who is called in which thread.

A driver gives serve() its description and a class of sessions:

    class Session:
        def __init__(self, options, lockstep): ...          # open; lockstep has forward(address), event(kind, detail), retried(count), dir
        def setup(self, topology): ...
        def teardown(self, topology): ...
        def describe(self): ...                             # {"product": ..., "version": ...}
        def connect(self, topology, spec, out): ...         # a connection

    class Connection:
        node = "host:port"                                  # of the broker; "" if there is not exactly one
        def publisher(self, topology, spec, out): ...       # an object with publish(first, messages) and close()
        def consumer(self, topology, spec, out): ...        # an object with ack(count), nack(count) and close()
        def close(self): ...
        def cut(self): ...                                  # breaks the connection without waiting, and reports its end

Lockstep decides who shares a connection, and when to acknowledge.
Methods of a session or connection run in a thread for each call, except cut.
Those of one publisher or consumer run one after the other, in a thread of its own.
The thread that reads frames never waits for the broker, so that a broker that hangs does not look like a driver that hangs.
docs/reference/driver-protocol.md describes the protocol.
"""

import collections
import json
import os
import queue
import struct
import sys
import threading
import traceback

CLOSE_SECONDS = 2  # until the connection of a publisher or consumer that cannot close in order is cut


class DriverError(Exception):
    """Something went wrong."""
    kind = "other"


class Closed(DriverError):
    """The link to the broker is gone."""
    kind = "closed"


class Unsupported(DriverError):
    """The driver did not declare this."""
    kind = "unsupported"


class Channel:
    """Frames: two lengths of 4 bytes, a header in JSON, a body. Sending is safe from several threads."""

    def __init__(self):
        self._in = os.fdopen(os.dup(0), "rb", 1 << 18)
        self._out = os.fdopen(os.dup(1), "wb", 1 << 18)
        os.dup2(2, 1)  # a print() belongs into the log, not between two frames
        sys.stdout = sys.stderr
        self._lock = threading.Lock()

    def send(self, header, body=b""):
        text = json.dumps(header, separators=(",", ":")).encode()
        with self._lock:
            self._out.write(struct.pack(">II", len(text), len(body)))
            self._out.write(text)
            self._out.write(body)
            self._out.flush()

    def receive(self):
        """The next header and body, or None at the end."""
        lengths = self._in.read(8)
        if len(lengths) < 8:
            return None
        header, body = struct.unpack(">II", lengths)
        return json.loads(self._in.read(header)), self._in.read(body)


class Lockstep:
    """What a session may ask of Lockstep."""

    def __init__(self, channel):
        self._channel, self._lock, self._waiting, self._last = channel, threading.Lock(), {}, 0
        self._local = {}
        self.dir = ""

    def forward(self, address):
        """A local (host, port) that leads to address. The only way out: Lockstep counts, delays and cuts what goes through it."""
        with self._lock:
            if address in self._local:
                return self._local[address]
            self._last += 1
            answer = self._waiting[self._last] = queue.SimpleQueue()
            self._channel.send({"type": "forward", "id": self._last, "address": address})
        header = answer.get()
        if header["type"] == "failed":
            raise DriverError("forward to %s: %s" % (address, header.get("message", "")))
        host, _, port = header["local"].rpartition(":")
        self._local[address] = host.strip("[]"), int(port)
        return self._local[address]

    def event(self, kind, detail):
        self._channel.send({"type": "event", "kind": kind, "detail": detail})

    def retried(self, count):
        """The client library repeated so many requests, because of a failure. At the latest when their publisher closes."""
        self._channel.send({"type": "retried", "count": count})

    def answered(self, header):
        self._waiting.pop(header["id"]).put(header)


class End:
    """What a connection tells Lockstep."""

    def __init__(self, channel, number):
        self._channel, self._number = channel, number

    def closed(self, message):
        """The connection broke by itself: Lockstep fails what is outstanding and connects again."""
        self._channel.send({"type": "closed", "conn": self._number, "message": message})


class Confirms:
    """What a publisher tells Lockstep."""

    def __init__(self, channel, number):
        self._channel, self._number = channel, number

    def taken(self, count, size):
        self._channel.send({"type": "taken", "publisher": self._number, "count": count, "bytes": size})

    def confirm(self, numbers, kind="", message=""):
        """Settles messages by number; kind is "" for those that the broker has, else "rejected" or "closed".
        Call it once per answer of the broker: its messages get one time."""
        ranges = []
        for n in sorted(numbers):
            if ranges and ranges[-1][1] == n - 1:
                ranges[-1][1] = n
            else:
                ranges.append([n, n])
        self._channel.send({"type": "confirm", "publisher": self._number, "numbers": ranges, "kind": kind, "message": message})

    def closed(self, message):
        """The publisher ended, and its connection did not."""
        self._channel.send({"type": "closed", "publisher": self._number, "message": message})


class Deliveries:
    """What a consumer tells Lockstep: messages, as far as the window allows; the rest waits here."""

    def __init__(self, channel, number, window):
        self._channel, self._number = channel, number
        self._most_messages, self._most_bytes = window["messages"], window["bytes"]
        self._lock, self._waiting, self._count, self._bytes = threading.Lock(), collections.deque(), 0, 0

    def offer(self, deliveries):
        """Passes on (body, redelivered, stream, last) in order. redelivered is 0 not said, 1 no, 2 yes.
        last is 1 if the broker drops the message when it is rejected, and may be left out. Does not wait."""
        with self._lock:
            self._waiting.extend(deliveries)
            self._pump()

    def handled(self, count, size):
        with self._lock:
            self._count -= count
            self._bytes -= size
            self._pump()

    def _pump(self):
        entries, bodies = [], []
        while self._waiting and self._count < self._most_messages and self._bytes < self._most_bytes:
            body, *about = self._waiting.popleft()
            entries.append((len(body), *about))
            bodies.append(body)
            self._count += 1
            self._bytes += len(body)
        if entries:
            self._channel.send({"type": "deliver", "consumer": self._number, "deliveries": entries}, b"".join(bodies))

    def closed(self, message):
        """The consumer ended, and its connection did not."""
        self._channel.send({"type": "closed", "consumer": self._number, "message": message})


class Worker:
    """Does what concerns one publisher or consumer, one thing after the other, in a thread of its own."""

    def __init__(self, part, out, connection):
        self.part, self.out, self._connection = part, out, connection
        self._jobs, self._ended = queue.SimpleQueue(), threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        try:
            while not self._ended.is_set():
                self._jobs.get()()
        except Exception:  # a mistake in the driver: Lockstep reports these lines
            traceback.print_exc()
            os._exit(1)

    def do(self, job):
        self._jobs.put(job)

    def close(self, done):
        """Closes behind all that was asked before; if that takes too long, without it."""
        timer = threading.Timer(CLOSE_SECONDS, self._connection.cut)
        timer.daemon = True
        timer.start()

        def job():
            self.part.close()
            timer.cancel()
            self._ended.set()
            done()
        self.do(job)


class Server:
    """Hands frames out."""

    def __init__(self, description, session_class):
        self._description, self._session_class = description, session_class
        self._channel = Channel()
        self._lockstep = Lockstep(self._channel)
        self._session = None
        self._window = None
        self._connections, self._workers = {}, {}  # by number; workers are of publishers and consumers
        self._outlets = {}  # of consumers, by number: used before their worker is there

    def run(self):
        while True:
            frame = self._channel.receive()
            if frame is None:
                os._exit(0)  # the session is closed, or Lockstep is gone
            self._hear(*frame)

    def _hear(self, header, body):
        kind = header["type"]
        if kind == "publish":
            self._publish(header, body)
        elif kind in ("ack", "nack"):
            self._answered(kind, header)
        elif kind == "handled":
            self._handled(header)
        elif kind == "cut":
            connection = self._connections.get(header["conn"])
            if connection:
                connection.cut()
        elif kind == "ping":
            self._channel.send({"type": "done", "id": header["id"]})
        elif kind == "close":
            self._close(header)
        elif kind in ("done", "failed"):
            self._lockstep.answered(header)
        elif kind != "cancel":  # all that is called here has a deadline of its own
            threading.Thread(target=self._answer, args=(kind, header), daemon=True).start()

    def _answer(self, kind, header):
        try:
            result = self._call(kind, header)
        except DriverError as e:
            self._failed(header["id"], e.kind, str(e))
        except Exception as e:  # a mistake in the driver: say which
            self._failed(header["id"], "other", "%s: %s" % (type(e).__name__, e))
        else:
            self._channel.send({"type": "done", "id": header["id"], "result": result})

    def _failed(self, request, kind, message):
        self._channel.send({"type": "failed", "id": request, "kind": kind, "message": message})

    def _call(self, kind, header):
        if kind == "hello":
            return self._description
        if kind == "open":
            self._window = header["window"]
            self._lockstep.dir = header.get("dir", "")
            self._session = self._session_class(header["options"], self._lockstep)
            return None
        if kind == "connect":
            connection = self._session.connect(header["topology"], header["spec"], End(self._channel, header["conn"]))
            self._connections[header["conn"]] = connection
            return {"node": connection.node}
        if kind in ("publisher", "consumer"):
            connection, number = self._connections[header["conn"]], header[kind]
            if kind == "publisher":
                out = Confirms(self._channel, number)
            else:
                out = self._outlets[number] = Deliveries(self._channel, number, self._window)
            part = getattr(connection, kind)(header["topology"], header["spec"], out)
            self._workers[number] = Worker(part, out, connection)
            return None
        arguments = {"setup": ("topology",), "teardown": ("topology",), "describe": (), "probe": (), "leftovers": ("prefix",), "cleanup": ("leftovers",)}
        method = getattr(self._session, kind, None)
        if method is None or kind not in arguments:
            raise Unsupported("this driver knows no %s" % kind)
        return method(*(header.get(name) for name in arguments[kind]))

    def _publish(self, header, body):
        worker, first, messages, at = self._workers[header["publisher"]], header["first"], [], 0
        for key, size in header["messages"]:
            messages.append((key, body[at:at + size]))
            at += size

        def job():
            try:
                worker.part.publish(first, messages)
            except Closed:
                pass  # said by the link
            worker.out.taken(len(messages), len(body))
        worker.do(job)

    def _answered(self, kind, header):
        worker = self._workers.get(header["consumer"])
        if worker is None:
            return

        def job():
            try:
                getattr(worker.part, kind)(header["count"])
            except Closed:
                pass  # said by the link
        worker.do(job)

    def _handled(self, header):
        outlet = self._outlets.get(header["consumer"])
        if outlet:
            outlet.handled(header["count"], header["bytes"])

    def _close(self, header):
        def done():
            self._channel.send({"type": "done", "id": header["id"]})

        number = header.get("publisher") or header.get("consumer")
        self._outlets.pop(number, None)
        worker = self._workers.pop(number, None)
        connection = self._connections.pop(header.get("conn"), None)
        if worker:
            worker.close(done)
        elif connection:
            def close():
                connection.close()
                done()
            threading.Thread(target=close, daemon=True).start()
        else:
            done()


def serve(description, session_class):
    """Serves one session until standard input ends."""
    Server(description, session_class).run()
