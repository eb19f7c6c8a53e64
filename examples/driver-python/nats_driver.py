#!/usr/bin/env python3
"""A Lockstep driver for NATS JetStream, with nothing but Python's standard library: an example of a driver in another language.

Each queue is a stream, each subscription a durable consumer of it, which Setup makes so that nothing sent after that is missed."""

import collections
import json
import os
import threading

from lockstep_driver import Closed, DriverError, serve
from nats_link import Link

GRACE = 1.5  # seconds to close in order

DESCRIPTION = {
    "protocol": 5,
    "name": "nats-python",
    "version": "1",
    "doc": "NATS JetStream, by a driver in Python: the example of a driver in another language.",
    "schema": open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "schema.cue")).read(),
    # The shared metrics have a unit already.
    "metrics": [
        {"name": "queues"}, {"name": "queue_depth"}, {"name": "unacked"},
        {"name": "pull_requests", "unit": "count", "doc": "requests for messages that wait at the task's consumers", "sum": True, "ofTask": True},
    ],
    "declares": [
        {
            "modes": ["fire-and-forget", "confirm-window", "confirm-batch", "confirm-each", "connection-per-message",
                      "connection-per-message-confirm"],
            "acks": ["each", "every", "interval"],
            "capabilities": {"persistent": True, "transient": True, "subscriptions": True, "redelivery": True},
            # What is not acknowledged in time is delivered again: no guarantee that there are no duplicates.
            "guarantees": {"confirmedKept": True, "ordered": True},
            "label": "stream in memory, confirm: in memory",
            "redeliverAfter": "options.ackWait",
            "resilience": "guide",
        },
        {"when": {"options.resilience": "none"}, "resilience": "none"},
        {"when": {"persistent": True}, "label": "stream on disk, confirm: written by one server, synced as configured there"},
        {"when": {"mode": ["fire-and-forget", "connection-per-message"]}, "label": "core publish, at most once"},
        {"when": {"prefetch": {"above": 16384}}, "rejections": ["this driver asks for at most 16384 messages at a time: give a smaller prefetch"]},
    ],
}


def stream(topology, queue):
    return "%s_q%d" % (topology["name"], queue)


class Session:
    def __init__(self, options, lockstep):
        self.options, self.lockstep = options, lockstep
        self._lock = threading.Lock()
        self._admin = Link(options["url"], lockstep)
        self._topology = None

    def connect(self, topology, spec, out):
        return Connection(self, out)

    def request(self, subject, payload=None):
        with self._lock:
            if self._admin.broken:
                self._admin = Link(self.options["url"], self.lockstep)
            admin = self._admin
        return admin.request("$JS.API." + subject, payload)

    def describe(self):
        info = self._admin.info
        return {"product": "NATS", "version": info["version"], "members": [info["server_name"]],
                "settings": {"jetstream": str(info.get("jetstream", False)).lower(), "replicas": str(self.options["replicas"])}}

    def probe(self):
        if self._topology is None:
            return []
        queues, subscriptions = self._topology["queues"], self._topology["subscriptions"]
        depth = unacked = pulls = 0
        for queue in range(queues):
            name = stream(self._topology, queue)
            depth += self.request("STREAM.INFO." + name)["state"]["messages"]
            for subscription in range(subscriptions):
                info = self.request("CONSUMER.INFO.%s.s%d" % (name, subscription))
                unacked += info["num_ack_pending"]
                pulls += info["num_waiting"]
        return [{"name": "queues", "value": queues}, {"name": "queue_depth", "value": depth},
                {"name": "unacked", "value": unacked}, {"name": "pull_requests", "value": pulls}]

    def setup(self, topology):
        self.teardown(topology)
        self._topology = topology
        storage = "file" if topology["persistent"] else "memory"
        for queue in range(topology["queues"]):
            name = stream(topology, queue)
            config = {"name": name, "subjects": [name], "storage": storage, "num_replicas": self.options["replicas"],
                      "retention": "interest", "discard": "new", "max_bytes": -1, "max_msgs": -1, "max_consumers": -1}
            if topology["consumers"] == 0:  # nobody would ever take anything away
                config.update(retention="limits", discard="old", max_bytes=256 << 20)
            self.request("STREAM.CREATE." + name, config)
            for subscription in range(topology["subscriptions"]):
                durable = "s%d" % subscription
                self.request("CONSUMER.DURABLE.CREATE.%s.%s" % (name, durable), {"stream_name": name, "config": {
                    "durable_name": durable, "ack_policy": "explicit", "ack_wait": int(self.options["ackWait"] * 1e9),
                    "deliver_policy": "all", "replay_policy": "instant", "max_ack_pending": -1, "max_deliver": -1, "max_waiting": 4096}})

    def teardown(self, topology):
        for queue in range(topology["queues"]):
            self._delete(stream(topology, queue))

    def _delete(self, name):
        try:
            self.request("STREAM.DELETE." + name)
        except DriverError as e:
            if getattr(e, "code", 0) != 10059:  # there is none
                raise

    def leftovers(self, prefix):
        names, more = [], True
        while more:
            said = self.request("STREAM.NAMES", {"offset": len(names)})
            page = said.get("streams") or []
            names += page
            more = page and len(names) < said["total"]
        return [{"kind": "stream", "name": name} for name in sorted(names) if name.startswith(prefix)]

    def cleanup(self, leftovers):
        for x in leftovers or []:
            self._delete(x["name"])


