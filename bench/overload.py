"""Many clients at once: is memory bounded, are refusals quick, does health answer, and is all of it given back?

``./dev bench overload`` runs 60 clients for 20 s; ``RELAXD_OVERLOAD_CLIENTS=500 RELAXD_OVERLOAD_S=600`` is the long
form, which ``./dev bench safety`` runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import Server, child_pids, end_server, start_server

# What clients ask for, and how often.
MIX = {"infer": 60, "read": 20, "health": 5, "compile": 5, "wrong": 5, "half open": 3, "slow body": 2}
SETTLE_S = 60.0
WARM_S = 10.0


@dataclass
class Seen:
    """What all clients have seen."""

    statuses: Counter[str] = field(default_factory=Counter)
    admitted_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused_ms: list[float] = field(default_factory=list)
    health_ms: list[float] = field(default_factory=list)
    cut: int = 0
    memory_mb: list[float] = field(default_factory=list)


class Load:
    """The clients of one server."""

    def __init__(self, server: Server, compilation: str, input_name: str, model: bytes) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.address = (host, int(port))
        self.seen = Seen()
        self._compilation = compilation
        self._infer = json.dumps({"model": compilation, "inputs": {input_name: [[0.5] * 8] * 2}}).encode()
        self._model = model
        self._numbers = itertools.count(1)
        self._rng = random.Random(1)

    async def client(self, end: float) -> None:
        """One client: a request after another on one connection, and a new one where that ends."""
        while time.monotonic() < end:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
                reader, writer = await asyncio.open_connection(*self.address)
                try:
                    while time.monotonic() < end:
                        await self._one(reader, writer)
                finally:
                    writer.close()
                continue
            self.seen.cut += 1
            await asyncio.sleep(0.05)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind = self._rng.choices(list(MIX), list(MIX.values()))[0]
        start = time.perf_counter()
        writer.write(self._request(kind))
        await writer.drain()
        if kind in ("half open", "slow body"):
            await asyncio.sleep(self._rng.uniform(0, 3))
            raise OSError("it hangs up")
        status = await _answer(reader)
        took = (time.perf_counter() - start) * 1e3
        self.seen.statuses[f"{kind} {status}"] += 1
        if status in (429, 503):
            self.seen.refused_ms.append(took)
        elif status < 400:
            self.seen.admitted_ms[kind].append(took)

    def _request(self, kind: str) -> bytes:
        make: dict[str, Callable[[], bytes]] = {
            "infer": lambda: _post("/infer", self._infer),
            "read": lambda: _get(self._rng.choice([f"/compile/{self._compilation}", "/passes", "/compile", "/"])),
            "health": lambda: _get("/healthz"),
            "compile": self._compile,
            "wrong": lambda: _post("/infer", b'{"model": "%s", "inputs": {}}' % os.urandom(8).hex().encode()),
            "half open": lambda: b"GET /healthz HTTP/1.1\r\nHost: ",
            "slow body": lambda: _post("/infer", b"x" * 1000)[:-900],
        }
        return make[kind]()

    def _compile(self) -> bytes:
        """A request that was not sent before."""
        passes = ["dead_code_elimination"] * (next(self._numbers) % 150 + 1)
        head = b'--B\r\nContent-Disposition: form-data; name="%s"\r\n\r\n'
        request = json.dumps({"passes": passes}).encode()
        body = head % b"model" + self._model + b"\r\n" + head % b"request" + request + b"\r\n--B--\r\n"
        return _post("/compile", body, b"Content-Type: multipart/form-data; boundary=B\r\nPrefer: respond-async\r\n")

    async def probe(self, server: Server, end: float) -> None:
        """Health by a client of its own, and the memory of all processes, once a second."""
        while time.monotonic() < end:
            start = time.perf_counter()
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(*self.address)
                writer.write(_get("/healthz"))
                if await _answer(reader) == 200:
                    self.seen.health_ms.append((time.perf_counter() - start) * 1e3)
                writer.close()
            self.seen.memory_mb.append(sum(memory_mb(server).values()))
            await asyncio.sleep(1.0)


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    if length:
        await reader.readexactly(int(length))
    if b"connection: close" in head.lower():
        raise ValueError("closed")
    return status


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def _post(path: str, body: bytes, headers: bytes = b"") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n".encode()
    return head + headers + b"\r\n" + body


def memory_mb(server: Server) -> dict[str, float]:
    """Memory of the web process, of the zygotes, and of all workers, in MB; what processes share is counted once.

    Without mapped files: the kernel can drop these, and other servers on the machine share them.
    """
    zygotes = server.zygote_pids()
    groups = {"web": [server.process.pid], "zygotes": zygotes, "workers": [p for z in zygotes for p in child_pids(z)]}
    return {name: round(sum(map(_own_kb, pids)) / 1024, 1) for name, pids in groups.items()}


def _own_kb(pid: int) -> int:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return 0


def measure(seconds: float, clients: int, folder: Path, model: bytes, times: int = 2) -> dict[str, Any]:
    """Starts a server, loads it so many times, lets it settle after each; the figures of the first time.

    Its memory at the start is that after the same mix of requests by a tenth of the clients: what the first requests
    load stays, and is no leak. After each time all that the clients have compiled is deleted, so that the server is as
    it was. Raises AssertionError when it is not well then.
    """
    server = start_server(folder / "data", RELAXD_QUEUED_COMPILATIONS="16")
    try:
        compiled = server.compile(model).json()
        load = Load(server, compiled["id"], compiled["signature"]["inputs"][0]["name"], model)
        asyncio.run(_run(load, server, WARM_S, clients // 10 + 1))
        idle, seen = [_settled(server, compiled["id"])], []
        for _ in range(times):
            load.seen = Seen()
            asyncio.run(_run(load, server, seconds, clients))
            seen.append(load.seen)
            idle.append(_settled(server, compiled["id"]))
        assert server.http.get("/healthz").json()["status"] == "ok"
        return {"seconds": seconds, "clients": clients, **_figures(seen[0]), "memory_mb": _memory(seen, idle)}
    finally:
        end_server(server)


async def _run(load: Load, server: Server, seconds: float, clients: int) -> None:
    end = time.monotonic() + seconds
    await asyncio.gather(load.probe(server, end), *(load.client(end) for _ in range(clients)))


def _settled(server: Server, kept: str) -> dict[str, float]:
    """The memory when nothing runs any more, and all but one Compilation is deleted; what ends may take a while."""
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        # One that runs is cancelled at first.
        others = [
            found for found in server.http.get("/compile?limit=1000").json()["compilations"] if found["id"] != kept
        ]
        if not others:
            break
        for compilation in others:
            server.http.delete(f"/compile/{compilation['id']}")
    # Longer than the server waits before it gives freed memory back.
    time.sleep(15.0)
    return memory_mb(server)


def _memory(seen: list[Seen], idle: list[dict[str, float]]) -> dict[str, Any]:
    """What was used at most, and what is used when nothing runs, at the start and after each time."""
    whole = [sum(parts.values()) for parts in idle]
    used = [value for each in seen for value in each.memory_mb]
    return {
        "peak": round(max(used, default=0.0), 1),
        "median": round(statistics.median(used or [0.0]), 1),
        "idle": idle,
        # After the first time against the start, after the second against the first.
        "idle_change": [round(after / before - 1, 4) for before, after in itertools.pairwise(whole)],
        "web_change": [round(after["web"] / before["web"] - 1, 4) for before, after in itertools.pairwise(idle)],
    }


def _figures(seen: Seen) -> dict[str, Any]:
    def spread(values: list[float]) -> dict[str, float]:
        if not values:
            return {}
        ordered = sorted(values)
        at = {"median": 0.5, "p99": 0.99}
        figures = {name: round(ordered[min(len(ordered) - 1, int(len(ordered) * q))], 2) for name, q in at.items()}
        return {"count": len(values), **figures, "max": round(ordered[-1], 2)}

    return {
        "answers": dict(sorted(seen.statuses.items())),
        "connections_that_ended": seen.cut,
        "admitted_ms": {kind: spread(values) for kind, values in sorted(seen.admitted_ms.items())},
        "refused_ms": spread(seen.refused_ms),
        "health_ms": spread(seen.health_ms),
        "health_probes_unanswered": len(seen.memory_mb) - len(seen.health_ms),
    }


def main() -> None:
    """Prints the figures."""
    from bench.safety import small_model

    seconds, clients = (
        float(os.environ.get("RELAXD_OVERLOAD_S", "20")),
        int(os.environ.get("RELAXD_OVERLOAD_CLIENTS", "60")),
    )
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(seconds, clients, Path(folder), small_model(Path(folder))), indent=1))


if __name__ == "__main__":
    main()
