"""From the lines of a kernel's text to what the build makes of them, down to the instruction.

Each statement of a kernel gets a Span with the line that it has in the text of the last Snapshot. TVM's lowering keeps
the Spans of stores, and its code generation writes them into LLVM's debug information, from where they come into that
of the library. Neither the module nor the machine code is another for that.
"""

from __future__ import annotations

import re
from typing import Any

import tvm_ffi
from tvm import IRModule, tirx
from tvm.ir import SourceName, Span

_KINDS = (tirx.For, tirx.BufferStore, tirx.IfThenElse, tirx.Evaluate, tirx.Bind)
# Apart from Spans that a parser of TVMScript has given.
_SOURCE = "relaxd.kernel"
# What the printer writes for an annotation: a line of its own before a statement with a body, else the end of the line.
_MARK = re.compile(r"(?P<code>.*?)(?:^\s*|\s{2})# @(?P<number>\d+)$")


def with_lines(mod: IRModule) -> IRModule:
    """`mod`, structurally equal, with the lines of their statements in its kernels."""
    functions = {
        gvar: _with_lines(function) if isinstance(function, tirx.PrimFunc) else function
        for gvar, function in mod.functions.items()
    }
    return IRModule(functions, attrs=mod.attrs)


def lines_made_of(function: tirx.PrimFunc) -> list[int]:
    """For each line of the text of a lowered kernel, the line that `with_lines` has given its statement; 0 for none."""
    statements, lines, length = _printed(function)
    made_of = [0] * length
    for statement, line in zip(statements, lines, strict=True):
        if line and _line_of(statement):
            made_of[line - 1] = _line_of(statement)
    return made_of


def given_lines(function: tirx.PrimFunc) -> list[int]:
    """The lines that `with_lines` has given the statements, in the order of their ends; 0 for none."""
    lines: list[int] = []
    tvm_ffi.structural_walk(function.body, (_KINDS, lambda each: lines.append(_line_of(each))))
    return lines


def _line_of(statement: Any) -> int:
    span = statement.span
    return int(span.line) if span is not None and span.source_name.name == _SOURCE else 0


def _with_lines(function: tirx.PrimFunc) -> tirx.PrimFunc:
    _, lines, _ = _printed(function)
    # The mapping calls in the order in which the walk does: bodies first.
    remaining = iter(lines)
    source = SourceName(_SOURCE)

    def place(statement: Any) -> Any:
        line = next(remaining)
        return _placed(statement, Span(source, line, line, 0, 0))

    return function.with_body(tvm_ffi.structural_map(function.body, (_KINDS, place)))


def _placed(each: Any, span: Span) -> Any:
    if isinstance(each, tirx.For):
        parts = (each.loop_var, each.min, each.extent, each.kind, each.body, each.thread_binding)
        return tirx.For(*parts, each.annotations, each.step, span)
    if isinstance(each, tirx.BufferStore):
        return tirx.BufferStore(each.buffer, each.value, each.indices, span)
    if isinstance(each, tirx.IfThenElse):
        return tirx.IfThenElse(each.condition, each.then_case, each.else_case, span)
    return tirx.Bind(each.var, each.value, span) if isinstance(each, tirx.Bind) else tirx.Evaluate(each.value, span)


def _printed(function: tirx.PrimFunc) -> tuple[list[Any], list[int], int]:
    """The statements in the order of their ends, the line of each in the function's text, and how many lines it has."""
    statements: list[Any] = []
    tvm_ffi.structural_walk(function.body, (_KINDS, statements.append))
    marks = {statement: f"@{number}" for number, statement in enumerate(statements)}
    found: dict[int, int] = {}
    pending: list[int] = []
    count = 0
    text = function.script(show_meta=False, obj_to_annotate=marks).splitlines()
    start = next((index for index, line in enumerate(text) if line and not line.startswith("#")), len(text))
    for line in text[start:]:
        mark = _MARK.match(line)
        if mark is not None and not mark["code"]:
            pending.append(int(mark["number"]))
            continue
        count += 1
        found.update(dict.fromkeys(pending, count))
        pending.clear()
        if mark is not None:
            found[int(mark["number"])] = count
    lines = [0] * len(statements)
    for number in reversed(range(len(statements))):
        # The inner loops of a grid have no line of their own; the outermost follows them.
        lines[number] = found.get(number, lines[number + 1] if number + 1 < len(lines) else 0)
    return statements, lines, count
