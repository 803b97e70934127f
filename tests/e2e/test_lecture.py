"""The lecture's Fashion-MNIST network, through the server: the same 500 predictions as PyTorch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import SHARED

DATA = SHARED / "data"

EXPORT = """
import sys, numpy as np, torch
from torch import nn
params = np.load(sys.argv[1])
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
model.load_state_dict({"0.weight": torch.tensor(params["w0"]), "0.bias": torch.tensor(params["b0"]),
                       "2.weight": torch.tensor(params["w1"]), "2.bias": torch.tensor(params["b1"])})
images = torch.tensor(np.load(sys.argv[2])["images"].reshape(500, 784).astype(np.float32) / 255)
torch.export.save(torch.export.export(model.eval(), (images,)), sys.argv[3])
with torch.no_grad():
    np.save(sys.argv[4], model(images).argmax(1).numpy())
"""


@pytest.fixture(scope="module")
def lecture(tmp_path_factory):
    """The exported model, the images (500, 784) float32, eager's predictions and the labels."""
    if not DATA.is_dir():
        pytest.skip("the lecture's data is not beside this checkout (../shared/data)")
    folder = tmp_path_factory.mktemp("lecture")
    params, images = DATA / "lecture_mlp_params.npz", DATA / "fashion_mnist_500.npz"
    arguments = [str(path) for path in (params, images, folder / "m.pt2", folder / "eager.npy")]
    subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORT, *arguments], check=True)
    loaded = np.load(images)
    x = loaded["images"].reshape(500, 784).astype(np.float32) / 255
    return folder / "m.pt2", x, np.load(folder / "eager.npy"), loaded["labels"]


DENSE_RELU = {"name": "fuse_pattern", "options": {"pattern": ["dense", "add", "relu"]}}


@pytest.mark.parametrize(
    "request_",
    [
        {"passes": "course"},
        {"passes": "generic"},
        {"passes": "none"},
        {"passes": "integration", "import": {"translator": "course", "ops": "relax"}},
        {"passes": "integration", "import": {"translator": "course", "ops": "tensorir"}},
        {"passes": ["fold_constant", DENSE_RELU, "course"]},
        {"passes": ["fold_constant", DENSE_RELU, "generic"]},
    ],
    ids=["course", "generic", "none", "translated", "translated at once", "pattern", "pattern and generic"],
)
def test_all_500_predictions_equal_eagers(server, lecture, request_):
    model, images, eager, labels = lecture
    compilation = server.compile(model, {**request_, "verify": "every_step"})
    assert compilation.status_code == 201
    answer = server.http.post("/infer", json={"model": compilation.json()["id"], "inputs": {"input": images.tolist()}})
    predicted = np.array(answer.json()["outputs"]["output_0"]).argmax(1)
    assert (predicted == eager).all()
    assert (predicted == labels).sum() == 438


@pytest.mark.parametrize(("recipe", "groups"), [("course", 2), ("generic", 2)])
def test_fusion_shows_primitive_functions_and_fuse_tir_one_prim_func_for_each(server, lecture, recipe, groups):
    compilation = server.compile(lecture[0], {"passes": recipe}).json()["id"]

    def functions(stage: str):
        answer = server.http.get(
            f"/ir/{stage}", params={"id": compilation}, headers={"Accept": "application/json"}
        ).json()
        return answer["functions"]

    primitive = [function["name"] for function in functions("fusion") if function["primitive"]]
    assert len(primitive) == groups
    after = {function["name"]: function["kind"] for function in functions("fuse_tir")}
    assert all(after[name] == "tensorir" for name in primitive)
