"""An Artifact as one file: the library with its weights, the manifest, and a script that runs it without relaxd."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from service.records import Artifact, Compilation

_RUNNER = Path(__file__).parent / "runtime" / "artifact_runner.py"
_README = """# A compiled model

{inputs} -> {outputs}

    pip install apache-tvm=={tvm} apache-tvm-ffi=={tvm_ffi} numpy
    python run.py inputs.npz outputs.npz

`model.so` has the kernels and the weights, `manifest.json` the names, shapes and dtypes, what the CPU must have, and
how far the numbers may be from PyTorch's; `run.py` is a command and a module. Made by relaxd from Compilation {id}.
"""


def write_archive(path: Path, compilation: Compilation, artifact: Artifact, library: Path) -> None:
    """Writes the archive to `path`. Raises OSError."""
    manifest = artifact.manifest
    signature = manifest["signature"]
    shown = {
        side: ", ".join(f"{spec['name']} {spec['dtype']} {spec['shape']}" for spec in signature[side])
        for side in ("inputs", "outputs")
    }
    versions = {name: str(manifest["toolchain"][name]) for name in ("tvm", "tvm_ffi")}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.md", _README.format(id=compilation.id, **shown, **versions))
        archive.writestr("manifest.json", json.dumps(manifest, indent=1))
        archive.write(_RUNNER, "run.py")
        # Weights do not get smaller.
        archive.write(library, "model.so", zipfile.ZIP_STORED)
