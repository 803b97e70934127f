"""How the server is set up: from command line flags and ``RELAXD_*`` environment variables."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from service.errors import JsonObject
from service.nouns import REQUIRED_LAYERS, Limits
from service.request_log import WANTED


class SettingsError(Exception):
    """A setting cannot be used; the message names it."""


@dataclass(frozen=True)
class Settings:
    """Where the server listens, where it keeps its data, its Limits, and what it may do without: layers, keys.

    With `socket` it listens on a Unix socket of that path, in place of host and port. With `evict`, what was used
    longest ago is deleted where a quota of stored bytes would refuse a request.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    data: Path = Path("data")
    limits: Limits = field(default_factory=Limits)
    allow_weak_sandbox: bool = False
    insecure: bool = False
    socket: Path | None = None
    evict: bool = False
    # Of which requests the log has a line: `request_log.WANTED`.
    request_log: str = "failed"
    # How many processes take connections: the first one, and so many less one `service.front`.
    web_processes: int = 1

    @property
    def session_limits(self) -> Limits:
        """The Limits of one web process: together they load no more than `loaded_bytes`."""
        return dataclasses.replace(self.limits, loaded_bytes=self.limits.loaded_bytes // self.web_processes)

    def to_json(self) -> JsonObject:
        """For another process of this server."""
        paths = {"data": str(self.data), "socket": None if self.socket is None else str(self.socket)}
        return {**dataclasses.asdict(self), **paths}

    @classmethod
    def from_json(cls, document: JsonObject) -> Settings:
        """What `to_json` has made."""
        socket = None if document["socket"] is None else Path(document["socket"])
        limits = Limits(**document["limits"])
        return cls(**{**document, "data": Path(document["data"]), "socket": socket, "limits": limits})

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.socket is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def default_limits() -> Limits:
    """The Limits of this machine: one Compilation for each core that this process may use, also for one caller."""
    cores = max(1, len(os.sched_getaffinity(0)))
    return Limits(concurrent_compilations=cores, caller_concurrent_compilations=cores)


def limits_from_environment(environ: Mapping[str, str]) -> Limits:
    """`default_limits`, with each field that ``RELAXD_<FIELD>`` names (``RELAXD_COMPILE_S=60``) replaced.

    Raises SettingsError for a value that is not a positive number.
    """
    changes: dict[str, int | float] = {}
    defaults = default_limits()
    for entry in dataclasses.fields(Limits):
        variable = f"RELAXD_{entry.name.upper()}"
        if variable not in environ:
            continue
        number = float if isinstance(getattr(defaults, entry.name), float) else int
        try:
            value = number(environ[variable])
        except ValueError as error:
            raise SettingsError(f"{variable} must be a number, not {environ[variable]!r}") from error
        if not value > 0:
            raise SettingsError(f"{variable} must be more than 0, not {environ[variable]!r}")
        changes[entry.name] = value
    return dataclasses.replace(defaults, **changes)  # type: ignore[arg-type]


def request_log_from_environment(environ: Mapping[str, str]) -> str:
    """``RELAXD_REQUEST_LOG``, or the default. Raises SettingsError for what is not one of `WANTED`."""
    wanted = environ.get("RELAXD_REQUEST_LOG", Settings.request_log)
    if wanted not in WANTED:
        raise SettingsError(f"RELAXD_REQUEST_LOG must be {', '.join(WANTED)}, not {wanted!r}")
    return wanted


def layers_off(layers: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Of the states of the sandbox's layers by role: those that are not on, and why."""
    off = {f"{role}: {name}": state for role, states in layers.items() for name, state in states.items()}
    return {name: state for name, state in off.items() if not state.startswith("on")}


def check_sandbox(layers: Mapping[str, Mapping[str, str]], settings: Settings) -> None:
    """Raises SettingsError when a required layer of the sandbox does not work here, unless that is allowed."""
    required = [name for name in layers_off(layers) if name.partition(": ")[2] in REQUIRED_LAYERS]
    if required and not settings.allow_weak_sandbox:
        raise SettingsError(
            f"the sandbox lacks required layers ({', '.join(required)}), so an uploaded file could read files or reach "
            "the network as the user of this server. Use a kernel with Landlock and seccomp, or say "
            "--allow-weak-sandbox if you trust everybody who can reach it"
        )
