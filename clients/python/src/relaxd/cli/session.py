"""What every command has: the server, the form of its output, and how its errors are told."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn, TypeAlias

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from relaxd import errors
from relaxd.client import Client
from relaxd.local import LOCAL, local_client

# Tables in a pipe or a file are not cut to a terminal that is not there.
PIPED_WIDTH = 160
OK, PROBLEM, USAGE, UNREACHABLE = 0, 1, 2, 3

Url: TypeAlias = Annotated[
    str, typer.Option("--url", envvar="RELAXD_URL", help="The server; `local` is one for this command alone.")
]
ApiKey: TypeAlias = Annotated[
    str | None, typer.Option("--api-key", envvar="RELAXD_API_KEY", help="For a server that asks for one.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]
Id: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="A Compilation: its id, its beginning, or `last`.")]

# Of the errors that change the request mends, these are the model's and not the command's.
_OF_THE_MODEL = (
    errors.EmptyModel,
    errors.DamagedModel,
    errors.UnsafeModel,
    errors.UnsupportedFormat,
    errors.CheckFailed,
    errors.CompilationNotReady,
    errors.NoSymptom,
    errors.Cancelled,
)


@dataclass(frozen=True)
class Session:
    """A connection, and where output goes: people read `console`, progress and errors are on `progress`."""

    client: Client
    url: str
    as_json: bool
    console: Console
    progress: Console

    def show(self, document: Any, *for_people: RenderableType) -> None:
        """The one output of a command: the document with ``--json``, else the renderables."""
        if self.as_json:
            typer.echo(json.dumps(document, indent=2))
            return
        for entry in for_people:
            self.console.print(entry, soft_wrap=isinstance(entry, (str, Text)))

    def resolve(self, text: str) -> str:
        """The id that `text` means: ``last``, the beginning of one, or `text` itself. Ends the command for two."""
        if text == "last":
            newest = self.client.compilations(1)
            return newest[0].id if newest else fail("there is no Compilation yet: relaxd compile FILE")
        if not re.fullmatch(r"[0-9a-f]{3,31}", text):
            return text
        found = [entry.id for entry in self.client.compilations() if entry.id.startswith(text)]
        if len(found) > 1:
            fail(f"{text} is the beginning of {len(found)} ids: {', '.join(found[:5])}")
        return found[0] if found else text


def fail(message: str, code: int = USAGE) -> NoReturn:
    """Ends the command with a message on stderr."""
    Console(stderr=True).print(f"[bold red]relaxd:[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(code)


@contextlib.contextmanager
def session(url: str, api_key: str | None, as_json: bool) -> Iterator[Session]:
    """A Session for one command. Errors of relaxd are told and become the exit code."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    progress = Console(stderr=True, highlight=False)
    try:
        with local_client() if url == LOCAL else Client(url, api_key=api_key) as client:
            yield Session(client, url, as_json, console, progress)
    except errors.RelaxdError as error:
        _tell(error, url, as_json, progress)
        raise typer.Exit(exit_code(error)) from None
    except (OSError, ValueError, IndexError, TypeError) as error:
        fail(str(error))


def exit_code(error: errors.RelaxdError) -> int:
    """1: the model or a pass; 2: the command; 3: no server, or one that cannot answer."""
    if isinstance(error, (errors.CompilationError, errors.StillRunning, *_OF_THE_MODEL)):
        return PROBLEM
    if isinstance(error, errors.RequestError):
        return USAGE
    return UNREACHABLE


def _tell(error: errors.RelaxdError, url: str, as_json: bool, progress: Console) -> None:
    """The error on stderr, with what to do next; with ``--json`` the problem document on stdout."""
    if as_json:
        slug = type(error).__name__
        document = error.args[0] if isinstance(error, errors.ProblemError) else {"error": slug, "detail": str(error)}
        typer.echo(json.dumps(document, indent=2))
        return
    if not isinstance(error, errors.ProblemError):
        progress.print(f"[bold red]relaxd:[/] {escape(str(error))}", soft_wrap=True)
        if isinstance(error, errors.ServerUnreachable) and url != LOCAL:
            hint = "another server: --url, or RELAXD_URL; one here: relaxd serve; without one: --url local"
            progress.print(f"[cyan]->[/] {hint}", soft_wrap=True)
        return
    progress.print(f"[bold red]{escape(error.title or error.slug)}[/] [dim]({error.slug}, {error.status})[/]")
    progress.print(escape(error.detail), soft_wrap=True)
    for line in what_to_do(error, url):
        progress.print(f"[cyan]->[/] {escape(line)}", soft_wrap=True)


def what_to_do(error: errors.ProblemError, url: str) -> list[str]:
    """The next things to try, one a line."""
    lines = []
    nearest = error.extensions.get("nearest") or ()
    if nearest and "did you mean" not in error.detail.lower():
        lines.append(f"did you mean {' or '.join(map(str, nearest[:3]))}?")
    if error.slug in ("not-authenticated", "not-permitted"):
        lines.append("give --api-key, or set RELAXD_API_KEY")
    if isinstance(error, errors.CompilationError) and error.compilation is not None:
        short = error.compilation + (f" --url {LOCAL}" if url == LOCAL else "")
        lines.append(f"the steps before it: relaxd show {short}")
        lines.append(f"which pass, and a smaller model: relaxd bisect {short}")
        lines.append(f"to run it without a server: relaxd download {short} --what repro")
    if url != LOCAL:
        lines.append(f"what it means: {url.rstrip('/')}/problems/{error.slug}")
    return lines
