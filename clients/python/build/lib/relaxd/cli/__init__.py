"""The command line `relaxd`, on typer and rich: the extra ``cli`` of relaxd-client."""

from __future__ import annotations

import importlib.util
import sys


def main() -> None:
    """Runs the command line. Without typer and rich it says how to get them, and exits with 2."""
    missing = [name for name in ("typer", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(f"relaxd: the command line needs {' and '.join(missing)}: pip install 'relaxd-client[cli]'\n")
        sys.exit(2)
    from relaxd.cli.app import app

    app(prog_name="relaxd")
