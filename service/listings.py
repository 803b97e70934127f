"""Functions in the text of a stage that is text alone: bytecode of the virtual machine, LLVM IR, assembly."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right

from service.errors import JsonObject

# A kernel, the function that unpacks its arguments (LLVM inlines the former into the latter where it can), and the
# bodies of parallel loops.
_KERNEL = re.compile(r"__tvm_ffi_(?P<wrapper>\w+)|(?P<kernel>\w+?)_compute_|(?P<loop>__tvm_parallel_lambda[.\w]*)")
_LLVM_DEFINITION = re.compile(r'^define [^@]*@"?([\w.$]+)"?\(')
_BYTECODE_LABEL = re.compile(r"^@?(\w+):$")
_BYTECODE_IMPORT = re.compile(r"^@[\w.]+ packed_func;$")
_SYMBOL = re.compile(r"^[0-9a-f]+ <([\w.$]+)>:$")
# "    1a2b:\tvaddps ymm0,ymm1,ymm2": the address and the instruction.
_INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(.*)$")
# A row of the table of lines, of ``objdump --dwarf=decodedline``: the line, and the address where it begins.
_TABLE_ROW = re.compile(r"^\S+ +(\d+) +0x([0-9a-f]+)\b")
# Where an instruction of LLVM comes from, and that place.
_LLVM_PLACE = re.compile(r"!dbg !(\d+)")
_LLVM_LINE = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)")
# Fillers between functions, which are never run.
_FILLER = re.compile(r"(?:data16 )*(?:cs )?nop|int3|xchg\s+ax,ax")


def kernel_of(symbol: str) -> str | None:
    """The kernel that a symbol of the library belongs to; None where it belongs to none."""
    found = _KERNEL.fullmatch(symbol)
    return None if found is None else found["wrapper"] or found["kernel"] or found["loop"]


def text_function(name: str, kind: str, text: str) -> JsonObject:
    """A function of a stage that is text alone, in the form of the other stages."""
    return {
        "name": name, "kind": kind, "primitive": False, "ops": {}, "calls": [], "bindings": [], "constants": 0,
        "constant_bytes": 0, "flops": None, "bytes_moved": None, "text": text,
    }  # fmt: skip


def snapshot_of(functions: list[JsonObject]) -> JsonObject:
    """A Snapshot of such a stage: it has no text beside that of its functions, and no step before it."""
    return {"text": "\n".join(str(entry["text"]) for entry in functions), "functions": functions, "changes": None}


def bytecode_functions(text: str) -> list[JsonObject]:
    """The functions of an executable of the virtual machine, from its printed form."""
    bodies: dict[str, list[str]] = {}
    name: str | None = None
    for line in text.splitlines():
        label = _BYTECODE_LABEL.match(line)
        if label is not None:
            name = label[1]
        if name is not None and not _BYTECODE_IMPORT.match(line):
            bodies.setdefault(name, []).append(line.rstrip())
    return _functions("vm", {name: "\n".join(lines).rstrip().splitlines() for name, lines in bodies.items()})


def llvm_functions(text: str) -> list[JsonObject]:
    """The kernels of an LLVM module, without the functions that they share for reporting errors.

    ``made_of`` has for each line of their text the line in the debug information; 0 for none.
    """
    places = {found[1]: int(found[2]) for found in map(_LLVM_LINE.match, text.splitlines()) if found}
    bodies: dict[str, list[str]] = {}
    name: str | None = None
    for line in text.splitlines():
        definition = _LLVM_DEFINITION.match(line)
        if definition is not None:
            name = kernel_of(definition[1])
        if name is not None:
            bodies.setdefault(name, []).append(line)
            if line == "}":
                name = None
    made_of = {name: [_llvm_line(line, places) for line in lines] for name, lines in bodies.items()}
    return _functions("llvm", bodies, made_of)


def _llvm_line(line: str, places: dict[str, int]) -> int:
    found = None if line.startswith("define") else _LLVM_PLACE.search(line)
    return 0 if found is None else places.get(found[1], 0)


def assembly_functions(text: str) -> list[JsonObject]:
    """The kernels in what ``objdump --disassemble --dwarf=decodedline`` prints, from first label to last instruction.

    ``made_of`` has for each line of their text the line in the debug information; 0 for none.
    """
    bodies: dict[str, list[str]] = {}
    addresses: dict[str, list[int | None]] = {}
    table: list[tuple[int, int]] = []
    name: str | None = None
    for line in text.splitlines():
        symbol = _SYMBOL.match(line)
        if symbol is not None:
            name = kernel_of(symbol[1])
            if name is not None:
                bodies.setdefault(name, []).append(f"{symbol[1]}:")
                addresses.setdefault(name, []).append(None)
            continue
        instruction = _INSTRUCTION.match(line)
        row = _TABLE_ROW.match(line) if instruction is None else None
        if row is not None:
            table.append((int(row[2], 16), int(row[1])))
        elif name is not None and instruction is not None:
            bodies[name].append(f"  {instruction[1]:>6}:  {instruction[2].rstrip()}")
            addresses[name].append(int(instruction[1], 16))
    # Of rows with one address the last is in force.
    table = sorted(dict(table).items())
    made_of = {name: [_line_at(table, address) for address in each] for name, each in addresses.items()}
    return _functions("asm", {name: _without_filler(lines) for name, lines in bodies.items()}, made_of)


def _line_at(table: list[tuple[int, int]], address: int | None) -> int:
    at = -1 if address is None else bisect_right(table, (address, sys.maxsize)) - 1
    return table[at][1] if at >= 0 else 0


def _without_filler(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and _FILLER.match(lines[end - 1].partition(":  ")[2].strip()):
        end -= 1
    return lines[:end]


def _functions(
    kind: str, bodies: dict[str, list[str]], made_of: dict[str, list[int]] | None = None
) -> list[JsonObject]:
    functions = []
    for name, lines in sorted(bodies.items()):
        entry = text_function(name, kind, "\n".join(lines) + "\n")
        functions.append(entry if made_of is None else entry | {"made_of": made_of[name][: len(lines)]})
    return functions
