"""One rank of a job, in plain Python, that knows the job's secret and does what no rank should do.

    impostor.py doors PROGRAM      attacks rank 0's data door before it calls there as rank 1, then passes the token on
    impostor.py frame KIND PROGRAM joins as rank 1, and then sends rank 0 a frame that no rank would send
    impostor.py store PROGRAM      attacks the store before it joins as rank 1, then passes the token on

Rank 0 is PROGRAM itself (`rank_under_test ring 10`). What the attacks meet is printed, one line for each."""

import hashlib
import hmac
import os
import socket
import struct
import sys
import threading
import time

SET, GET, WAIT, ADD, BARRIER = 1, 2, 3, 4, 5
MAGIC = b"LOCKSTP1"
SEGMENT, GOODBYE, FAILURE, MISMATCH = 0x5E61, 0xB1E5, 0xFA11, 0xD1FF
HOUR = 3_600_000  # milliseconds


def receive(connection, size):
    """So many bytes, or fewer if the other side closes first."""
    data = b""
    while len(data) < size:
        try:
            piece = connection.recv(size - len(data))
        except ConnectionError:
            piece = b""
        if not piece:
            break
        data += piece
    return data


def introduction(greeting, secret, claim, magic=MAGIC):
    """A client's introduction. claim: purpose (1 is the store, 2 is data), rank, world, generation, instance."""
    mine, packed = os.urandom(32), struct.pack("=IiiiQ", *claim)
    proof = hmac.new(secret, b"client\0" + greeting[8:40] + mine + packed, hashlib.sha256).digest()
    return magic + mine + packed + proof


def connect(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 15)


def shake_hands(address, secret, claim, magic=MAGIC, record=None):
    """(the connection, whether it was accepted, what the other side said)."""
    connection = connect(address)
    text = introduction(receive(connection, 40), secret, claim, magic)
    if record is not None:
        record.append(text)
    connection.sendall(text)
    answer = receive(connection, 288)
    return connection, answer[:1] == b"\1", answer[33:].rstrip(b"\0").decode(errors="replace")


def replay(address, text):
    """What is said to a recorded introduction that is sent once more."""
    with connect(address) as connection:
        receive(connection, 40)
        connection.sendall(text)
        answer = receive(connection, 288)
    return answer[:1] == b"\1", answer[33:].rstrip(b"\0").decode(errors="replace")


def talk_slowly(address, results):
    """One byte per second, of which each is right: how long the other side listens."""
    began = time.monotonic()
    with connect(address) as connection:
        receive(connection, 40)
        connection.settimeout(1)
        try:
            for byte in MAGIC + b"\0" * 4:
                connection.sendall(bytes([byte]))
                try:
                    if not connection.recv(1):
                        break
                except TimeoutError:
                    pass
        except ConnectionError:
            pass
    results.append(time.monotonic() - began)


class Store:
    def __init__(self, rank):
        self.address, self.secret = os.environ["LOCKSTEP_STORE"], os.environ["LOCKSTEP_SECRET"].encode()
        self.recorded = []
        self.connection, accepted, reason = shake_hands(self.address, self.secret, (1, rank, 2, 0, 77), record=self.recorded)
        assert accepted, reason

    def send(self, op, key, value=b"", number=0, count=0, lengths=None):
        key_bytes, value_bytes = lengths or (len(key), len(value))
        self.connection.sendall(struct.pack("=IIIIq", op, key_bytes, value_bytes, count, number) + key + value)

    def call(self, *arguments, **more):
        self.send(*arguments, **more)
        header = receive(self.connection, 16)
        if len(header) < 16:
            return None, b""
        status, size, _ = struct.unpack("=IIq", header)
        return status, receive(self.connection, size)

    def exchange(self, name, mine):
        self.call(SET, f"{name}/1".encode(), mine)
        texts = [self.call(WAIT, f"{name}/{rank}".encode(), number=20_000)[1].decode() for rank in range(2)]
        self.barrier(f"{name}/all")
        return texts

    def barrier(self, name):
        status, _ = self.call(BARRIER, name.encode(), number=20_000, count=2)
        assert status == 1, status


class Rank:
    """Rank 1 of 2. call() joins; between meet() and call() rank 0's door is open and waits for it."""

    def meet(self):
        self.store = Store(1)
        with open("/proc/self/stat") as file:
            started = file.read().rpartition(")")[2].split()[19]
        self.store.exchange("rank", f"elsewhere\nimpostor\n{os.getpid()}\n{started}\n".encode())
        self.door = self.store.exchange("tcp/door", b"127.0.0.1:1")[0]

    def call(self):
        self.recorded = []
        self.connection, accepted, reason = shake_hands(self.door, self.store.secret, (2, 1, 2, 0, 77), record=self.recorded)
        assert accepted, reason
        self.store.barrier("tcp/up")

    def frame(self, kind, tag=0, total=0, segment=0, data=b""):
        self.connection.sendall(struct.pack("=IIQQQQQ", kind, tag, total, segment, 0, 0, 0) + data)

    def pass_token(self, laps):
        for _ in range(laps):
            received = receive(self.connection, 48 + 8)
            assert len(received) == 56, "rank 0 has closed the connection"
            self.frame(SEGMENT, 0, 8, 8, received[48:])
        self.frame(GOODBYE)
        receive(self.connection, 48)


def say(attack, *what):
    print(attack, *what, flush=True)


