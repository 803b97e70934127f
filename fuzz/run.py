"""``./dev fuzz [--seconds N] [--seed N] [api|http|readers …]``: looks for inputs that relaxd does not expect.

Without names all parts run, 45 seconds together: that is what CI runs. By hand, give it hours. What is found is written
to ``fuzz/findings`` and makes the exit code 1; each part says how to run the one input again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FINDINGS = ROOT / "fuzz" / "findings"
# Their shares of the time.
PARTS = {"api": 2, "http": 1, "readers": 2}


def main() -> int:
    """Runs the parts one after the other."""
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=45.0, help="for all of them together (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}")
    chosen = given.parts or list(PARTS)
    FINDINGS.mkdir(exist_ok=True)
    failed = []
    for part in chosen:
        seconds = given.seconds * PARTS[part] / sum(PARTS[each] for each in chosen)
        print(f"=== {part}, {seconds:.0f} s", flush=True)
        command = [sys.executable, "-W", "ignore", "-m", f"fuzz.{part}", f"{seconds:.1f}", str(given.seed)]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append(part)
    if failed:
        print(f"found something: {', '.join(failed)}; see {FINDINGS.relative_to(ROOT)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
