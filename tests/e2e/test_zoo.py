"""Real architectures through the server: compiled, verified, and right on inputs that the compiler has never seen."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT

# By name and not from tests.zoo: torch stays out of the tests' own process.
NAMES = [
    "lenet", "resnet18", "mobilenet_v2", "unet", "vit", "bert", "gpt", "lstm_tagger", "gru_tagger", "convnext", "dlrm",
    "einsum", "diffusion_block",
]  # fmt: skip


@pytest.mark.parametrize("preset", ["fast", "generic"])
@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_gives_eagers_answers(server, tmp_path, name, preset):
    model, answers = tmp_path / "model.pt2", tmp_path / "answers.npz"
    command = [sys.executable, "-W", "ignore", "-m", "tests.zoo", name, str(model), str(answers)]
    subprocess.run(command, cwd=ROOT, check=True)
    answer = server.compile(model, {"passes": preset})
    assert answer.status_code == 201, answer.json()
    compilation = answer.json()
    names = [spec["name"] for spec in compilation["signature"]["inputs"]]
    stored = np.load(answers)
    for case in range(3):
        inputs = {name: stored[f"{case}_in_{index}"].tolist() for index, name in enumerate(names)}
        answer = server.http.post("/infer", json={"model": compilation["id"], "inputs": inputs})
        assert answer.status_code == 200, answer.json()
        for index, spec in enumerate(compilation["signature"]["outputs"]):
            expected = stored[f"{case}_out_{index}"]
            got = np.array(answer.json()["outputs"][spec["name"]], dtype=expected.dtype)
            scale = np.abs(expected).max()
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4 * scale)


def test_the_list_here_is_the_whole_zoo():
    code = "from tests.zoo import ZOO; print(' '.join(ZOO))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == NAMES
