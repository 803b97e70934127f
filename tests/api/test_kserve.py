"""kserve's InferenceRESTClient, unmodified, in an environment of its own: its pins contradict ours, so it cannot be in ours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

# A Python that has kserve. Without it the long tests install one: 450 MB.
GIVEN = os.environ.get("RELAXD_KSERVE_PYTHON")


@pytest.fixture(scope="module")
def kserve_python(tmp_path_factory):
    if GIVEN:
        return GIVEN
    folder = tmp_path_factory.mktemp("kserve")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "kserve==0.21.0"], check=True)
    return str(folder / "bin/python")


@pytest.mark.skipif(
    not (GIVEN or os.environ.get("RELAXD_LONG_TESTS")), reason="kserve takes an environment of 450 MB of its own"
)
def test_the_client_of_kserve_gets_all_that_it_asks_for(server, model_file, kserve_python):
    document = server.compile(model_file("dynamic"), {"passes": "generic"}).json()
    names = [document["signature"][kind][0]["name"] for kind in ("inputs", "outputs")]
    command = [kserve_python, str(ROOT / "tests/kserve_suite.py"), server.url, document["id"], *names]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.stdout.endswith("passed\n"), done.stderr
