"""A pickle read as what it is, a program, without running it: every class, call and state becomes a record."""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from service.compiler.readers.refusal import damaged, shown, unsafe

MAX_BYTES = 64 << 20
MAX_OPERATIONS = 3_000_000


@dataclass(frozen=True)
class Global:
    """A module's attribute that the pickle names, never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Call:
    """An object that the pickle would make: what it would call, with what, and the state it would then be given."""

    function: Any
    arguments: Any
    keywords: Any = None
    state: Any = None
    items: list[Any] = field(default_factory=list)
    pairs: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(eq=False)
class Persistent:
    """A reference to something outside the pickle, such as a storage."""

    key: Any


class _Mark:
    pass


_MARK = _Mark()


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self, where: str) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.where = where

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise damaged("The pickle takes from an empty stack", self.where)
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                taken = self.stack[index + 1 :]
                del self.stack[index:]
                return taken
        raise damaged("The pickle has no mark where it needs one", self.where)

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise damaged("The pickle looks at an empty stack", self.where)
        return self.stack[-1]

    def set_items(self, flat: list[Any]) -> None:
        target = self.top()
        if len(flat) % 2:
            raise damaged("The pickle has a key without a value", self.where)
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        if isinstance(target, Call):
            target.pairs.extend(pairs)
        elif isinstance(target, dict):
            for key, value in pairs:
                target[self.key(key)] = value
        else:
            raise damaged("The pickle sets an item of what is no dict", self.where)

    def append(self, values: list[Any]) -> None:
        target = self.top()
        if isinstance(target, Call):
            target.items.extend(values)
        elif isinstance(target, list):
            target.extend(values)
        else:
            raise damaged("The pickle appends to what is no list", self.where)

    def key(self, value: Any) -> Any:
        if not isinstance(value, (str, int, float, bool, bytes, type(None), Global)):
            raise damaged("The pickle has a dict key that is no plain value", self.where)
        return value

    def global_(self, module: Any, name: Any) -> Global:
        if not isinstance(module, str) or not isinstance(name, str) or len(module) + len(name) > 1000:
            raise damaged("The pickle names a class by what is no name", self.where)
        return Global(module, name)

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if not isinstance(target, Call):
            raise unsafe("The pickle sets the state of a plain value", self.where)
        if target.state is not None:
            raise unsafe("The pickle sets the state of an object twice", self.where)
        target.state = state


_Step = Callable[[_Machine, Any], None]


def _push(machine: _Machine, argument: Any) -> None:
    machine.stack.append(argument)


def _constant(make: Callable[[], Any]) -> _Step:
    return lambda machine, _: machine.stack.append(make())


def _tuple_of(count: int) -> _Step:
    def step(machine: _Machine, _: Any) -> None:
        parts = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(parts)))

    return step


def _set(machine: _Machine, _: Any) -> None:
    machine.stack.append([machine.key(value) for value in machine.pop_to_mark()])


def _dict(machine: _Machine, _: Any) -> None:
    flat = machine.pop_to_mark()
    machine.stack.append({})
    machine.set_items(flat)


def _reduce(machine: _Machine, _: Any) -> None:
    arguments, function = machine.pop(), machine.pop()
    machine.stack.append(Call(function, arguments))


def _new_with_keywords(machine: _Machine, _: Any) -> None:
    keywords, arguments, function = machine.pop(), machine.pop(), machine.pop()
    machine.stack.append(Call(function, arguments, keywords))


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.pop(), machine.pop()
    machine.stack.append(machine.global_(module, name))


def _put(machine: _Machine, argument: Any) -> None:
    machine.memo[int(argument)] = machine.top()


def _get(machine: _Machine, argument: Any) -> None:
    if int(argument) not in machine.memo:
        raise damaged("The pickle refers to what it has not made", machine.where)
    machine.stack.append(machine.memo[int(argument)])


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_items([key, value])


_PLAIN_VALUES = (
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES "
    "SHORT_BINBYTES BINBYTES8 UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8"
)
_STEPS: dict[str, _Step] = {
    **dict.fromkeys(_PLAIN_VALUES.split(), _push),
    **dict.fromkeys(("PROTO", "FRAME"), lambda *_: None),
    "NONE": _constant(lambda: None),
    "NEWTRUE": _constant(lambda: True),
    "NEWFALSE": _constant(lambda: False),
    "EMPTY_LIST": _constant(list),
    "EMPTY_DICT": _constant(dict),
    "EMPTY_TUPLE": _constant(tuple),
    "EMPTY_SET": _constant(list),
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_to_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "LIST": lambda machine, _: machine.stack.append(machine.pop_to_mark()),
    "DICT": _dict,
    "FROZENSET": _set,
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "ADDITEMS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "GLOBAL": lambda machine, argument: machine.stack.append(machine.global_(*str(argument).split(" ", 1))),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "NEWOBJ_EX": _new_with_keywords,
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.stack.append(Persistent(machine.pop())),
    "MEMOIZE": lambda machine, _: _put(machine, len(machine.memo)),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
    "POP": lambda machine, _: _discard(machine),
    "POP_MARK": lambda machine, _: _discard_to_mark(machine),
    "DUP": lambda machine, _: machine.stack.append(machine.top()),
}


def _discard(machine: _Machine) -> None:
    if machine.stack:
        machine.stack.pop()


def _discard_to_mark(machine: _Machine) -> None:
    machine.pop_to_mark()


def read_pickle(data: bytes, where: str) -> Any:
    """What the pickle describes, of plain values, Global, Call and Persistent. Raises DamagedModel, UnsafeModel.

    Containers can share parts and contain themselves: who walks them counts steps.
    """
    if len(data) > MAX_BYTES:
        raise unsafe(f"A pickle has {len(data)} bytes, at most {MAX_BYTES} are taken", where)
    machine = _Machine(where)
    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if operation.name == "STOP":
                return machine.pop()
            if count > MAX_OPERATIONS:
                raise unsafe("A pickle has too many operations", where)
            if operation.name not in _STEPS:
                raise unsafe(f"The pickle has the operation {operation.name}, which no PyTorch file needs", where)
            _STEPS[operation.name](machine, argument)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, UnicodeError, RecursionError) as error:
        raise damaged(f"The pickle cannot be read: {shown(str(error))}", where) from error
    raise damaged("The pickle ends before its end", where)
