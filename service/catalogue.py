"""What can be asked for: passes, their options, presets. Described as plain values, so that the web process can
check a request without tvm; the compile worker announces them when it is ready.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from service.errors import (
    InvalidField,
    InvalidOption,
    JsonObject,
    PassOrder,
    UnknownField,
    UnknownOption,
    UnknownPass,
    UnknownRecipe,
    nearest,
)
from service.nouns import PassSpec, Recipe, Stage, Target

OptionValue = bool | int | float | str

JSON_TYPES: dict[str, type] = {"boolean": bool, "integer": int, "number": float, "string": str}


@dataclass(frozen=True)
class OptionInfo:
    """One typed option of a pass. `type` is a JSON Schema type name; `choices` limits a string."""

    name: str
    type: str
    default: OptionValue
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def schema(self) -> JsonObject:
        """The option as JSON Schema."""
        schema: JsonObject = {"type": self.type, "default": self.default, "description": self.doc}
        if self.minimum is not None:
            schema["minimum"] = self.minimum
        if self.maximum is not None:
            schema["maximum"] = self.maximum
        if self.choices:
            schema["enum"] = list(self.choices)
        return schema

    def check(self, value: Any) -> str | None:
        """Why `value` cannot be this option's, or None when it can."""
        expected = JSON_TYPES[self.type]
        is_number = expected in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool)
        if expected is int and is_number and not isinstance(value, int):
            is_number = False
        if not (is_number or (expected in (bool, str) and isinstance(value, expected))):
            return f"must be a {self.type}, not {value!r}"
        if self.minimum is not None and value < self.minimum:
            return f"must be at least {self.minimum:g}, not {value!r}"
        if self.maximum is not None and value > self.maximum:
            return f"must be at most {self.maximum:g}, not {value!r}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}, not {value!r}"
        return None


@dataclass(frozen=True)
class PassInfo:
    """One pass as the Catalogue shows it.

    `needs`, `gives` and `takes` are facts about the module, by which an impossible order is found before anything
    runs: ``operators`` (it still has Relax operators; true after import), ``tensorir`` (its operators are calls to
    PrimFuncs), ``op_pattern`` (its PrimFuncs are annotated with their fusion pattern).
    """

    name: str
    stage: Stage
    summary: str
    doc: str
    options: tuple[OptionInfo, ...] = ()
    needs: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    before: str = ""
    after: str = ""

    def to_json(self) -> JsonObject:
        """The pass as GET /passes shows it, with its options as JSON Schema."""
        return {
            "name": self.name,
            "stage": self.stage.value,
            "summary": self.summary,
            "doc": self.doc,
            "needs": list(self.needs),
            "gives": list(self.gives),
            "takes": list(self.takes),
            "example": {"before": self.before, "after": self.after},
            "options": self.options_schema(),
        }

    def options_schema(self) -> JsonObject:
        """All options as one JSON Schema."""
        properties = {option.name: option.schema() for option in self.options}
        return {"type": "object", "additionalProperties": False, "properties": properties}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PassInfo:
        """Reads what `to_json` wrote."""
        options = [
            OptionInfo(
                name,
                schema["type"],
                schema["default"],
                schema["description"],
                schema.get("minimum"),
                schema.get("maximum"),
                tuple(schema.get("enum", ())),
            )
            for name, schema in value["options"]["properties"].items()
        ]
        return cls(
            value["name"],
            Stage(value["stage"]),
            value["summary"],
            value["doc"],
            tuple(options),
            tuple(value["needs"]),
            tuple(value["gives"]),
            tuple(value["takes"]),
            value["example"]["before"],
            value["example"]["after"],
        )


