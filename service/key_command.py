"""``python -m service keys``: makes, lists and revokes API keys, also while the server runs."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from pathlib import Path
from typing import Any

from service.keys import SCOPES, Keys


def add_keys_command(commands: Any) -> None:
    """Adds the command to the parsers of `service.__main__`."""
    parser = commands.add_parser("keys", help="make, list and revoke API keys")
    actions = parser.add_subparsers(dest="action", required=True)
    create = actions.add_parser("create", help="make a key, or a new secret for one that is there, and print it")
    create.add_argument("name", help="who or what uses it: it stands in the audit log")
    create.add_argument("--scopes", default="compile,infer", help=f"of {', '.join(SCOPES)} (default: %(default)s)")
    revoke = actions.add_parser("revoke", help="make a key useless at once")
    revoke.add_argument("name")
    for action in (create, revoke, actions.add_parser("list", help="names, scopes and dates")):
        action.add_argument(
            "--data", type=Path, default=Path("data"), help="the server's data folder (default: ./data)"
        )


def run_keys_command(given: argparse.Namespace) -> int:
    """Runs one action; its exit code."""
    keys = Keys(given.data)
    try:
        if given.action == "create":
            sys.stdout.write(keys.create(given.name, tuple(given.scopes.split(","))) + "\n")
        elif given.action == "list":
            sys.stdout.writelines(f"{name}\t{scopes}\t{date}\n" for name, scopes, date in keys.all())
        elif not keys.revoke(given.name):
            sys.stderr.write(f"relaxd: there is no key {given.name!r}\n")
            return 1
    except (ValueError, OSError, sqlite3.Error) as error:
        sys.stderr.write(f"relaxd: {error}\n")
        return 1
    return 0
