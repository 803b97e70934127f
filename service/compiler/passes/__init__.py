"""The passes, one a file, the file's name is the pass's. A new pass is a new file here and nothing else.

A pass is a frozen dataclass whose fields are its options (`service.catalogue.option`) and whose docstring is its
documentation. It takes a well-formed module and gives a well-formed module that computes the same. Where its example
needs options, they are the class variable `example_options`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any, ClassVar, Protocol

from tvm import IRModule

from service.catalogue import PassInfo, option_infos
from service.compiler.report import Report
from service.nouns import PassSpec, Stage


class Pass(Protocol):
    """A named rewrite from IRModule to IRModule."""

    name: ClassVar[str]
    stage: ClassVar[Stage]
    needs: ClassVar[tuple[str, ...]]
    gives: ClassVar[tuple[str, ...]]
    takes: ClassVar[tuple[str, ...]]
    before: ClassVar[str]
    after: ClassVar[str]

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        """The rewritten module; what it has to say of the Step is written into `report`.

        Runs inside the context of the Recipe's target. `mod` itself must not be changed.
        """


def pass_names() -> list[str]:
    """The names of all passes, sorted, without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def pass_class(name: str) -> type[Pass]:
    """The class of the pass `name`: the one in its file whose `name` is the file's. Raises LookupError."""
    module = importlib.import_module(f"{__name__}.{name}")
    members: list[tuple[str, Any]] = inspect.getmembers(module, inspect.isclass)
    for _, member in members:
        if member.__module__ == module.__name__ and getattr(member, "name", None) == name:
            found: type[Pass] = member
            return found
    raise LookupError(f"service/compiler/passes/{name}.py has no class whose name is {name!r}")


def make_pass(spec: PassSpec) -> Pass:
    """The pass that `spec` names, with its options."""
    return pass_class(spec.name)(**spec.options)


def pass_info(name: str) -> PassInfo:
    """The pass as the Catalogue describes it."""
    cls = pass_class(name)
    doc = inspect.cleandoc(cls.__doc__ or "")
    return PassInfo(
        name=cls.name,
        stage=cls.stage,
        summary=doc.partition("\n")[0],
        doc=doc,
        options=option_infos(cls),
        needs=cls.needs,
        gives=cls.gives,
        takes=cls.takes,
        before=cls.before,
        after=cls.after,
        example_options=getattr(cls, "example_options", {}),
    )
