"""New connections while the loop is busy."""

import asyncio
import errno
import socket

import uvicorn
import uvloop

from service import acceptor
from service.acceptor import Acceptor
from service.http_protocol import GuardedProtocol
from service.nouns import Limits

CLIENTS = 48


async def _app(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class _Taking(uvicorn.Server):
    """With an Acceptor, and one client after the other that has asked and has its answer."""

    def __init__(self, listener):
        config = uvicorn.Config(
            _app, http=GuardedProtocol.bound_to(Limits()), lifespan="off", ws="none", log_config=None, loop="uvloop"
        )
        super().__init__(config)
        self.listener = listener

    async def __aenter__(self):
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        # uvicorn closes its own.
        await self.startup([self.listener.dup()])
        self.acceptor = Acceptor(self, [self.listener])
        return self

    async def __aexit__(self, *_):
        self.acceptor.close()
        await self.shutdown()
        self.listener.close()


def _listener():
    listener = socket.create_server(("127.0.0.1", 0), backlog=CLIENTS)
    listener.setblocking(False)
    return listener


def _ask(address):
    client = socket.create_connection(address)
    client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    client.setblocking(False)
    return client


async def _answers(clients):
    loop = asyncio.get_running_loop()
    return [await asyncio.wait_for(loop.sock_recv(client, 64), 10) for client in clients]


def test_many_new_connections_are_taken_in_few_turns_of_the_loop():
    async def run():
        turns = 0

        def turn():
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        loop = asyncio.get_running_loop()
        async with _Taking(_listener()) as server:
            clients = [_ask(server.listener.getsockname()) for _ in range(CLIENTS)]
            loop.call_soon(turn)
            while len(server.server_state.connections) < CLIENTS:
                await asyncio.sleep(0)
            took = turns
            answers = await _answers(clients)
            for client in clients:
                client.close()
        return took, answers

    took, answers = uvloop.run(run())
    assert all(answer.startswith(b"HTTP/1.1 204") for answer in answers)
    # By libuv alone it takes one turn for each of them.
    assert took <= 2 * (CLIENTS // acceptor.MAX_AT_ONCE)


def test_when_no_descriptor_is_left_it_waits_and_goes_on(monkeypatch, caplog):
    monkeypatch.setattr(acceptor, "PAUSE_S", 0.01)
    accept, failed = socket.socket.accept, []

    def without_descriptors(listener):
        if len(failed) < 3:
            failed.append(listener)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", without_descriptors)

    async def run():
        listener = _listener()
        # Without uvicorn's own server, which would take the connection meanwhile.
        async with _Taking(listener) as server:
            server.servers[0].close()
            client = _ask(listener.getsockname())
            answers = await _answers([client])
            client.close()
        return answers

    (answer,) = uvloop.run(run())
    assert answer.startswith(b"HTTP/1.1 204")
    assert len(failed) == 3
    assert caplog.text.count("no connection can be taken") == 3


def test_after_its_end_nothing_is_taken_and_what_was_taken_goes_on():
    async def run():
        async with _Taking(_listener()) as server:
            first = _ask(server.listener.getsockname())
            answers = await _answers([first])
            for each in server.servers:
                each.close()
            server.acceptor.close()
            second = _ask(server.listener.getsockname())
            first.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            answers += await _answers([first])
            taken = len(server.server_state.connections)
            first.close()
            second.close()
        return answers, taken

    answers, taken = uvloop.run(run())
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 204"] * 2
    assert taken == 1
