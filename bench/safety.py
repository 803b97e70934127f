"""``./dev bench safety``: what of SECURITY.md holds here, in figures, with the layers of the sandbox that were on.

It loads a server with many clients, twice; runs the batteries (tests of HTTP, hostile behaviours, hostile files, and
faults) and counts; and writes ``bench/results/safety-<date>.json``. All of it takes three quarters of an hour.

Environment: ``RELAXD_OVERLOAD_CLIENTS`` (500) and ``RELAXD_OVERLOAD_S`` (600) make it shorter, ``RELAXD_SAFETY_PARTS``
chooses parts by name, ``RELAXD_LONG_TESTS=1`` tries faults at all places instead of a sample, and ``RELAXD_RESULTS`` is
another folder.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.machine import describe
from bench.overload import measure

ROOT = Path(__file__).parent.parent
RESULTS = Path(os.environ.get("RELAXD_RESULTS", ROOT / "bench" / "results"))
BATTERIES = {
    "http": ["tests/test_http_protocol.py"],
    "hostile_behaviours": ["tests/worker/test_battery.py", "tests/worker/test_container.py"],
    "hostile_files": ["tests/hostile", "--deselect", "tests/hostile/test_fuzz.py"],
    "faults": ["tests/e2e/test_store_faults.py", "tests/e2e/test_faults.py", "tests/faults"],
}


def small_model(folder: Path) -> bytes:
    """A small honest model."""
    file = folder / "mlp.pt2"
    command = [sys.executable, "-W", "ignore", "-m", "tests.models", "mlp", str(file), "pt2"]
    subprocess.run(command, cwd=ROOT, check=True)
    return file.read_bytes()


def battery(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Runs tests, and counts what became of them, and at how many places those of faults have tried one."""
    report, start = folder / "report.xml", time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", f"--junitxml={report}", *arguments]
    subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    suite = next(iter(ElementTree.parse(report).getroot().iter("testsuite")))
    counts = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    bad = [
        case.get("name") for case in suite.iter("testcase") if any(child.tag in ("failure", "error") for child in case)
    ]
    places = [int(entry.get("value", "0")) for entry in suite.iter("property") if entry.get("name") == "places"]
    tried = {"places": sum(places)} if places else {}
    return {**counts, **tried, "failed": bad, "seconds": round(time.monotonic() - start, 1)}


def counts() -> dict[str, int]:
    """How many behaviours and files the batteries hold."""
    tables = {
        "behaviours": "behaviours.BEHAVIOURS",
        "pt2_files": "pt2_files.CHANGES",
        "torchscript_files": "script_files.CHANGES",
        "fx_files": "fx_files.CHANGES",
        "archives_that_lie": "archives.LIES",
    }
    listed = ", ".join(f"{name!r}: len({table})" for name, table in tables.items())
    code = (
        "import json; from tests.hostile import archives, behaviours, fx_files, pt2_files, script_files; "
        f"print(json.dumps({{{listed}}}))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def layers() -> dict[str, dict[str, str]]:
    """The state of each layer of the sandbox, by role."""
    command = [sys.executable, "-P", "-m", "service.worker", "probe"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def main() -> None:
    """Runs all of it and writes the results."""
    clients = int(os.environ.get("RELAXD_OVERLOAD_CLIENTS", "500"))
    seconds = float(os.environ.get("RELAXD_OVERLOAD_S", "600"))
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    file = RESULTS / f"safety-{date}.json"
    # Parts that were run earlier this day, by another choice, stay.
    earlier: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    results: dict[str, Any] = earlier | {
        "date": date,
        "machine": describe(),
        "layers": layers(),
        "counts": counts(),
    }
    with tempfile.TemporaryDirectory() as folder:
        model = small_model(Path(folder))
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "overload": partial(measure, seconds, clients, Path(folder), model)
        }
        parts |= {name: partial(battery, arguments, Path(folder)) for name, arguments in BATTERIES.items()}
        chosen = os.environ.get("RELAXD_SAFETY_PARTS", ",".join(parts)).split(",")
        for name in chosen:
            results[name] = parts[name]()
            print(name, json.dumps(results[name]), flush=True)
            # After each part: it takes long, and what is known is known.
            file.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {file}")


if __name__ == "__main__":
    main()
