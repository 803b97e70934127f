"""What can be asked for: passes, their options, presets. Described as plain values, so that the web process can
check a request without tvm; the compile worker announces them when it is ready.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from service.json_schema import Flaw, find_flaw, join_path
from service.nouns import PassContext, PassSpec, Recipe, Stage, Target, Translator
from service.patterns import request as fusion_patterns

OptionValue = bool | int | float | str | list[Any] | dict[str, Any]

# What the schema of an option cannot say of all options of a pass together; each raises Flaw. Needs no tvm.
CHECKS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {"fuse_pattern": fusion_patterns.check}


@dataclass(frozen=True)
class OptionInfo:
    """One typed option of a pass. `type` is a JSON Schema type name; `choices` limits a string.

    `structure` is the JSON Schema of an array or object.
    """

    name: str
    type: str
    default: OptionValue
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    structure: JsonObject | None = None

    def schema(self) -> JsonObject:
        """The option as JSON Schema."""
        schema: JsonObject = {"type": self.type, "default": self.default, "description": self.doc}
        if self.minimum is not None:
            schema["minimum"] = self.minimum
        if self.maximum is not None:
            schema["maximum"] = self.maximum
        if self.choices:
            schema["enum"] = list(self.choices)
        return schema | (self.structure or {})

    def check(self, value: Any) -> Flaw | None:
        """Why `value` cannot be this option's, or None when it can."""
        return find_flaw(value, self.schema())

    @classmethod
    def from_json(cls, name: str, schema: Mapping[str, Any]) -> OptionInfo:
        """Reads what `schema` wrote."""
        plain = schema["type"] not in ("array", "object")
        structure = {key: value for key, value in schema.items() if key not in ("type", "default", "description")}
        return cls(
            name,
            schema["type"],
            schema["default"],
            schema["description"],
            schema.get("minimum") if plain else None,
            schema.get("maximum") if plain else None,
            tuple(schema.get("enum", ())) if plain else (),
            None if plain else structure,
        )


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
    example_options: JsonObject = field(default_factory=dict)

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
            "example": {"options": self.example_options, "before": self.before, "after": self.after},
            "options": self.options_schema(),
        }

    def options_schema(self) -> JsonObject:
        """All options as one JSON Schema."""
        properties = {option.name: option.schema() for option in self.options}
        return {"type": "object", "additionalProperties": False, "properties": properties}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PassInfo:
        """Reads what `to_json` wrote."""
        options = [OptionInfo.from_json(*each) for each in value["options"]["properties"].items()]
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
            value["example"]["options"],
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

    def recipe(
        self,
        passes: Any,
        target: Target,
        max_passes: int,
        context: PassContext | None = None,
        translator: Translator = Translator(),
    ) -> Recipe:
        """The Recipe that `passes` of a request names: a preset's name, a list, or None for the default.

        `translator` decides what the first pass finds. Raises UnknownRecipe, UnknownPass, UnknownOption,
        InvalidOption, UnknownField, InvalidField, PassOrder.
        """
        context = context or PassContext()
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
            return Recipe(self.expand([passes], max_passes, translator), target, passes, context)
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
        return Recipe(self.expand(passes, max_passes, translator), target, None, context)

    def until(self, recipe: Recipe, stage: Stage) -> Recipe:
        """`recipe` up to its last pass of `stage`, without a build. Raises InvalidField where it has none."""
        stages = [Stage.IMPORT, *(self.passes[spec.name].stage for spec in recipe.passes)]
        if stage not in stages:
            known = ", ".join(dict.fromkeys(each.value for each in stages))
            raise InvalidField(
                f"`until` is {stage.value!r}, and the recipe has no pass of that stage; it has: {known}.", field="until"
            )
        last = len(stages) - 1 - stages[::-1].index(stage)
        name = recipe.name if last == len(recipe.passes) else None
        return dataclasses.replace(recipe, passes=recipe.passes[:last], name=name, until=stage)

    def expand(
        self, entries: list[Any], max_passes: int | None = None, translator: Translator = Translator()
    ) -> tuple[PassSpec, ...]:
        """The passes of a list whose entries are passes, or presets, which stand for theirs. Raises as `recipe`."""
        specs: list[PassSpec] = []
        places: list[str] = []
        for index, entry in enumerate(entries):
            found = self._entry(index, entry)
            specs += found
            name = entry if isinstance(entry, str) else entry["name"]
            places += [f"passes[{index}]" + (f" ({name})" if name in self.recipes else "")] * len(found)
            if max_passes is not None and len(specs) > max_passes:
                raise InvalidField(
                    f"`passes[{index}]` makes it {len(specs)} passes, with those of presets counted; "
                    f"the limit is {max_passes}.",
                    field=f"passes[{index}]",
                    limit=max_passes,
                )
        self.check_order(tuple(specs), places, translator)
        return tuple(specs)

    def _entry(self, index: int, entry: Any) -> tuple[PassSpec, ...]:
        where = f"passes[{index}]"
        if isinstance(entry, str):
            entry = {"name": entry}
        if not isinstance(entry, dict):
            raise InvalidField(
                f"`{where}` must be the name of a pass or preset, or an object with `name` and `options`, "
                f"not {type(entry).__name__}.",
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
        if name in self.recipes:
            if entry.get("options"):
                raise InvalidField(
                    f"`{where}` is the preset {name!r}, which has no options; write its passes out to give them some.",
                    field=f"{where}.options",
                )
            return self.recipes[name].passes
        if name not in self.passes:
            near = nearest(name, [*self.passes, *self.recipes])
            hint = f"Did you mean {near[0]!r}?" if near else f"Passes: {', '.join(self.passes)}."
            raise UnknownPass(
                f"No pass is named {name!r} (`{where}`). {hint}", field=where, **{"pass": name}, nearest=near
            )
        return (PassSpec(name, self._options(where, self.passes[name], entry.get("options", {}))),)

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
            flaw = known[key].check(value)
            if flaw is not None:
                raise _invalid_option(info, f"{where}.options", key, flaw, known[key])
        complete = {option.name: given.get(option.name, option.default) for option in info.options}
        check = CHECKS.get(info.name)
        if check is not None:
            try:
                check(complete)
            except Flaw as flaw:
                raise _invalid_option(info, f"{where}.options", "", flaw) from flaw
        return complete

    def check_order(
        self,
        specs: tuple[PassSpec, ...],
        places: list[str] | None = None,
        translator: Translator = Translator(),
    ) -> None:
        """Raises PassOrder at the first pass whose needs cannot be met where it stands.

        `places` are the entries of the request that the passes come from, where presets are among them.
        """
        places = places or [f"passes[{index}]" for index in range(len(specs))]
        facts, taken_by = set(INITIAL_FACTS), {}
        if translator.ops == "tensorir":
            facts, taken_by = {"tensorir"}, {"operators": "the import (`import.ops` is `tensorir`)"}
        for place, spec in zip(places, specs, strict=True):
            info = self.passes[spec.name]
            for need in info.needs:
                if need not in facts:
                    raise self._order_problem(place, info, need, taken_by.get(need))
            for fact in info.takes:
                facts.discard(fact)
                taken_by[fact] = f"{place} {spec.name!r}"
            facts.update(info.gives)

    def _order_problem(self, place: str, info: PassInfo, need: str, taken_by: str | None) -> PassOrder:
        givers = [other.name for other in self.passes.values() if need in other.gives]
        if taken_by is not None:
            remedy = f"but {taken_by} has already lowered them."
            if taken_by.startswith("passes"):
                remedy += f" Move {info.name!r} before it."
        else:
            remedy = f"and there are none at that step. Put {' or '.join(repr(name) for name in givers)} before it."
        return PassOrder(
            f"`{place}` {info.name!r} works on {_FACT_MEANING[need]}, {remedy}",
            field=place.partition(" ")[0],
            **{"pass": info.name},
            needs=need,
            given_by=givers,
        )


def _invalid_option(
    info: PassInfo, where: str, name: str, flaw: Flaw, option: OptionInfo | None = None
) -> InvalidOption:
    field = join_path(where, name, flaw.path)
    said = f"Option {name!r} of pass {info.name!r}" if name and not flaw.path else f"`{field}` of pass {info.name!r}"
    at = f" (`{field}`)" if name and not flaw.path else ""
    return InvalidOption(
        f"{said} {flaw.reason}{at}.",
        field=field,
        **{"pass": info.name},
        # Of an array or object the whole schema would be longer than the request.
        expected=None if option is None or option.structure else option.schema(),
        nearest=flaw.near or None,
    )


def option_infos(cls: type) -> tuple[OptionInfo, ...]:
    """The options of a pass class: its dataclass fields, each with a default and metadata from `option`."""
    names = {
        "bool": "boolean", "int": "integer", "float": "number", "str": "string", "list[Any]": "array",
        "dict[str, Any]": "object",
    }  # fmt: skip
    # Under `from __future__ import annotations` a field's type is its text.
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)
    return tuple(OptionInfo(entry.name, names[str(entry.type)], _default(entry), **entry.metadata) for entry in fields)


def _default(entry: dataclasses.Field[Any]) -> OptionValue:
    if entry.default is dataclasses.MISSING and entry.default_factory is not dataclasses.MISSING:
        return cast(OptionValue, entry.default_factory())
    return cast(OptionValue, entry.default)


def option(
    default: OptionValue,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    structure: JsonObject | None = None,
) -> Any:
    """A dataclass field that is an option of a pass; `structure` is the JSON Schema of an array or object."""
    if structure is not None:
        structure = {key: value for key, value in structure.items() if key not in ("type", "default", "description")}
    metadata = {"doc": doc, "minimum": minimum, "maximum": maximum, "choices": choices, "structure": structure}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
