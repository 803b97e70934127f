"""`pass_context` of a request: what of TVM's PassContext may be set, an allowlist.

A key that is not on it may crash the compiler, or compile for hardware that a CPU is not.
"""

from __future__ import annotations

from typing import Any

from service.errors import InvalidField, JsonObject, UnknownField
from service.json_schema import find_flaw, join_path
from service.nouns import PassContext

# Optimizations that nothing after them relies on; TVM calls them by these names inside of other passes and the build.
DISABLED = (
    "CanonicalizeRelaxBindings",
    "CanonicalizeTIRVariables",
    "DeadCodeElimination",
    "RemoveUnusedParameters",
    "RewriteDataflowReshape",
    "s_tir.HoistIfThenElse",
    "s_tir.LoopPartition",
    "tirx.CommonSubexprElim",
    "tirx.RemoveNoOp",
    "tirx.StorageRewrite",
    "tirx.UnrollLoop",
)


def _flag(doc: str) -> JsonObject:
    return {"type": "boolean", "description": doc}


def _count(doc: str, low: int, high: int) -> JsonObject:
    return {"type": "integer", "minimum": low, "maximum": high, "description": doc}


def _group(doc: str, **properties: JsonObject) -> JsonObject:
    return {"type": "object", "additionalProperties": False, "description": doc, "properties": properties}


CONFIG: JsonObject = {
    "relax.FuseOps.max_depth": _count("The most operators that fuse_ops puts into one group.", 1, 4096),
    "s_tir.LoopPartition": _group(
        "Loops with bounds checks are cut where the checks are always true.",
        partition_const_loop=_flag("Also loops of constant extent."),
        no_unroll_loop_with_extent_one=_flag("Keeps loops of one iteration."),
    ),
    "tirx.StmtSimplify": _group(
        "What the simplifier of loops may use.",
        transitively_prove_inequalities=_flag("Inequalities that follow from others."),
        convert_boolean_to_and_of_ors=_flag("Conditions are made conjunctions of disjunctions."),
        apply_constraints_to_boolean_branches=_flag("The parts of a condition simplify each other."),
    ),
    "tirx.UnrollLoop": _group(
        "When loops are unrolled.",
        auto_max_step=_count("Most statements of an unrolled loop; 0 unrolls by annotation only.", 0, 1024),
        auto_max_depth=_count("Most loops inside each other.", 0, 16),
        auto_max_extent=_count("Most iterations of an unrolled loop.", 0, 1024),
        explicit_unroll=_flag("Unrolled by TVM, and not left to LLVM."),
    ),
    "tirx.disable_cse_tir": _flag("No common subexpression elimination in kernels."),
    "tirx.disable_storage_rewrite": _flag("No reuse of memory inside kernels."),
    "tirx.disable_vectorize": _flag("Loops that are marked for vectors stay plain loops."),
    "tirx.noalias": _flag("LLVM may assume that the buffers of a kernel do not overlap (true by default)."),
}

SCHEMA: JsonObject = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "opt_level": _count("TVM's optimization level: passes of a higher one are skipped. Default 2.", 0, 4),
        "disabled": {
            "type": "array",
            "uniqueItems": True,
            "maxItems": len(DISABLED),
            "items": {"enum": list(DISABLED)},
            "description": "Passes of TVM that are skipped inside of other passes and of the build.",
        },
        "config": {"type": "object", "additionalProperties": False, "properties": CONFIG},
    },
}


def parse(given: Any) -> PassContext:
    """The PassContext that a request gives; None gives TVM's own defaults. Raises UnknownField, InvalidField."""
    if given is None:
        return PassContext()
    flaw = find_flaw(given, SCHEMA)
    if flaw is not None:
        field = join_path("pass_context", flaw.path)
        problem = UnknownField if flaw.unknown else InvalidField
        raise problem(f"`{field}` {flaw.reason}.", field=field, nearest=flaw.near or None)
    return PassContext(given.get("opt_level", 2), tuple(sorted(given.get("disabled", ()))), given.get("config", {}))
