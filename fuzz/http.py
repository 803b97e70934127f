"""Mutated requests on raw sockets against a real server: every answer is HTTP, none a 5xx, and it goes on answering."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import sys
import tempfile
import time
from pathlib import Path

from fuzz.run import FINDINGS, ROOT
from tests.conftest import Server, end_server, start_server

CORPUS = ROOT / "fuzz" / "corpus" / "http"
_ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n(?:[!-9;-~]+:[^\r\n]*\r\n)*\r\n")
_PIECES = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"Content-Length: 5\r\n", b"Content-Length: 99999999999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Host: 127.0.0.1\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n",
    b"Upgrade: websocket\r\nConnection: upgrade\r\n",
    b"0\r\n\r\n", b"5\r\nabcde\r\n", b"ffffffff\r\n", b"GET / HTTP/1.1\r\n",
    b"%00", b"%2e%2e/", b"\xff", b"--B\r\n", b"--B--\r\n", b"A" * 5000, b"X-A: b\r\n" * 200,
]  # fmt: skip


def main(seconds: float, seed: int) -> int:
    """Mutates until the time is over, or something is found."""
    rng, end, count = random.Random(seed), time.monotonic() + seconds, 0
    corpus = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    with tempfile.TemporaryDirectory() as folder:
        server = start_server(Path(folder) / "data", RELAXD_HEAD_S="0.5", RELAXD_WAIT_S="1")
        try:
            while time.monotonic() < end:
                sent = mutated(rng.choice(corpus), rng)
                count += 1
                fault = attempt(server, sent, rng)
                if fault:
                    (FINDINGS / f"http-{seed}-{count}.bin").write_bytes(sent)
                    print(f"{fault}: {sent[:300]!r}")
                    return 1
        finally:
            end_server(server)
    print(f"{count} requests, 0 findings")
    return 0


def mutated(request: bytes, rng: random.Random) -> bytes:
    """The request with one to four changes."""
    data = bytearray(request)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            data[at:at] = rng.choice(_PIECES)
        elif kind == 1 and data:
            del data[at : at + rng.randint(1, 20)]
        elif kind == 2 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 3:
            lines = bytes(data).split(b"\r\n")
            line = rng.choice(lines)
            lines.insert(rng.randrange(len(lines) + 1), line)
            data = bytearray(b"\r\n".join(lines))
        else:
            data += request
    return bytes(data)


def attempt(server: Server, sent: bytes, rng: random.Random) -> str | None:
    """What is wrong with how the server takes it; None when nothing is."""
    host, port = server.url.removeprefix("http://").split(":")
    received = b""
    with socket.create_connection((host, int(port)), 10) as sock, contextlib.suppress(ConnectionError, TimeoutError):
        cut = rng.randrange(len(sent) + 1)
        sock.sendall(sent[:cut])
        sock.sendall(sent[cut:])
        # Nothing more comes: an unfinished head ends by its deadline, an idle connection is left.
        sock.settimeout(0.7)
        while data := sock.recv(65536):
            received += data
            if len(received) > 1 << 20:
                break
    if server.process.poll() is not None:
        return "the server died"
    if received and not _ANSWER.match(received.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")):
        return f"no HTTP: {received[:100]!r}"
    for status in re.findall(rb"(?:^|\n)HTTP/1\.1 (\d{3}) ", received):
        if status.startswith(b"5"):
            return f"a status of {status.decode()}"
    if rng.random() < 0.05 and server.http.get("/healthz").status_code != 200:
        return "no health"
    return None


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
