"""``repro.zip``: all that it takes to run one Compilation again without a server, as a file."""

from __future__ import annotations

import ast
import json
import os
import platform
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from service.errors import JsonObject
from service.nouns import Limits
from service.records import Compilation
from service.tuning import Tuning
from service.version import VERSION

_PACKAGE = Path(__file__).parent
# What the bundled sources start from; what these import of ours comes with them.
_ROOTS = ("compiler", "runtime")
_REQUIREMENTS = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi", "torch": "torch"}

RERUN = '''\
"""Runs the Compilation of this folder again: see README.md. No server and no installed relaxd are needed."""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "source"))

from service.compiler.rerun import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(FOLDER, sys.argv[1:]))
'''

README = """\
# Compilation {id}

{outcome}

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python rerun.py

`rerun.py` runs it again with PyTorch and TVM alone (and `ld` of binutils, which links the library), prints every step,
and compares the end with the recorded one. Exit code 0: it succeeded as recorded; 1: it failed as recorded; 2: it ended
otherwise. `--seconds N` sets another limit of time. The server runs models in a sandbox and this script does not: run a
model that you do not trust in a container.

| file | |
|---|---|
| `model` | the uploaded file ({format}, sent as {filename}) |
| `inputs.npz` | the example inputs that came with it, if any did |
| `request.json` | the request in the form in which `POST /compile` takes it |
| `compilation.json` | all that the server recorded, `problem.json` the failure alone |
| `versions.json` | toolchain, machine and limits |
| `tuning.json` | measured parameters of kernels that it used; `rerun.py` uses the same and measures nothing |
| `ir/` | the IR after every step, as text |
| `source/` | the sources of relaxd's compiler ({version}), which `rerun.py` uses |
"""


def write_repro(
    target: Path,
    compilation: Compilation,
    uploaded: Mapping[str, Path],
    snapshots: Iterator[tuple[str, str]],
    limits: Limits,
) -> None:
    """Writes the archive to the file `target`. `snapshots` gives names and texts of the IR, one after the other.

    Raises OSError.
    """
    document = compilation.to_json()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, path in uploaded.items():
            # Weights do not become smaller.
            archive.write(path, name, zipfile.ZIP_STORED)
        archive.writestr("request.json", _json(request_of(compilation)))
        archive.writestr("compilation.json", _json(document))
        if compilation.problem is not None:
            archive.writestr("problem.json", _json(compilation.problem))
        archive.writestr("versions.json", _json(versions_of(compilation, limits)))
        archive.writestr("tuning.json", _json(Tuning(records=compilation.tuning_records).to_json()))
        archive.writestr("requirements.txt", "".join(f"{line}\n" for line in _requirements(compilation)))
        archive.writestr("README.md", _readme(compilation))
        archive.writestr("rerun.py", RERUN)
        for name, text in snapshots:
            archive.writestr(f"ir/{name}", text)
        for path in bundled_sources():
            archive.write(path, f"source/service/{path.relative_to(_PACKAGE)}")


def request_of(compilation: Compilation) -> JsonObject:
    """The `request` part that makes this Compilation again, presets written out."""
    recipe = compilation.recipe.to_json()
    request: JsonObject = {
        "format": compilation.model.format.value,
        "passes": recipe["passes"],
        "pass_context": recipe["context"],
        "import": compilation.translator.to_json(),
        "target": recipe["target"],
        "verify": compilation.verify.value,
        "special_values": compilation.special_values.value,
    }
    if compilation.tuning is not None:
        request["tune"] = {"budget_s": compilation.tuning.budget_s}
    if recipe["until"] is not None:
        request["until"] = recipe["until"]
    if compilation.inputs is not None:
        request["inputs"] = [spec.to_json() for spec in compilation.inputs]
    return request


def versions_of(compilation: Compilation, limits: Limits) -> JsonObject:
    """What compiled it, where, and within which limits."""
    return {
        "relaxd": VERSION,
        "toolchain": compilation.toolchain,
        "machine": machine(),
        "limits": limits.to_json(),
    }


def machine() -> JsonObject:
    """The machine that this server runs on."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def bundled_sources() -> list[Path]:
    """The files of this package that compiling needs: those of the compiler and what these import, directly or not."""
    found: set[Path] = {_PACKAGE / "__init__.py"}
    waiting = [path for root in _ROOTS for path in sorted((_PACKAGE / root).rglob("*.py"))]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    return sorted(found)


def _imported(path: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            top, _, rest = name.partition(".")
            inside = _PACKAGE.joinpath(*rest.split("."))
            if top == _PACKAGE.name and rest:
                parts = (inside.with_suffix(".py"), inside / "__init__.py")
                yield from (file for file in parts if file.is_file())


def _requirements(compilation: Compilation) -> list[str]:
    toolchain = compilation.toolchain
    known = [
        f"{name}=={str(toolchain[key]).partition('+')[0]}" for key, name in _REQUIREMENTS.items() if key in toolchain
    ]
    return [*known, "numpy>=2,<3"]


def _readme(compilation: Compilation) -> str:
    problem = compilation.problem
    outcome = f"It {compilation.state.value}." if problem is None else f"It failed: {problem['detail']}"
    return README.format(
        id=compilation.id,
        outcome=" ".join(outcome.split()),
        format=compilation.model.format.value,
        filename=json.dumps(compilation.model.filename),
        version=VERSION,
    )


def _json(value: JsonObject) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
