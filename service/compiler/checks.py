"""What a library checks of its inputs while it runs: any number of conditions, one kernel, one assertion."""

from __future__ import annotations

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


def assertion(checks: list[Check], holds: Any, code: Any) -> Any:
    """The call that fails where `holds` is False. Its text lists all checks; the session shows the one of `code`."""
    lines = [" ".join(str(check).replace("{", "{{").replace("}", "}}").split()) for check in checks]
    return relax.op.assert_op(holds, [code], format="\n".join([FAILED_CHECK + " {0}", *lines]))