class Connection:
    def __init__(self, session, out):
        self.session = session
        self.link = Link(session.options["url"], session.lockstep, out.closed)
        self.node = self.link.address

    def publisher(self, topology, spec, out):
        self.session.request("STREAM.INFO." + stream(topology, spec["queue"]))
        return Publisher(self.link, topology, spec, out)

    def consumer(self, topology, spec, out):
        self.session.request("CONSUMER.INFO.%s.s%d" % (stream(topology, spec["queue"]), spec["subscription"]))
        return Consumer(self.link, topology, spec, out)

    def close(self):
        self.link.close()

    def cut(self):
        self.link.breaks("the connection was cut")


class Publisher:
    def __init__(self, link, topology, spec, out):
        self.link, self.out = link, out
        self.subject = stream(topology, spec["queue"]).encode()
        self.confirmed = spec["mode"] not in ("fire-and-forget", "connection-per-message")
        self.settled, self.outstanding = threading.Condition(), 0
        if self.confirmed:
            self.inbox = self.link.inbox()
            self.subscription = self.link.subscribe(self.inbox + b".*", self.on_confirm)
            self.link.flush(GRACE)

    def publish(self, first, messages):
        """The reply subject of a message ends in its number: that is where its confirm goes."""
        parts, large, limit = [], [], self.link.info["max_payload"]
        for number, (_, body) in enumerate(messages, first):
            if self.confirmed and len(body) > limit:  # the server would close the connection
                large.append(number)
                continue
            if self.confirmed:
                parts.append(b"PUB %s %s.%d %d\r\n" % (self.subject, self.inbox, number, len(body)))
            else:
                parts.append(b"PUB %s %d\r\n" % (self.subject, len(body)))
            parts += (body, b"\r\n")
        if large:
            self.out.confirm(large, "rejected", "the server accepts at most %d bytes" % limit)
        if self.confirmed:
            with self.settled:
                self.outstanding += len(messages) - len(large)
        self.link.send(b"".join(parts))

    def on_confirm(self, messages):
        good, bad = [], {}
        for subject, _, headers, body in messages:
            number = int(subject.rpartition(b".")[2])
            if b" 503" in headers:
                bad.setdefault("no stream takes it", []).append(number)
            elif b'"error"' in body:
                bad.setdefault(json.loads(body)["error"].get("description", "refused"), []).append(number)
            else:
                good.append(number)
        if good:
            self.out.confirm(good)
        for why, numbers in bad.items():
            self.out.confirm(numbers, "rejected", why)
        with self.settled:
            self.outstanding -= len(messages)
            self.settled.notify()

    def close(self):
        try:
            if self.confirmed:
                with self.settled:
                    self.settled.wait_for(lambda: self.outstanding <= 0 or self.link.broken, GRACE)
                self.link.unsubscribe(self.subscription, GRACE)
            else:
                self.link.flush(GRACE)
        except Closed:
            pass


class Consumer:
    """Asks for so many messages that at no time more than the prefetch are asked for or not acknowledged."""

    def __init__(self, link, topology, spec, out):
        self.link, self.out, self.prefetch = link, out, spec["prefetch"]
        self.lock, self.asked, self.replies = threading.Lock(), 0, collections.deque()
        self.next = b"$JS.API.CONSUMER.MSG.NEXT.%s.s%d" % (stream(topology, spec["queue"]).encode(), spec["subscription"])
        self.closing = False
        self.inbox = link.inbox()
        self.subscription = link.subscribe(self.inbox, self.on_messages)
        with self.lock:
            self.pull()
        link.flush(GRACE)

    def pull(self):
        """Asks for what there is place for, if it is half of the prefetch or nothing else would come."""
        free = self.prefetch - self.asked - len(self.replies)
        if self.closing or free < 1 or (self.asked > 0 and 2 * free < self.prefetch):
            return
        self.asked += free
        text = json.dumps({"batch": free, "expires": 30 * 10**9}).encode()
        self.link.send(b"PUB %s %s %d\r\n%s\r\n" % (self.next, self.inbox, len(text), text))

    def on_messages(self, messages):
        deliveries = []
        with self.lock:
            for _, reply, headers, body in messages:
                if not reply.startswith(b"$JS.ACK."):
                    self.on_status(headers)
                    continue
                words = reply.split(b".")  # $JS.ACK.stream.consumer.times…, or with a domain and an account before the stream
                times = words[4] if len(words) < 11 else words[6]
                self.asked -= 1
                self.replies.append(reply)
                deliveries.append((body, 1 if times == b"1" else 2, 0))
            self.pull()
        if deliveries:
            self.out.offer(deliveries)

    def on_status(self, headers):
        """A request has ended before all it asked for came."""
        left = headers.partition(b"Nats-Pending-Messages: ")[2].partition(b"\r\n")[0]
        self.asked -= int(left) if left else self.asked

    def ack(self, count):
        self.answer(count, b"+ACK")

    def nack(self, count):
        self.answer(count, b"-NAK")

    def answer(self, count, word):
        """Answers the oldest messages without an answer."""
        with self.lock:
            parts = []
            for _ in range(count):
                parts.append(b"PUB %s %d\r\n%s\r\n" % (self.replies.popleft(), len(word), word))
            self.link.send(b"".join(parts))
            self.pull()

    def close(self):
        """Gives back what has no answer."""
        self.closing = True
        try:
            self.link.unsubscribe(self.subscription, GRACE)
            self.nack(len(self.replies))
            self.link.flush(GRACE)
        except Closed:
            pass


if __name__ == "__main__":
    serve(DESCRIPTION, Session)
