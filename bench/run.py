"""Runs the benchmarks of this folder: ``./dev bench [NAME]``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
LONG = ("overload", "safety")
PARTS = (
    "run",
    "machine",
    "cpu_candidate",
    "cpu_models",
    "ratio_plot",
    "rate_plot",
    "serve_load",
    "serve_peers",
    "__init__",
)


def main(names: list[str]) -> int:
    """Runs the named benchmarks, or all but the long ones."""
    known = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in PARTS)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark is named {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    sys.path.insert(0, str(HERE.parent))
    # The two that take the longest run only where they are named.
    for name in names or [name for name in known if name not in LONG]:
        print(f"=== {name}", flush=True)
        runpy.run_module(f"bench.{name}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
