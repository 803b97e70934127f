"""What belongs together over all stages: lines of the user's model, bindings, functions, down to the assembly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from service.errors import InvalidField, JsonObject, UnknownFunction, nearest
from service.nouns import BUILD_STAGES, Step

# A step or a result of the build, and its Snapshot.
Shown = tuple[Step, JsonObject]


@dataclass(frozen=True)
class Place:
    """A binding, or with `binding` None a function, in the IR after one step, and the positions of its origins."""

    step: Step
    function: str
    binding: str | None
    origins: frozenset[int]

    def to_json(self) -> JsonObject:
        return {
            "stage": self.step.stage.value,
            "step": self.step.index,
            "function": self.function,
            "binding": self.binding,
            "origins": sorted(self.origins),
        }


@dataclass(frozen=True)
class Question:
    """Where to start: nodes of the model by name, module or source line; or a place. None where it does not matter.

    `module` means what is in it, too; `source` is a part of a source line such as ``net.py:12``.
    """

    node: str | None = None
    module: str | None = None
    source: str | None = None
    step: int | None = None
    function: str | None = None
    binding: str | None = None

    @property
    def is_about_a_place(self) -> bool:
        return self.function is not None


def counterparts(shown: list[Shown], question: Question) -> tuple[list[JsonObject], list[Place], JsonObject]:
    """The nodes of the model that `question` is about, all places that come from them, and how much is known.

    `shown` are the steps in their order and the results of the build. Raises UnknownFunction, InvalidField.
    """
    origins: list[JsonObject] = shown[0][1].get("origins", [])
    places = list(_places(shown))
    if question.is_about_a_place:
        wanted = _of_place(places, question)
    else:
        wanted = {position for position, origin in enumerate(origins) if _matches(origin, question)}
    found = [{"index": position, **origins[position]} for position in sorted(wanted)]
    return found, [place for place in places if place.origins & wanted], _coverage(shown, origins, places)


def _places(shown: list[Shown]) -> Iterator[Place]:
    kernels: dict[str, frozenset[int]] = {}
    for step, snapshot in shown:
        if step.stage not in BUILD_STAGES:
            kernels = {}
        for entry in snapshot["functions"]:
            name = str(entry["name"])
            # What the build makes of a kernel has the kernel's name and its origins.
            origins = kernels.get(name) if step.stage in BUILD_STAGES else None
            if origins is None:
                origins = frozenset(entry.get("origins", ()))
            if step.stage not in BUILD_STAGES:
                kernels[name] = origins
            yield Place(step, name, None, origins)
            for node in entry["bindings"]:
                yield Place(step, name, str(node["name"]), frozenset(node.get("origins", ())))


def _matches(origin: JsonObject, question: Question) -> bool:
    module, source = str(origin["module"] or ""), str(origin["source"] or "")
    return (
        (question.node is None or origin["node"] == question.node)
        and (question.module is None or module == question.module or module.startswith(f"{question.module}."))
        and (question.source is None or question.source in source)
    )


def _of_place(places: list[Place], question: Question) -> set[int]:
    of_step = [place for place in places if place.step.index == question.step]
    of_function = [place for place in of_step if place.function == question.function]
    name = str(question.function)
    if not of_function:
        names = [place.function for place in of_step if place.binding is None]
        raise UnknownFunction(
            f"The IR has no function {name[:100]!r}; it has: {', '.join(names)}.",
            function=name[:100],
            functions=names,
            nearest=nearest(name, names),
        )
    for place in of_function:
        if place.binding == question.binding:
            return set(place.origins)
    known = [str(place.binding) for place in of_function if place.binding is not None]
    wrong = str(question.binding)[:100]
    raise InvalidField(
        f"Function {name!r} has no binding {wrong!r} (`binding`).", field="binding", nearest=nearest(wrong, known)
    )


def _coverage(shown: list[Shown], origins: list[JsonObject], places: list[Place]) -> JsonObject:
    """Of the functions after the last step that are kernels: how many lead to a node, and to a source line."""
    last = max((step.index for step, _ in shown if step.stage not in BUILD_STAGES), default=0)
    snapshot = next(snapshot for step, snapshot in shown if step.index == last)
    kernels = {str(entry["name"]) for entry in snapshot["functions"] if entry["kind"] == "tensorir"}
    found = [place for place in places if place.step.index == last and place.binding is None]
    found = [place for place in found if place.function in kernels]
    sourced = [place for place in found if any(origins[position]["source"] for position in place.origins)]
    return {
        "kernels": len(found),
        "with_origin": sum(bool(place.origins) for place in found),
        "with_source": len(sourced),
    }