def attack_doors(rank):
    rank.meet()
    secret, door = rank.store.secret, rank.door
    times = []
    slow = [threading.Thread(target=talk_slowly, args=(address, times)) for address in (door, rank.store.address) * 3]
    for thread in slow:
        thread.start()
    with connect(door) as half:
        half.sendall(MAGIC + b"h" * 40)  # half of an introduction, and then nothing
        for name, key, claim, magic in (
                ("wrong secret", b"x" * 64, (2, 1, 2, 0, 77), MAGIC),
                ("no secret", b"", (2, 1, 2, 0, 77), MAGIC),
                ("wrong version", secret, (2, 1, 2, 0, 77), b"LOCKSTP2"),
                ("wrong purpose", secret, (1, 1, 2, 0, 77), MAGIC),
                ("wrong rank", secret, (2, 0, 2, 0, 77), MAGIC),
                ("negative rank", secret, (2, -2147483648, 2, 0, 77), MAGIC),
                ("wrong world", secret, (2, 1, 3, 0, 77), MAGIC),
                ("older start", secret, (2, 1, 2, -1, 77), MAGIC)):
            connection, accepted, reason = shake_hands(door, key, claim, magic)
            connection.close()
            say(name, accepted, reason)
        say("replay of the store's", *replay(door, rank.store.recorded[0]))
        say("replay at the store", *replay(rank.store.address, rank.store.recorded[0]))
        # An introduction that is right, but for the nonce of another connection that is still open.
        with connect(door) as first, connect(door) as second:
            receive(second, 40)
            second.sendall(introduction(receive(first, 40), secret, (2, 1, 2, 0, 77)))
            say("nonce of another", *(lambda answer: (answer[:1] == b"\1", answer[33:].rstrip(b"\0").decode()))(receive(second, 288)))
        for thread in slow:
            thread.join()
        say("slow talkers", len(times), f"{max(times):.1f}")
        rank.call()
    rank.pass_token(10)


def attack_store(rank):
    watcher = Store(-1)
    for name, arguments, lengths in (
            ("huge key", (SET, b"k", b""), (0xFFFFFFFF, 0)),
            ("huge value", (SET, b"k", b""), (1, 0xFFFFFFFF)),
            ("both huge", (WAIT, b"k", b""), (0x80000000, 0x80000000)),
            ("just too long", (SET, b"k" * 257, b""), (257, 0)),
            ("unknown request", (99, b"k", b""), None),
            ("request zero", (0, b"k", b""), None)):
        status, _ = Store(-1).call(*arguments, lengths=lengths)
        say(name, "closed" if status is None else status)
    say("empty key", Store(-1).call(SET, b"", b"x")[0])
    say("negative wait", Store(-1).call(WAIT, b"never", number=-(1 << 62))[0])
    talker = Store(-1)
    talker.send(WAIT, b"never", number=HOUR)
    try:
        for _ in range(64):
            talker.connection.sendall(b"\0" * 65536)
        say("talks while it waits", "closed" if not receive(talker.connection, 1) else "answered")
    except ConnectionError:
        say("talks while it waits", "closed")
    # It asks for 64 answers of 1 MiB each, and reads none of them.
    watcher.call(SET, b"big", b"b" * (1 << 20))
    try:
        for _ in range(64):
            watcher.send(GET, b"big")
        time.sleep(0.3)
        got = len(receive(watcher.connection, 65 << 20))
        say("does not read", "closed" if got < 64 << 20 else "answered")
    except ConnectionError:
        say("does not read", "closed")
    say("rank out of range", *shake_hands(os.environ["LOCKSTEP_STORE"], os.environ["LOCKSTEP_SECRET"].encode(), (1, 1 << 30, 2, 0, 5))[1:])
    rank.meet()
    say("a second rank 1", *shake_hands(rank.store.address, rank.store.secret, (1, 1, 2, 0, 78))[1:])
    rank.call()
    rank.pass_token(10)


def send_frame(rank, kind):
    rank.meet()
    rank.call()
    frames = {
        "endless": dict(kind=SEGMENT, tag=5, total=1 << 63, segment=1 << 63),
        "no-memory": dict(kind=SEGMENT, tag=5, total=1 << 45, segment=1 << 20),
        "segment-above-total": dict(kind=SEGMENT, tag=5, total=8, segment=1 << 20),
        "posted-too-long": dict(kind=SEGMENT, tag=0, total=1 << 45, segment=1 << 20),
        "unknown-kind": dict(kind=0xDEAD),
        "garbage": dict(kind=0x20544547, tag=0x202F, total=1 << 60, segment=1 << 60, data=b"GET / HTTP/1.1\r\n\r\n"),
        "endless-failure": dict(kind=FAILURE, total=1 << 40, segment=1 << 40),
        "failure-of-nobody": dict(kind=FAILURE, tag=0x7FFFFFFF, total=5, segment=5, data=b"words"),
        "failure-of-minus-one": dict(kind=FAILURE, tag=0xFFFFFFFF, total=5, segment=5, data=b"words"),
        "failure-with-escapes": dict(kind=FAILURE, tag=1, total=11, segment=11, data=b"a\nb\x1b[31mc\0\xff"),
        "mismatch-of-nobody": dict(kind=MISMATCH, tag=99, total=5, segment=5, data=b"words"),
    }
    rank.frame(**frames[kind])
    rank.connection.settimeout(5)
    while receive(rank.connection, 1 << 16):  # until rank 0 has ended
        pass


def main():
    if os.environ["RANK"] == "0":
        os.execv(sys.argv[-1], [sys.argv[-1], "ring", "10"])
    rank = Rank()
    if sys.argv[1] == "frame":
        send_frame(rank, sys.argv[2])
    else:
        {"doors": attack_doors, "store": attack_store}[sys.argv[1]](rank)


if __name__ == "__main__":
    main()
