"""What a library checks of its inputs while it runs: any number of conditions, one kernel, one assertion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from service.compiler.site import Site
from service.runtime.session import FAILED_CHECK

# A kernel takes no more arguments than this; more conditions are joined in steps.
MAX_JOINED = 48


@dataclass(frozen=True)
class Check:
    """`condition` is a bool () tensor of Relax; where it is False the run fails with `message`, naming the operator."""

    condition: Any
    site: Site
    message: str

    def __str__(self) -> str:
        return f"{self.site}: {self.message}"


@dataclass(frozen=True)
class SizeCheck:
    """`condition` makes a bool of TensorIR from sizes by their symbols' names; `text` says the same to the user."""

    condition: Callable[[Mapping[str, Any]], Any]
    text: str

    def __str__(self) -> str:
        return f"sizes: the model holds only where {self.text}"


@dataclass(frozen=True)
class Whole:
    """A dimension such as 2 * h, whose symbol h is no dimension by itself: `factor` * h + `offset`.

    `label` is the dimension as the user knows it; `ranged` the symbol whose range is that of the whole, where it is
    not h that has one.
    """

    symbol: str
    var: Any
    factor: int
    offset: int
    label: str
    ranged: str | None = None

    def part(self, whole: Any) -> Any:
        """h of the whole dimension."""
        return tirx.floordiv(whole - self.offset, self.factor)

    def bounds(self, ranges: Mapping[Any, Any]) -> tuple[int, Any]:
        """The smallest and the largest size of the whole dimension."""
        for symbol, each in ranges.items():
            if str(symbol) == self.ranged:
                return int(each.lower), each.upper
            if str(symbol) == self.symbol:
                return self.factor * int(each.lower) + self.offset, self.factor * each.upper + self.offset
        return 0, None

    def checks(self, ranges: Mapping[Any, Any]) -> list[SizeCheck]:
        """That the dimension is such a multiple, and within its range."""
        name = str(self.var.name)
        shifted = f"({self.label} - {self.offset})" if self.offset else self.label
        is_multiple = SizeCheck(
            lambda known: tirx.floormod(known[name] - self.offset, self.factor) == 0, f"{shifted} % {self.factor} == 0"
        )
        return [is_multiple, *within_range(name, *self.bounds(ranges), self.label)]


def within_range(name: str, low: int, high: Any, label: str) -> list[SizeCheck]:
    """That the size `name` is from `low` to `high`, which may be infinite."""
    found = [SizeCheck(lambda known: known[name] >= low, f"{label} >= {low}")] if low > 1 else []
    if getattr(high, "is_Integer", False):
        most = int(high)
        found.append(SizeCheck(lambda known: known[name] <= most, f"{label} <= {most}"))
    return found


def first_wrong_size(builder: relax.BlockBuilder, checks: Sequence[SizeCheck], sizes: Mapping[str, Any]) -> Any:
    """As `first_failed`, of conditions on the symbols `sizes`; it needs no tensor."""
    names = list(sizes)

    def compute(given: Any) -> Any:
        known = dict(zip(names, given, strict=True))

        def number() -> Any:
            chosen: Any = tirx.const(-1, "int64")
            for index, check in reversed(list(enumerate(checks))):
                chosen = tirx.Select(check.condition(known), chosen, tirx.const(index, "int64"))
            return chosen

        code = te.compute((), number, name="first_failed")
        return [te.compute((), lambda: code() < 0, name="all_hold"), code]

    return _parts(builder, builder.emit_te(compute, relax.ShapeExpr(list(sizes.values())), primfunc_name_hint="sizes"))


def first_failed(builder: relax.BlockBuilder, conditions: list[Any]) -> tuple[Any, Any]:
    """Whether all conditions hold, and the number of the first that does not (or -1), as () tensors: bool and int64."""
    pairs = [
        _joined(builder, conditions[start : start + MAX_JOINED], start)
        for start in range(0, len(conditions), MAX_JOINED)
    ]
    while len(pairs) > 1:
        pairs = [_either(builder, *pairs[at : at + 2]) for at in range(0, len(pairs), 2)]
    return pairs[0]


def _joined(builder: relax.BlockBuilder, conditions: list[Any], start: int) -> tuple[Any, Any]:
    def compute(*flags: Any) -> Any:
        def number() -> Any:
            chosen: Any = tirx.const(-1, "int64")
            for index, flag in reversed(list(enumerate(flags, start))):
                chosen = tirx.Select(flag(), chosen, tirx.const(index, "int64"))
            return chosen

        code = te.compute((), number, name="first_failed")
        return [te.compute((), lambda: code() < 0, name="all_hold"), code]

    return _parts(builder, builder.emit_te(compute, *conditions, primfunc_name_hint="checks"))


def _either(builder: relax.BlockBuilder, first: Any, second: Any = None) -> tuple[Any, Any]:
    if second is None:
        return first  # type: ignore[no-any-return]

    def compute(left: Any, right: Any) -> Any:
        code = te.compute((), lambda: tirx.Select(left() < 0, right(), left()), name="first_failed")
        return [te.compute((), lambda: code() < 0, name="all_hold"), code]

    return _parts(builder, builder.emit_te(compute, first[1], second[1], primfunc_name_hint="checks"))


def _parts(builder: relax.BlockBuilder, pair: Any) -> tuple[Any, Any]:
    return builder.emit(relax.TupleGetItem(pair, 0)), builder.emit(relax.TupleGetItem(pair, 1))


def assertion(checks: Sequence[Check | SizeCheck], holds: Any, code: Any) -> Any:
    """What fails where `holds` is False. Its text lists all checks; the session shows the one of `code`.

    Behind a branch: an assertion is a call of Python, which takes longer than a small library does.
    """
    lines = [" ".join(str(check).replace("{", "{{").replace("}", "}}").split()) for check in checks]
    fails = relax.op.assert_op(holds, [code], format="\n".join([FAILED_CHECK + " {0}", *lines]))
    return relax.If(holds, relax.Tuple([]), fails)
