"""Two ranks that speak to the launcher's store in plain Python. Rank 1 kills itself; rank 0 asks the store how it ended and
reports what it was waiting for."""

import hashlib
import hmac
import os
import signal
import socket
import struct
import time

SET, GET, WAIT = 1, 2, 3


def receive(connection, size):
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the store closed the connection"
        data += piece
    return data


class Store:
    def __init__(self, rank, world):
        host, _, port = os.environ["LOCKSTEP_STORE"].rpartition(":")
        key = os.environ["LOCKSTEP_SECRET"].encode()
        self.connection = socket.create_connection((host, int(port)), 5)
        magic, nonce = receive(self.connection, 8), receive(self.connection, 32)
        mine, claim = os.urandom(32), struct.pack("=IiiiQ", 1, rank, world, 0, 1000 + rank)

        def proof(label):
            return hmac.new(key, label + b"\0" + nonce + mine + claim, hashlib.sha256).digest()

        self.connection.sendall(magic + mine + claim + proof(b"client"))
        answer = receive(self.connection, 288)
        assert answer[0] == 1, answer[33:].rstrip(b"\0")
        assert answer[1:33] == proof(b"server")

    def call(self, op, key, value=b"", number=0):
        self.connection.sendall(struct.pack("=IIIIq", op, len(key), len(value), 0, number) + key + value)
        status, size, _ = struct.unpack("=IIq", receive(self.connection, 16))
        assert status == 1, status
        return receive(self.connection, size).decode()


rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = Store(rank, world)
if rank == 1:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
print("rank 1:", store.call(WAIT, b"exit/1", number=5000))
store.call(SET, b"waiting/0", b"recv from rank 1")
raise SystemExit(1)
