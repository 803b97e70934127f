"""The presets, and the Catalogue of everything that can be asked for."""

from __future__ import annotations

from service.catalogue import Catalogue, RecipeInfo
from service.compiler.passes import pass_info, pass_names
from service.errors import JsonObject

DEFAULT_RECIPE = "fast"

# What each is for, and its entries, as `passes` of a request has them. A preset may name those before it.
PRESETS: dict[str, tuple[str, tuple[str | JsonObject, ...]]] = {
    "generic": (
        "TVM's generic road: lower every operator, then fuse by the patterns of the loops.",
        ("legalize_ops", "annotate_tir_op_pattern", "fold_constant", "fuse_ops", "fuse_tir"),
    ),
    "course": (
        "The road of the lecture on fusion: group matmul and add, lower by an operator map, one kernel a group.",
        ("fuse_dense_add", "lower_to_tensorir", "fuse_tir"),
    ),
    "fast": (
        "The quickest code: the generic road, then images with the channels last, and kernels made for the CPU.",
        (
            *("conv1d_as_conv2d", "conv3d_as_conv2d", "fold_views", "generic"),
            *("fuse_epilogues", "fuse_views", "channels_last", "legalize_ops", "schedule"),
        ),
    ),
    "integration": (
        "The road of the lecture on importing: lower what is not lowered yet by an operator map, fuse by the loops.",
        ("lower_to_tensorir", "annotate_tir_op_pattern", "fuse_ops", "fuse_tir"),
    ),
    "none": ("No pass: the build lowers the imported operators one by one.", ()),
}


def load_catalogue() -> Catalogue:
    """All passes and presets. Imports every pass; raises where a file or a preset is not as it must be."""
    passes = {name: pass_info(name) for name in pass_names()}
    recipes: dict[str, RecipeInfo] = {}
    catalogue = Catalogue(passes, recipes, DEFAULT_RECIPE)
    for name, (doc, entries) in PRESETS.items():
        if name in passes:
            raise LookupError(f"the preset {name!r} has the name of a pass")
        recipes[name] = RecipeInfo(name, doc, catalogue.expand(list(entries)))
    return catalogue
