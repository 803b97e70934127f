"""The client as a distribution of its own: what it imports, exports and says of itself."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

import relaxd

SOURCES = sorted(Path(relaxd.__file__).parent.glob("*.py"))
COMMAND_LINE = sorted(Path(relaxd.__file__).parent.glob("cli/*.py"))


def imported_packages(source: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or ".")
    return {name.partition(".")[0] for name in names}


def test_it_imports_only_the_standard_library_httpx_and_numpy_and_never_the_service() -> None:
    found = set().union(*(imported_packages(source) for source in SOURCES)) - sys.stdlib_module_names
    assert found == {"httpx", "numpy", "relaxd", "rich"}


def test_the_command_line_adds_typer_and_rich() -> None:
    found = set().union(*(imported_packages(source) for source in COMMAND_LINE)) - sys.stdlib_module_names
    assert found == {"numpy", "relaxd", "rich", "typer"}


def test_importing_the_client_loads_neither_torch_nor_typer() -> None:
    code = "import sys, relaxd; print([name for name in ('torch', 'typer', 'tvm') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_declares_only_the_dependencies_that_it_imports() -> None:
    declared = [re.split("[<>=]", entry)[0] for entry in requires("relaxd-client") or () if "extra ==" not in entry]
    extra = [re.split("[<>=]", entry)[0] for entry in requires("relaxd-client") or () if "extra ==" in entry]
    assert (sorted(declared), sorted(extra)) == (["httpx", "numpy"], ["rich", "typer"])


def test_every_public_name_is_exported_sorted() -> None:
    names = [name for name in vars(relaxd) if not name.startswith("_") and not _is_submodule(name)]
    assert relaxd.__all__ == sorted([*names, "__version__", "errors"])


def _is_submodule(name: str) -> bool:
    return inspect.ismodule(getattr(relaxd, name))


def test_the_version_is_the_distribution_s() -> None:
    assert relaxd.__version__ == version("relaxd-client")
