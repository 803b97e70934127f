"""``python -m service``: serve, or show the Catalogue."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import uvicorn

from service.api.app import create_app, open_data
from service.fast_lane import FastLane
from service.journal import JournalTooNew
from service.key_command import add_keys_command, run_keys_command
from service.keys import Keys
from service.pool import Pool
from service.request_log import configure_logging
from service.sandbox_probe import probe_sandbox
from service.serving import Server, end_with_stdin
from service.settings import (
    Settings,
    SettingsError,
    check_sandbox,
    layers_off,
    limits_from_environment,
    request_log_from_environment,
)
from service.store.directory import StoreBusy
from service.version import VERSION

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="relaxd", description="ML compilation as an HTTP API.")
    parser.add_argument("--version", action="version", version=f"relaxd {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_serve_command(commands)
    add_keys_command(commands)
    commands.add_parser("passes", help="print the Catalogue as JSON")
    given = parser.parse_args(arguments)
    if given.command == "passes":
        return asyncio.run(_print_catalogue())
    if given.command == "keys":
        return run_keys_command(given)
    try:
        limits = limits_from_environment(os.environ)
        if given.end_with_stdin:
            end_with_stdin()
        settings = Settings(
            host=given.host,
            port=given.port,
            data=given.data,
            limits=limits,
            allow_weak_sandbox=given.allow_weak_sandbox,
            insecure=given.insecure,
            socket=given.socket,
            evict=given.evict,
            request_log=request_log_from_environment(os.environ),
            web_processes=given.web_processes,
        )
        return serve(settings)
    except (SettingsError, StoreBusy, JournalTooNew, sqlite3.Error, OSError) as error:
        hint = f" (the data folder is {given.data}; --data names another)" if isinstance(error, OSError) else ""
        sys.stderr.write(f"relaxd: {error}{hint}\n")
        return 1


def _add_serve_command(commands: Any) -> None:
    serve_parser = commands.add_parser("serve", help="run the server")
    serve_parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    serve_parser.add_argument(
        "--port", type=_port, default=8000, help="port; 0 takes a free one (default: %(default)s)"
    )
    serve_parser.add_argument(
        "--socket", type=Path, help="listen on a Unix socket of this path instead; who may reach it, its folder says"
    )
    serve_parser.add_argument("--data", type=Path, default=Path("data"), help="folder for all data (default: ./data)")
    serve_parser.add_argument(
        "--allow-weak-sandbox",
        action="store_true",
        help="serve although the kernel lacks a required layer of the sandbox: uploaded files may then do more harm",
    )
    serve_parser.add_argument(
        "--insecure", action="store_true", help="ask nobody for an API key, whoever can reach the address"
    )
    serve_parser.add_argument(
        "--end-with-stdin", action="store_true", help="stop when standard input ends, as with the process that holds it"
    )
    serve_parser.add_argument(
        "--evict",
        action="store_true",
        help="at a quota of stored bytes, delete the compilations used longest ago instead of refusing new ones",
    )
    serve_parser.add_argument(
        "--web-processes",
        type=_positive,
        default=1,
        metavar="N",
        help="how many processes take connections and answer inferences (default: %(default)s)",
    )


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 256:
        raise argparse.ArgumentTypeError(f"must be from 1 to 256, not {number}")
    return number


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"must be from 0 to 65535, not {number}")
    return number


def serve(settings: Settings) -> int:
    """Serves until SIGTERM or SIGINT. Raises StoreBusy, JournalTooNew, SettingsError, sqlite3.Error, OSError."""
    if settings.socket is not None and settings.web_processes > 1:
        raise SettingsError("several web processes share a port, not a Unix socket: leave out --socket")
    _check_keys(settings)
    configure_logging()
    _check_sandbox(settings)
    config = uvicorn.Config(
        create_app(settings, open_data(settings.data)),
        host=settings.host,
        port=settings.port,
        uds=None if settings.socket is None else str(settings.socket),
        loop="uvloop",
        http=FastLane.bound_to(settings.limits),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=10,
    )
    return Server(config).serve_forever()


def _check_keys(settings: Settings) -> None:
    """Raises SettingsError when others could reach the server and nobody has a key."""
    if not settings.is_local and not settings.insecure and not Keys(settings.data).all():
        raise SettingsError(
            f"{settings.host} can be reached by others, and there is no API key. Make one with "
            f"`python -m service keys create NAME --scopes compile,infer --data {settings.data}`, "
            "or say --insecure to serve everybody"
        )


def _check_sandbox(settings: Settings) -> None:
    """Raises SettingsError when a required layer of the sandbox does not work here, unless that is allowed."""
    layers = asyncio.run(probe_sandbox())
    for name, state in layers_off(layers).items():
        log.warning("sandbox: %s is %s", name, state)
    check_sandbox(layers, settings)


async def _print_catalogue() -> int:
    pool = Pool()
    try:
        zygote = await pool.zygote("compile")
        sys.stdout.write(json.dumps(zygote.announcement["catalogue"], indent=1) + "\n")
    finally:
        await pool.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
