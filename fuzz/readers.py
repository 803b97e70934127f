"""atheris, which follows the coverage of the code, over all that reads what strangers send.

Each target runs in a process of its own: ``python -m fuzz.readers TARGET [libFuzzer's arguments]``, with the file of a
finding to try that one again. Whatever a reader raises that is not a Problem is a finding, as is one that takes too
long or too much memory. The inputs are single entries of archives, not whole ones: a mutated archive is nearly always
refused for its checksums.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from fuzz.run import FINDINGS, ROOT

CORPUS = ROOT / "fuzz" / "corpus"
TARGETS = ("pt2", "torchscript", "fx", "zip", "pickle", "json")
MEMORY_MB, SECONDS_FOR_ONE = 2048, 20


def main(seconds: float, seed: int) -> int:
    """Runs all targets one after the other; their new inputs are thrown away, findings are kept."""
    failed = 0
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as grown:
            command = [
                sys.executable, "-W", "ignore", "-m", "fuzz.readers", target, grown, str(CORPUS / target),
                f"-max_total_time={max(1, round(seconds / len(TARGETS)))}", f"-seed={seed}",
                f"-timeout={SECONDS_FOR_ONE}", f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={FINDINGS}/{target}-",
                "-max_len=65536",
                "-print_final_stats=1",
            ]  # fmt: skip
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
        runs = [line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line]
        print(f"{target}: {runs[0] if runs else '?'} inputs", flush=True)
        if done.returncode != 0:
            failed += 1
            print("\n".join((done.stdout + done.stderr).splitlines()[-40:]), flush=True)
    return 1 if failed else 0


def fuzz(target: str, arguments: list[str]) -> None:
    """Runs one target until libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["service"], enable_loader_override=False):
        from service import formats
        from service.api.json_body import parse_object
        from service.compiler.readers.archive import ArchiveLimits
        from service.compiler.readers.fx import read_fx
        from service.compiler.readers.inert_pickle import read_pickle
        from service.compiler.readers.pt2 import rewrite_pt2
        from service.compiler.readers.torchscript import rewrite_torchscript
        from service.errors import InternalError, Problem

    folder = Path(tempfile.mkdtemp())
    upload, clean = folder / "upload", folder / "clean"
    limits = ArchiveLimits(unpacked_bytes=16 << 20)
    honest = {name: _entries(CORPUS / f"{name}.zip") for name in ("pt2", "torchscript", "fx")}

    def archive(of: str, read: Callable[[], object]) -> Callable[[bytes], object]:
        """One entry of an honest archive in place of another: its number, then its bytes."""
        names = list(honest[of])

        def attempt(data: bytes) -> object:
            name = names[data[0] % len(names)] if data else names[0]
            _pack(upload, {**honest[of], name: data[1:]})
            return read()

        return attempt

    def whole(data: bytes) -> object:
        upload.write_bytes(data)
        return formats.recognise(upload)

    targets: dict[str, Callable[[bytes], object]] = {
        "pt2": archive("pt2", lambda: rewrite_pt2(upload, clean, limits)),
        "torchscript": archive("torchscript", lambda: rewrite_torchscript(upload, clean, limits)),
        "fx": archive("fx", lambda: read_fx(upload, limits)),
        "zip": whole,
        "pickle": lambda data: read_pickle(data, "x"),
        "json": lambda data: parse_object(data, "The body"),
    }

    def one(data: bytes) -> None:
        try:
            targets[target](data)
        except InternalError:
            raise
        except Problem as problem:
            if not problem.detail.endswith("."):
                raise AssertionError(f"no sentence: {problem.detail}") from problem

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


def _entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _pack(path: Path, files: dict[str, bytes]) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    path.write_bytes(out.getvalue())


if __name__ == "__main__":
    if sys.argv[1] in TARGETS:
        os.nice(5)
        fuzz(sys.argv[1], sys.argv[2:])
    else:
        sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