@dataclass(frozen=True)
class RecipeInfo:
    """A preset: a name for a list of passes."""

    name: str
    doc: str
    passes: tuple[PassSpec, ...]

    def to_json(self) -> JsonObject:
        return {"name": self.name, "doc": self.doc, "passes": [spec.to_json() for spec in self.passes]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RecipeInfo:
        passes = tuple(PassSpec(spec["name"], spec["options"]) for spec in value["passes"])
        return cls(value["name"], value["doc"], passes)


INITIAL_FACTS = frozenset({"operators"})

_FACT_MEANING = {
    "operators": "Relax operators",
    "tensorir": "operators lowered to PrimFuncs",
    "op_pattern": "PrimFuncs annotated with their fusion pattern",
}


@dataclass(frozen=True)
class Catalogue:
    """All passes and presets, and the checks of a request against them."""

    passes: Mapping[str, PassInfo]
    recipes: Mapping[str, RecipeInfo]
    default_recipe: str

    def to_json(self) -> JsonObject:
        return {
            "passes": [info.to_json() for info in self.passes.values()],
            "recipes": [info.to_json() for info in self.recipes.values()],
            "default_recipe": self.default_recipe,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Catalogue:
        passes = [PassInfo.from_json(info) for info in value["passes"]]
        recipes = [RecipeInfo.from_json(info) for info in value["recipes"]]
        return cls({info.name: info for info in passes}, {info.name: info for info in recipes}, value["default_recipe"])

    def recipe(self, passes: Any, target: Target, max_passes: int) -> Recipe:
        """The Recipe that `passes` of a request names: a preset's name, a list, or None for the default.

        Raises UnknownRecipe, UnknownPass, UnknownOption, InvalidOption, UnknownField, InvalidField, PassOrder.
        """
        if passes is None:
            passes = self.default_recipe
        if isinstance(passes, str):
            if passes not in self.recipes:
                near = nearest(passes, self.recipes)
                raise UnknownRecipe(
                    f"No recipe is named {passes!r}. Recipes: {', '.join(self.recipes)}. "
                    "A list of pass names is taken too.",
                    recipe=passes,
                    nearest=near,
                )
            return Recipe(self.recipes[passes].passes, target, passes)
        if not isinstance(passes, list):
            raise InvalidField(
                "`passes` must be a recipe's name or a list of passes, "
                f"not {type(passes).__name__}. See GET /recipes and GET /passes.",
                field="passes",
            )
        if len(passes) > max_passes:
            raise InvalidField(
                f"`passes` has {len(passes)} entries, the limit is {max_passes}.", field="passes", limit=max_passes
            )
        specs = tuple(self._pass_spec(index, entry) for index, entry in enumerate(passes))
        self.check_order(specs)
        return Recipe(specs, target)

    def _pass_spec(self, index: int, entry: Any) -> PassSpec:
        where = f"passes[{index}]"
        if isinstance(entry, str):
            entry = {"name": entry}
        if not isinstance(entry, dict):
            raise InvalidField(
                f"`{where}` must be a pass's name or an object with `name` and `options`, not {type(entry).__name__}.",
                field=where,
            )
        for key in entry:
            if key not in ("name", "options"):
                raise UnknownField(
                    f"`{where}` has an unknown field {key!r}; it takes `name` and `options`.",
                    field=f"{where}.{key}",
                    nearest=nearest(key, ("name", "options")),
                )
        name = entry.get("name")
        if not isinstance(name, str):
            raise InvalidField(f"`{where}.name` must be the name of a pass.", field=f"{where}.name")
        if name not in self.passes:
            near = nearest(name, self.passes)
            hint = f"Did you mean {near[0]!r}?" if near else f"Passes: {', '.join(self.passes)}."
            raise UnknownPass(
                f"No pass is named {name!r} (`{where}`). {hint}", field=where, **{"pass": name}, nearest=near
            )
        return PassSpec(name, self._options(where, self.passes[name], entry.get("options", {})))

    def _options(self, where: str, info: PassInfo, given: Any) -> JsonObject:
        if not isinstance(given, dict):
            raise InvalidField(f"`{where}.options` must be an object.", field=f"{where}.options")
        known = {option.name: option for option in info.options}
        for key, value in given.items():
            if key not in known:
                has = f"It has: {', '.join(known)}." if known else "It has none."
                raise UnknownOption(
                    f"Pass {info.name!r} has no option {key!r} (`{where}.options`). {has}",
                    field=f"{where}.options.{key}",
                    **{"pass": info.name},
                    options=list(known),
                    nearest=nearest(key, known),
                )
            reason = known[key].check(value)
            if reason is not None:
                raise InvalidOption(
                    f"Option {key!r} of pass {info.name!r} {reason} (`{where}.options.{key}`).",
                    field=f"{where}.options.{key}",
                    **{"pass": info.name},
                    expected=known[key].schema(),
                )
        return {option.name: given.get(option.name, option.default) for option in info.options}

    def check_order(self, specs: tuple[PassSpec, ...]) -> None:
        """Raises PassOrder at the first pass whose needs cannot be met where it stands."""
        facts = set(INITIAL_FACTS)
        taken_by: dict[str, str] = {}
        for index, spec in enumerate(specs):
            info = self.passes[spec.name]
            for need in info.needs:
                if need not in facts:
                    raise self._order_problem(index, info, need, taken_by.get(need))
            for fact in info.takes:
                facts.discard(fact)
                taken_by[fact] = f"passes[{index}] {spec.name!r}"
            facts.update(info.gives)

    def _order_problem(self, index: int, info: PassInfo, need: str, taken_by: str | None) -> PassOrder:
        givers = [other.name for other in self.passes.values() if need in other.gives]
        if taken_by is not None:
            remedy = f"but {taken_by} has already lowered them. Move {info.name!r} before it."
        else:
            remedy = f"and there are none at that step. Put {' or '.join(repr(name) for name in givers)} before it."
        return PassOrder(
            f"`passes[{index}]` {info.name!r} works on {_FACT_MEANING[need]}, {remedy}",
            field=f"passes[{index}]",
            **{"pass": info.name},
            needs=need,
            given_by=givers,
        )


def option_infos(cls: type) -> tuple[OptionInfo, ...]:
    """The options of a pass class: its dataclass fields, each with a default and metadata from `option`."""
    names = {"bool": "boolean", "int": "integer", "float": "number", "str": "string"}
    # Under `from __future__ import annotations` a field's type is its text.
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)
    return tuple(
        OptionInfo(entry.name, names[str(entry.type)], cast(OptionValue, entry.default), **entry.metadata)
        for entry in fields
    )


def option(
    default: OptionValue,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that is an option of a pass."""
    metadata = {"doc": doc, "minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)
