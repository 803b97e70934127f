"""Which of TVM's passes runs now, inside of a step or of the build: for the Problem of one that fails or dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tvm
from tvm import IRModule

from service.errors import JsonObject, Problem
from service.position import POSITION_BYTES, POSITION_FILE

# Does nothing but call others, and is no answer to the question which pass it was.
_SEQUENCE = "sequential"


@tvm.instrument.pass_instrument
class InnerPasses:
    """Follows the passes that begin and end; `note` is told of each change, to be left behind should the process die.

    After an exception, `innermost` is the pass that raised it and `module` what it was given, until `begin` is called.
    """

    def __init__(self, note: Callable[[JsonObject], None] = lambda _: None) -> None:
        self._note = note
        self._running: list[str] = []
        self.module: IRModule | None = None

    def begin(self) -> None:
        """Called before a step: what an earlier one left unfinished is forgotten."""
        self._running.clear()
        self.module = None
        self._note({})

    @property
    def innermost(self) -> str | None:
        """The name of the pass that runs now; None where none does."""
        return next((name for name in reversed(self._running) if name != _SEQUENCE), None)

    def run_before_pass(self, mod: IRModule, info: Any) -> None:
        """Called by TVM before each pass, nested ones too."""
        self.module = mod
        self._running.append(str(info.name))
        functions = mod.functions
        function = {"function": str(next(iter(functions)).name_hint)} if len(functions) == 1 else {}
        self._note({"inner_pass": self.innermost, **function})

    def run_after_pass(self, _mod: IRModule, info: Any) -> None:
        """Called by TVM after each pass that did not fail."""
        # One whose failure was caught has not been ended.
        while self._running and self._running.pop() != str(info.name):
            pass
        self._note({"inner_pass": self.innermost})

    @contextlib.contextmanager
    def named(self, mod: IRModule) -> Iterator[None]:
        """Adds to a Problem from the body the inner pass that raised it and the function that it was at, if known."""
        self.begin()
        try:
            yield
        except Problem as problem:
            found = {"inner_pass": self.innermost, "function": function_in_message(mod, problem)}
            problem.extensions |= {key: value for key, value in found.items() if value is not None}
            raise


def position_notes(work_dir: str) -> Callable[[JsonObject], None]:
    """Notes names in the position file of the work folder, where there is one."""
    file = Path(work_dir) / POSITION_FILE
    if not file.exists():
        return lambda _: None
    descriptor = os.open(file, os.O_WRONLY)

    def note(names: JsonObject) -> None:
        os.pwrite(descriptor, json.dumps(names).encode()[:POSITION_BYTES].ljust(POSITION_BYTES), 0)

    return note


def function_in_message(mod: IRModule, problem: Problem) -> str | None:
    """The one function of the module that the exception behind `problem` names, or that there is; else None."""
    names = sorted(str(gvar.name_hint) for gvar in mod.get_global_vars())
    if len(names) == 1:
        return names[0]
    message = str(problem.__cause__ or problem.detail)
    found = [name for name in names if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", message)]
    return found[0] if len(found) == 1 else None
