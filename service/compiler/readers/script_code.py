"""The code of a TorchScript archive: a subset of Python that PyTorch compiles and never runs as Python.

Its names are resolved by PyTorch: `torch.X` and a method `x.X` are the operator ``aten::X``, `ops.N.X` an operator of
another namespace, `__torch__.…` a class or function of the archive. So every name that could be an operator must be
one that only computes.
"""

from __future__ import annotations

import ast
import builtins
import itertools

from service.compiler.readers.operator_names import ATEN_NAMES
from service.compiler.readers.refusal import damaged, shown, unsafe

MAX_NODES = 1_000_000

_SCRIPT_NAMES = (
    "Bool Complex ComplexImplicit Delete Float FloatImplicit Int IntImplicit ScalarImplicit Size __contains__ "
    "__derive_index __getitem__ __interpolate __is__ __isnot__ __not__ __range_length __round_to_zero_floordiv "
    "__upsample __upsample_bilinear __upsample_nearest _infer_size _list_to_tensor _set_item _size_if_not_equal "
    "_tensor_to_list _unwrap_optional append as_tensor broadcast_shapes clear count cpu dense_dim device dict divmod "
    "element_size extend fabs factorial find floordiv format gamma gcd get get_device index insert is_contiguous "
    "is_grad_enabled is_scripting items join keys len list local_value lower max mathremainder modf pop "
    "percentFormat radians replace remove requires_grad_ reverse set_grad_enabled setdefault sorted split startswith "
    "endswith str strip tensor update upper values warn ceil floor copysign frexp ldexp sqrt tril_indices "
    "triu_indices dtype layout shape is_cuda grad itemsize nbytes ndim T mT H real imag is_mkldnn is_quantized "
    "is_sparse is_meta is_nested requires_grad name type data item tolist batch_norm_no_update embedding_renorm_ "
    "_no_grad_embedding_renorm_ _pack_padded_sequence _pad_packed_sequence copy contiguous forward get_autocast_dtype "
    "is_autocast_enabled is_autocast_cpu_enabled result_type promote_types can_cast convolution_overrideable "
    "_nested_tensor_from_mask _nested_tensor_from_mask_left_aligned to_padded_tensor ndimension nelement sparse_dim "
    "is_conj is_neg "
    "thnn_conv2d _shape_as_tensor _reshape_from_tensor _dim_arange hash ord chr partition rstrip lstrip tuple"
)
_PRIM_NAMES = (
    "NumToTensor RaiseException TupleIndex TupleUnpack Uninitialized abs data device dtype is_cpu is_cuda is_ipu "
    "is_maia is_meta is_mkldnn is_mkldnn is_mps is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla "
    "is_xpu is_mtia itemsize layout max min name nbytes rangelist requires_grad tolist type unchecked_cast "
    "unchecked_unwrap_optional index id Print grad ModuleContainerIndex StringIndex IfThenElse ConstantChunk "
    "EnumName EnumValue isinstance"
)
OPERATORS = ATEN_NAMES | frozenset(_SCRIPT_NAMES.split())
_PRIM = frozenset(_PRIM_NAMES.split())
# Whatever a class of the archive calls its own, as a method of a tensor or string these are PyTorch's.
_NEVER = frozenset(
    {"from_file", "save", "load", "fork", "wait", "rpc_async", "rpc_sync", "rpc_remote", "set_data", "set_"}
)
_NEVER_DEFINED = frozenset({"__setstate__", "__getstate__", "__del__", "__reduce__", "__reduce_ex__"})
_FUNCTIONS = frozenset(
    {"annotate", "unchecked_cast", "uninitialized", "getattr", "int", "float", "bool", "str", "range", "isinstance",
     "len", "complex", "hasattr", "enumerate", "zip", "min", "max", "abs", "list", "tuple", "dict", "ord", "chr"}
)  # fmt: skip
_ROOTS = frozenset({"torch", "ops", "__torch__", "CONSTANTS", "aten", "prim"})
_STATEMENTS = (
    ast.ClassDef, ast.FunctionDef, ast.AnnAssign, ast.Assign, ast.AugAssign, ast.Return, ast.If, ast.While, ast.For,
    ast.Expr, ast.Pass, ast.Raise, ast.Assert, ast.With, ast.Break, ast.Continue,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Name, ast.Attribute, ast.Call, ast.Constant, ast.Subscript, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp,
    ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Slice, ast.Starred, ast.ListComp,
)  # fmt: skip
_PARTS = (
    ast.Module, ast.expr_context, ast.arguments, ast.arg, ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.withitem, ast.comprehension,
)  # fmt: skip


