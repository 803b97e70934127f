"""`relaxd ls`, `rm`, `passes`, `doctor` and `serve`: the server and what it has."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from relaxd.cli.session import PROBLEM, UNREACHABLE, ApiKey, AsJson, Url, fail, session
from relaxd.client import Client
from relaxd.connection import DEFAULT_URL
from relaxd.errors import RequestError, ServerUnreachable
from relaxd.version import __version__

# Without these a server serves only with --allow-weak-sandbox; the others add to them where the machine has them.
REQUIRED_LAYERS = ("limits", "no_new_privs", "landlock", "seccomp")


def ls(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many.")] = 20,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """The newest Compilations."""
    with session(url, api_key, as_json) as opened:
        found = opened.client.compilations(limit)
        table = Table("id", "state", "model", "recipe", "made", box=None, pad_edge=False)
        for entry in found:
            recipe = entry.recipe.name or f"{len(entry.recipe.passes)} passes"
            made = (entry.created_at or "")[:19].replace("T", " ")
            table.add_row(entry.id[:12], entry.state, entry.model.filename or entry.model.format, recipe, made)
        opened.show({"compilations": [entry.raw for entry in found]}, table)


def rm(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Compilations.")],
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Cancel Compilations that run; delete those that have ended."""
    with session(url, api_key, as_json) as opened:
        gone = [opened.resolve(text) for text in ids]
        for entry in gone:
            opened.client.delete(entry)
        opened.show({"deleted": gone}, *gone)


def passes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One pass or preset, in full.")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """The passes and presets that the server has; or all about one."""
    with session(url, api_key, as_json) as opened:
        known, recipes = opened.client.passes(), opened.client.recipes()
        presets = [
            {"name": recipe.name, "doc": recipe.doc, "passes": [vars(spec) for spec in recipe.passes]}
            for recipe in recipes
        ]
        if name is not None:
            entry = next((dict(info.raw) for info in known if info.name == name), None)
            entry = entry or next((preset for preset in presets if preset["name"] == name), None)
            if entry is None:
                fail(f"there is no pass or preset {name!r}: relaxd passes")
            opened.show(entry, Text(name, style="bold"), Markdown(str(entry["doc"])), *_details(entry))
            return
        table = Table("stage", "pass", "what it does", box=None, pad_edge=False)
        for info in known:
            table.add_row(info.stage, info.name, info.summary)
        listed = Table("preset", "passes", box=None, pad_edge=False)
        for recipe in recipes:
            listed.add_row(recipe.name, ", ".join(spec.name for spec in recipe.passes))
        document = {"passes": [info.raw for info in known], "recipes": presets}
        opened.show(document, table, Text(), listed)


def _details(entry: dict[str, Any]) -> list[RenderableType]:
    if "options" not in entry:
        return [Text(", ".join(spec["name"] for spec in entry["passes"]))]
    table = Table("option", "type", "default", "", box=None, pad_edge=False)
    options = entry["options"].get("properties", {})
    for name, schema in options.items():
        kind = schema.get("type") or " or ".join(map(str, schema.get("enum", ["-"])))
        table.add_row(name, str(kind), str(schema.get("default", "-")), str(schema.get("description", "")))
    return [table] if options else []


def doctor(url: Url = DEFAULT_URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Check the server, its sandbox and toolchain, and what this machine has. 0 when all is well."""
    here = _this_machine()
    with session(url, api_key, as_json) as opened:
        try:
            health: dict[str, Any] | None = opened.client.health()
        except ServerUnreachable as error:
            health, reason = None, str(error)
        table = Table("", "", "", box=None, pad_edge=False, show_header=False)
        document: dict[str, Any] = {"client": here, "url": url, "server": health}
        if health is None:
            document["error"] = reason
            _line(table, False, "server", reason)
        else:
            document["toolchain"] = _toolchain(opened.client)
            _server_lines(table, url, health, document["toolchain"])
        for name, value in here.items():
            _line(table, value is not None, name, value or "not here (needed to run `relaxd serve` only)", here=True)
        opened.show(document, table)
    if health is None:
        raise typer.Exit(UNREACHABLE)
    if health.get("status") == "degraded" or _weak(health):
        raise typer.Exit(PROBLEM)


def _server_lines(table: Table, url: str, health: dict[str, Any], toolchain: dict[str, Any] | None) -> None:
    status = str(health.get("status"))
    _line(table, status != "degraded", "server", f"{status} at {url}, version {health.get('version', '?')}")
    for name, state in health.get("zygotes", {}).items():
        _line(table, state != "failed", f"worker {name}", str(state))
    for role, layers in health.get("sandbox", {}).items():
        off = [f"{layer}: {state}" for layer, state in layers.items() if state != "on"]
        on = ", ".join(layer for layer, state in layers.items() if state == "on")
        _line(table, not _weak({"sandbox": {role: layers}}), f"sandbox {role}", "; ".join([on, *off]))
    for name, value in (toolchain or {}).items():
        _line(table, True, f"toolchain {name}", str(value))


def _weak(health: dict[str, Any]) -> bool:
    """Whether a layer is off that a server needs for files of strangers."""
    roles = health.get("sandbox", {}).values()
    return any(layers.get(name, "on") != "on" for layers in roles for name in REQUIRED_LAYERS)


def _toolchain(client: Client) -> dict[str, Any] | None:
    """That of the newest Compilation, the one place where a server tells it."""
    try:
        newest = client.compilations(1)
    except RequestError:
        return None
    return dict(newest[0].raw.get("toolchain") or {}) if newest else None


def _this_machine() -> dict[str, str | None]:
    """Versions of what is installed beside the client; None for what is not."""
    found: dict[str, str | None] = {"relaxd-client": __version__, "python": platform.python_version()}
    for name in ("relaxd", "torch", "apache-tvm"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    found["ld"] = shutil.which("ld")
    return found


def _line(table: Table, well: bool, name: str, text: str, here: bool = False) -> None:
    mark = Text("ok", style="green") if well else Text("-" if here else "no", style="dim" if here else "bold red")
    table.add_row(mark, name, Text(text))


def serve(context: typer.Context) -> None:
    """Run the server here: all that follows is for `python -m service serve` (--host, --port, --data)."""
    if importlib.util.find_spec("service") is None:
        fail("the server is not installed beside the client: in a checkout of relaxd, ./dev serve")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "service", "serve", *context.args])  # noqa: S606


def version(show: bool) -> None:
    """Prints the version and ends."""
    if show:
        typer.echo(f"relaxd {__version__}")
        raise typer.Exit
