"""The presets, and the Catalogue of everything that can be asked for."""

from __future__ import annotations

from service.catalogue import Catalogue, RecipeInfo
from service.compiler.passes import pass_info, pass_names
from service.nouns import PassSpec

DEFAULT_RECIPE = "generic"

PRESETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "generic": (
        "TVM's generic road: lower every operator, then fuse by the patterns of the loops.",
        ("legalize_ops", "annotate_tir_op_pattern", "fold_constant", "fuse_ops", "fuse_tir"),
    ),
    "course": (
        "The road of the MLC lecture: fuse matmul and add by pattern, lower by an operator map, one kernel a group.",
        ("fuse_dense_add", "lower_to_tensorir", "fuse_tir"),
    ),
    "none": ("No pass: the build lowers the imported operators one by one.", ()),
}


def load_catalogue() -> Catalogue:
    """All passes and presets. Imports every pass; raises LookupError or KeyError where a file is not as it must be."""
    passes = {name: pass_info(name) for name in pass_names()}
    recipes = {}
    for name, (doc, names) in PRESETS.items():
        specs = tuple(
            PassSpec(each, {option.name: option.default for option in passes[each].options}) for each in names
        )
        recipes[name] = RecipeInfo(name, doc, specs)
    catalogue = Catalogue(passes, recipes, DEFAULT_RECIPE)
    for recipe in recipes.values():
        catalogue.check_order(recipe.passes)
    return catalogue