def parse_code(text: str, where: str) -> ast.Module:
    """The syntax tree of a code file that is not too long to be checked. Raises DamagedModel, UnsafeModel."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise damaged(f"The code cannot be parsed: {shown(str(error))}", where) from error
    # Once and first: each of the walks below takes as long as this one.
    if next(itertools.islice(ast.walk(tree), MAX_NODES, None), None) is not None:
        raise unsafe("The code is too long", where)
    return tree


def declared_names(tree: ast.Module) -> frozenset[str]:
    """The attributes, methods and functions that a code file declares."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.update(part.target.id for part in node.body if _is_field(part))  # type: ignore[attr-defined]
    return frozenset(names)


def check_code(tree: ast.Module, where: str, declared: frozenset[str]) -> frozenset[str]:
    """The qualified classes that the file defines. `declared` are the names of all files of the archive.

    Raises UnsafeModel.
    """
    callees = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        place = f"{where}:{getattr(node, 'lineno', 0)}"
        if not isinstance(node, _STATEMENTS + _EXPRESSIONS + _PARTS):
            raise unsafe(f"The code has a {type(node).__name__}, which TorchScript has not", place)
        if isinstance(node, ast.Attribute):
            _check_attribute(node, id(node) in inner, declared, place)
        elif isinstance(node, ast.Name):
            _check_name(node, id(node) in inner, id(node) in callees, place)
        elif isinstance(node, ast.FunctionDef):
            _check_function(node, place)
        elif isinstance(node, ast.Call):
            _check_getattr(node, declared, place)
    package = where.removeprefix("code/").removesuffix(".py").replace("/", ".")
    return frozenset(f"{package}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef))


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _check_function(node: ast.FunctionDef, where: str) -> None:
    if node.name in _NEVER_DEFINED:
        raise unsafe(f"The code defines {node.name}, which PyTorch runs while it loads the file", where)
    if node.name in _NEVER or node.decorator_list:
        raise unsafe(f"The code defines a function {shown(node.name)} in a way that hides what it is", where)


def _check_name(node: ast.Name, is_root: bool, is_callee: bool, where: str) -> None:
    if node.id in _ROOTS and not is_root:
        raise unsafe(f"The code uses {node.id!r} as a value", where)
    if is_callee and hasattr(builtins, node.id) and node.id not in _FUNCTIONS:
        raise unsafe(f"The code calls {node.id!r}", where)
    if is_callee and node.id in ("fork", "awaitable", "rpc_async", "rpc_sync", "rpc_remote"):
        raise unsafe(f"The code calls {node.id!r}", where)


def _check_attribute(node: ast.Attribute, is_inner: bool, declared: frozenset[str], where: str) -> None:
    chain = _chain(node)
    root, rest = chain[0], chain[1:]
    if root == "ops":
        complete = len(rest) == 2
        if (complete and not _is_operator(rest[0], rest[1])) or (not complete and not (len(rest) == 1 and is_inner)):
            raise unsafe(f"The code calls the operator {'.'.join(chain)}, which is not taken", where)
    elif root == "torch":
        if rest[0] not in OPERATORS or len(rest) > 1:
            raise unsafe(f"The code calls the operator {'.'.join(chain)}, which is not taken", where)
    elif root == "__torch__":
        if "classes" in rest or any(part in _NEVER_DEFINED for part in rest):
            raise unsafe(f"The code uses {'.'.join(chain)}, a class outside of the archive", where)
    elif root == "CONSTANTS":
        if len(rest) != 1 or not rest[0].startswith("c") or not rest[0][1:].isdecimal():
            raise unsafe(f"The code uses {'.'.join(chain)}", where)
    elif node.attr in _NEVER or (
        node.attr not in declared and node.attr not in OPERATORS | _PRIM | {"__init__", "__new__"}
    ):
        raise unsafe(f"The code uses {shown(node.attr)} of a value, which is not taken", where)


def _is_operator(namespace: str, name: str) -> bool:
    return (namespace == "prim" and name in _PRIM) or (namespace == "aten" and name in OPERATORS)


def _chain(node: ast.Attribute) -> list[str]:
    """The dotted name that ends with this attribute; it starts with "" where it hangs on another expression."""
    parts = [node.attr]
    value: ast.expr = node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    parts.append(value.id if isinstance(value, ast.Name) and value.id in _ROOTS else "")
    return parts[::-1]


def _check_getattr(node: ast.Call, declared: frozenset[str], where: str) -> None:
    if not isinstance(node.func, ast.Name) or node.func.id not in ("getattr", "hasattr"):
        return
    name = node.args[1] if len(node.args) == 2 else None
    value = name.value if isinstance(name, ast.Constant) else None
    if not isinstance(value, str) or value in _NEVER or (value.isidentifier() and value not in declared):
        raise unsafe("The code looks up an attribute by a name that is not its own", where)
