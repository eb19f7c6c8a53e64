"""A connection to NATS, in its own words: https://docs.nats.io/reference/reference-protocols/nats-protocol"""

import json
import secrets
import socket
import threading
import urllib.parse

from lockstep_driver import Closed, DriverError

TIMEOUT = 10  # seconds to connect, and for an answer of JetStream


class Link:
    """One connection. When it breaks it stays so, and on_break(why) is called, unless it was closed here."""

    def __init__(self, url, lockstep, on_break=lambda why: None):
        at = urllib.parse.urlsplit(url)
        self.address = "%s:%d" % (at.hostname, at.port or 4222)
        self.broken = None  # why
        self._on_break = on_break
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._subscriptions, self._pongs, self._answers = {}, [], {}
        self._last = 0
        try:
            self._socket = socket.create_connection(lockstep.forward(self.address), timeout=TIMEOUT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._rest = self._greet(at)
        except (OSError, Closed) as e:
            raise Closed("connect to NATS at %s: %s" % (self.address, e)) from None
        self._socket.settimeout(None)
        self._inbox = b"_INBOX." + secrets.token_hex(8).encode()
        threading.Thread(target=self._read, daemon=True).start()
        self.subscribe(self._inbox + b".*", self._answered)

    def _greet(self, at):
        data = self._until(b"", b"INFO ")
        line, _, rest = data.partition(b"\r\n")
        self.info = json.loads(line[5:])
        hello = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "python", "name": "lockstep"}
        if at.username:
            hello.update(user=urllib.parse.unquote(at.username), **{"pass": urllib.parse.unquote(at.password or "")})
        self._socket.sendall(b"CONNECT " + json.dumps(hello).encode() + b"\r\nPING\r\n")
        data = self._until(rest, b"PONG")
        return data.partition(b"\r\n")[2]

    def _until(self, data, begins):
        """Reads until a whole line begins so."""
        while True:
            while b"\r\n" in data and not data.startswith(begins):
                line, _, data = data.partition(b"\r\n")
                if line.startswith(b"-ERR"):
                    raise Closed(line[5:].decode())
            if data.startswith(begins) and b"\r\n" in data:
                return data
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise Closed("it closes the connection")
            data += chunk

    def _read(self):
        data = self._rest
        try:
            while True:
                data = data[self._parse(data):]
                chunk = self._socket.recv(1 << 18)
                if not chunk:
                    raise Closed("closed by the other side")
                data = data + chunk if data else chunk
        except (OSError, Closed) as e:
            self.breaks(str(e))
        except Exception as e:  # a mistake here or in a callback: say which
            self.breaks("%s: %s" % (type(e).__name__, e))

    def _parse(self, data):
        """Hands out the whole messages in data, in one call for each subscription; says where they end."""
        at, got = 0, {}
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            if data.startswith((b"MSG ", b"HMSG "), at):
                words = data[at:end].split(b" ")
                size, start = int(words[-1]), end + 2
                if len(data) < start + size + 2:
                    break
                headed = words[0] == b"HMSG"
                head = int(words[-2]) if headed else 0
                reply = words[3] if len(words) == (6 if headed else 5) else b""
                got.setdefault(int(words[2]), []).append((words[1], reply, data[start:start + head], data[start + head:start + size]))
                end = start + size
            elif data.startswith(b"PING", at):
                self.send(b"PONG\r\n")
            elif data.startswith(b"PONG", at):
                self._pongs.pop(0).set()
            elif data.startswith(b"-ERR", at):
                raise Closed(data[at + 5:end].decode())
            at = end + 2
        for number, messages in got.items():
            callback = self._subscriptions.get(number)
            if callback:
                callback(messages)
        return at

    def send(self, data, pong=None):
        with self._sending:
            if self.broken:
                raise Closed(self.broken)
            if pong:
                self._pongs.append(pong)
            try:
                self._socket.sendall(data)
            except OSError as e:
                self.breaks(str(e))
                raise Closed(str(e)) from None

    def subscribe(self, subject, callback):
        """callback gets lists of (subject, reply, headers, body), from the thread that reads."""
        with self._lock:
            self._last += 1
            number = self._last
        self._subscriptions[number] = callback
        self.send(b"SUB %s %d\r\n" % (subject, number))
        return number

    def unsubscribe(self, number, timeout):
        """Returns when nothing more comes; what is on its way still comes before."""
        self.send(b"UNSUB %d\r\n" % number)
        self.flush(timeout)
        self._subscriptions.pop(number, None)

    def inbox(self):
        """A new subject. The subscription to answers does not match it, or the server would send there after unsubscribe."""
        with self._lock:
            self._last += 1
            return b"%s.p.%d" % (self._inbox, self._last)

    def flush(self, timeout):
        """Returns when the server has read all that was sent, and all it sent before was handed out; or in vain after the timeout."""
        pong = threading.Event()
        self.send(b"PING\r\n", pong)
        pong.wait(timeout)
        if self.broken:
            raise Closed(self.broken)

    def request(self, subject, payload=None):
        """Asks JetStream; errors in its answer are raised, with its code."""
        text = json.dumps(payload).encode() if payload is not None else b""
        answer = [threading.Event(), None]
        with self._lock:
            self._last += 1
            number = b"%d" % self._last
            self._answers[number] = answer
        self.send(b"PUB %s %s.%s %d\r\n%s\r\n" % (subject.encode(), self._inbox, number, len(text), text))
        answer[0].wait(TIMEOUT)
        self._answers.pop(number, None)
        if self.broken:
            raise Closed("%s at %s: %s" % (subject, self.address, self.broken))
        if answer[1] is None:
            raise DriverError("%s at %s: no answer within %d s" % (subject, self.address, TIMEOUT))
        _, _, headers, body = answer[1]
        if b" 503" in headers:
            raise DriverError("%s at %s: nobody answers: start the server with JetStream (nats-server -js)" % (subject, self.address))
        said = json.loads(body)
        if "error" in said:
            e = DriverError("%s: %s" % (subject, said["error"].get("description", "refused")))
            e.code = said["error"].get("err_code", 0)
            raise e
        return said

    def _answered(self, messages):
        for message in messages:
            answer = self._answers.get(message[0].rpartition(b".")[2])
            if answer:
                answer[1] = message
                answer[0].set()

    def breaks(self, why):
        if self._end(why):
            self._on_break(self.broken)

    def close(self):
        self._end("closed")

    def _end(self, why):
        with self._lock:
            if self.broken:
                return False
            self.broken = "NATS at %s: %s" % (self.address, why)
            pongs, self._pongs = self._pongs, []
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever reads or writes
        except OSError:
            pass
        self._socket.close()
        for event in pongs + [answer[0] for answer in list(self._answers.values())]:
            event.set()
        return True
