"""Ends with 0 when one of the brokers HOST:PORT… sends the greeting of OpenWire, as only one that serves clients does."""

import socket
import sys


def greets(address):
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=3) as connection:
            connection.settimeout(3)
            return b"ActiveMQ" in connection.recv(64)
    except OSError:
        return False


found = [address for address in sys.argv[1:] if greets(address)]
print("greets:", *found)
sys.exit(0 if found else 1)
