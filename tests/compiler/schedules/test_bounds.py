"""No kernel touches memory beyond its buffers."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT


def test_kernels_stay_within_their_buffers():
    command = [sys.executable, "-W", "ignore", "-m", "tests.compiler.schedules.guarded"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("nothing was touched"), done.stderr[-2000:]
