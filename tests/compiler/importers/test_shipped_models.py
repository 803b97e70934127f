"""Real files: silero-vad's TorchScript, facenet's MTCNN nets, a digit recognizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.fx
from torch import nn

from service.compiler.compile import compile_model
from service.compiler.importers.fx import load_program as load_fx
from service.compiler.importers.torchscript import load_program as load_script
from service.errors import ImportFailed, UnsupportedFormat
from service.formats import recognise
from service.nouns import ModelFormat, TensorSpec
from service.runtime.session import Session
from tests.compiler.conftest import DATA, MakeRun
from tests.compiler.importers.shipped import shipped
from tests.compiler.readers.test_pt2 import job_of

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")


def silero() -> Path:
    return shipped("silero-vad", "6.2.3", "silero_vad/data/silero_vad.jit")


def test_silero_as_shipped_is_refused_for_its_state_and_its_branch(tmp_path: Path) -> None:
    path = silero()
    assert recognise(path) is ModelFormat.TORCHSCRIPT
    with pytest.raises(ImportFailed) as caught:
        load_script(job_of(path, tmp_path, ModelFormat.TORCHSCRIPT))
    constructs = caught.value.extensions["constructs"]
    state = {construct["what"] for construct in constructs if construct["kind"] == "state"}
    assert {"it sets its attribute `_state`", "it sets its attribute `_context`"} <= state
    branches = [construct for construct in constructs if construct["kind"] == "branch"]
    assert any("the plain int `sr`" in branch["what"] for branch in branches)
    assert all("vad_annotator.py:" in construct["source_line"] for construct in constructs)
    assert "`_state`" in caught.value.detail
    assert "`sr`" in caught.value.detail


class Core(nn.Module):
    """The 16 kHz model with its state as an input and an output."""

    def __init__(self, shipped_model: Any) -> None:
        super().__init__()
        self.inner = shipped_model._model

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, new_state = self.inner(x, state)
        return out, new_state


def speech(chunks: int) -> np.ndarray:
    """Speech-like sound (harmonics that swell and fade) and then silence, at 16 kHz."""
    time = np.arange(chunks * 512) / 16_000
    voice = sum(np.sin(2 * np.pi * 120 * k * time) / k for k in range(1, 12)) * (
        0.5 + 0.5 * np.sin(2 * np.pi * 3 * time)
    )
    voice[len(voice) // 2 :] = 0
    return (0.1 * voice).astype("float32").reshape(chunks, 512)


def test_the_core_of_silero_streams_as_eager_does(make_run: MakeRun, tmp_path: Path) -> None:
    core = Core(torch.jit.load(silero()).eval())
    x, state = torch.randn(1, 576) * 0.1, torch.zeros(2, 1, 128)
    traced = torch.jit.trace(core, (x, state), check_trace=False)
    torch.jit.save(traced, tmp_path / "core.pt")
    inputs = (TensorSpec("x", (1, 576), "float32"), TensorSpec("state", (2, 1, 128), "float32"))
    run = make_run(str(tmp_path / "core.pt"), format=ModelFormat.TORCHSCRIPT, inputs=inputs)
    compile_model(run.job, run.emit)
    session = Session(run.job.library_path)
    context, mine, theirs = np.zeros((1, 64), "float32"), np.zeros((2, 1, 128), "float32"), torch.zeros(2, 1, 128)
    probabilities = []
    for chunk in speech(40):
        window = np.concatenate([context, chunk[None]], 1)
        context = window[:, -64:]
        out, mine = session.run([window, mine])
        with torch.no_grad():
            expected, theirs = core(torch.from_numpy(window), theirs)
        np.testing.assert_allclose(out, expected.numpy(), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-3, atol=1e-4)
        probabilities.append(float(out[0, 0]))
    assert max(probabilities[:20]) > max(probabilities[-5:])


class PNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 10, 3), nn.PReLU(10)
        self.pool1 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv2, self.prelu2 = nn.Conv2d(10, 16, 3), nn.PReLU(16)
        self.conv3, self.prelu3 = nn.Conv2d(16, 32, 3), nn.PReLU(32)
        self.conv4_1, self.softmax4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Softmax(dim=1), nn.Conv2d(32, 4, 1)

    def forward(self, x):
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.prelu3(self.conv3(self.prelu2(self.conv2(x))))
        return self.conv4_2(x), self.softmax4_1(self.conv4_1(x))


class RNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 28, 3), nn.PReLU(28)
        self.pool1, self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2, self.prelu2 = nn.Conv2d(28, 48, 3), nn.PReLU(48)
        self.conv3, self.prelu3 = nn.Conv2d(48, 64, 2), nn.PReLU(64)
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.softmax5_1, self.dense5_2 = nn.Linear(128, 2), nn.Softmax(dim=1), nn.Linear(128, 4)

    def forward(self, x):
        x = self.pool2(self.prelu2(self.conv2(self.pool1(self.prelu1(self.conv1(x))))))
        x = self.prelu3(self.conv3(x)).permute(0, 3, 2, 1).contiguous()
        x = self.prelu4(self.dense4(x.view(x.shape[0], -1)))
        return self.dense5_2(x), self.softmax5_1(self.dense5_1(x))


class ONet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 32, 3), nn.PReLU(32)
        self.pool1, self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2, self.prelu2 = nn.Conv2d(32, 64, 3), nn.PReLU(64)
        self.conv3, self.prelu3, self.pool3 = nn.Conv2d(64, 64, 3), nn.PReLU(64), nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv4, self.prelu4 = nn.Conv2d(64, 128, 2), nn.PReLU(128)
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.softmax6_1 = nn.Linear(256, 2), nn.Softmax(dim=1)
        self.dense6_2, self.dense6_3 = nn.Linear(256, 4), nn.Linear(256, 10)

    def forward(self, x):
        x = self.pool2(self.prelu2(self.conv2(self.pool1(self.prelu1(self.conv1(x))))))
        x = self.prelu4(self.conv4(self.pool3(self.prelu3(self.conv3(x))))).permute(0, 3, 2, 1).contiguous()
        x = self.prelu5(self.dense5(x.view(x.shape[0], -1)))
        return self.dense6_2(x), self.dense6_3(x), self.softmax6_1(self.dense6_1(x))


NETS = {"pnet": (PNet, 24), "rnet": (RNet, 24), "onet": (ONet, 48)}


@pytest.mark.parametrize("form", ["torchscript", "fx"])
@pytest.mark.parametrize("name", NETS)
def test_the_nets_of_mtcnn_give_eagers_answers(name: str, form: str, tmp_path: Path) -> None:
    path = shipped("facenet-pytorch", "2.6.0", f"facenet_pytorch/data/{name}.pt")
    with pytest.raises(UnsupportedFormat, match=r"before 1\.6|state_dict"):
        recognise(path)
    make, size = NETS[name]
    net = make()
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    net.eval()
    x = torch.randn(2, 3, size, size)
    if form == "fx":
        torch.save(torch.fx.symbolic_trace(net), tmp_path / "m.pt")
    else:
        torch.jit.save(torch.jit.trace(net, x), tmp_path / "m.pt")
    model_format = ModelFormat(form)
    assert recognise(tmp_path / "m.pt") is model_format
    inputs = (TensorSpec("x", ("batch", 3, size, size), "float32"),)
    program = (load_fx if form == "fx" else load_script)(
        job_of(tmp_path / "m.pt", tmp_path, model_format, inputs=inputs)
    )
    larger = torch.randn(5, 3, size, size)
    for given, expected in zip(program.module()(larger), net(larger), strict=True):
        torch.testing.assert_close(given, expected)


def write(net: nn.Module, x: torch.Tensor, form: str, file: Path) -> Path:
    """The net in that format, over any batch where the format says it."""
    if form == "fx":
        torch.save(torch.fx.symbolic_trace(net), file)
    elif form == "torchscript":
        torch.jit.save(torch.jit.script(net), file)
    else:
        batch = torch.export.Dim("batch", min=1)
        with file.open("wb") as out:
            torch.export.save(torch.export.export(net, (x,), dynamic_shapes=({0: batch},)), out)
    return file


FORMS = ["exported_program", "torchscript", "fx"]


@pytest.mark.parametrize(
    ("name", "form"), [("pnet", form) for form in FORMS] + [("rnet", "fx"), ("onet", "torchscript")]
)
def test_the_nets_of_mtcnn_are_compiled_and_verified(name: str, form: str, make_run: MakeRun, tmp_path: Path) -> None:
    path = shipped("facenet-pytorch", "2.6.0", f"facenet_pytorch/data/{name}.pt")
    make, size = NETS[name]
    net = make()
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    x = torch.randn(2, 3, size, size)
    file = write(net.eval(), x, form, tmp_path / "net")
    inputs = (TensorSpec("x", ("batch", 3, size, size), "float32"),)
    run = make_run(str(file), format=ModelFormat(form), inputs=inputs)
    compile_model(run.job, run.emit)
    larger = torch.randn(5, 3, size, size)
    for answer, expected in zip(Session(run.job.library_path).run([larger.numpy()]), net(larger), strict=True):
        np.testing.assert_allclose(answer, expected.detach().numpy(), rtol=1e-3, atol=1e-3)


class Lecture(nn.Module):
    """The MLP of the lecture, which has Fashion-MNIST's images as rows."""

    def __init__(self, widths: tuple[int, ...] = (784, 128, 10)) -> None:
        super().__init__()
        self.dense0, self.dense1 = nn.Linear(*widths[:2]), nn.Linear(*widths[1:])

    def forward(self, x):
        return self.dense1(torch.relu(self.dense0(x)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["lecture", "digits"])
def test_the_mlps_give_eagers_predictions_in_every_format(
    name: str, form: str, make_run: MakeRun, tmp_path: Path, lecture_mlp: Any
) -> None:
    torch.manual_seed(0)
    net = Lecture() if name == "lecture" else Lecture((64, 32, 10))
    rows = lecture_mlp[1] if name == "lecture" else np.random.default_rng(0).random((50, 64), np.float32)
    if name == "lecture":
        weights = np.load(DATA / "lecture_mlp_params.npz")
        net.load_state_dict(
            {
                f"dense{k}.{part}": torch.from_numpy(weights[f"{part[0]}{k}"])
                for k in (0, 1)
                for part in ("weight", "bias")
            }
        )
    file = write(net.eval(), torch.from_numpy(rows[:4]), form, tmp_path / "net")
    run = make_run(str(file), format=ModelFormat(form), inputs=(TensorSpec("x", ("batch", rows.shape[1]), "float32"),))
    compile_model(run.job, run.emit)
    (answer,) = Session(run.job.library_path).run([rows])
    expected = net(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(answer.argmax(1), expected.argmax(1))
    if name == "lecture":
        assert (answer.argmax(1) == lecture_mlp[2]).mean() > 0.8


class Digits(nn.Module):
    """digit_recognizer.model.CNN."""

    def __init__(self):
        super().__init__()
        layers = []
        for before, after in ((1, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(before, after, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2)]
        self.conv_layers = nn.Sequential(*layers)
        self.fc_layers = nn.Sequential(nn.Linear(128 * 3 * 3, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x):
        x = self.conv_layers(x)
        return self.fc_layers(x.view(x.size(0), -1))


@pytest.mark.parametrize("form", FORMS)
def test_the_digit_recognizer_is_compiled_from_every_format(make_run: MakeRun, tmp_path: Path, form: str) -> None:
    path = shipped("digit-recognizer-py", "0.1.0", "digit_recognizer/models/handwriting_model.pth")
    with pytest.raises(UnsupportedFormat) as caught:
        recognise(path)
    assert caught.value.extensions["found"] == "state_dict"
    net = Digits()
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    net.eval()
    x = torch.rand(2, 1, 28, 28)
    file = write(net, x, form, tmp_path / "net")
    assert recognise(file).value == form
    inputs = (TensorSpec("x", ("batch", 1, 28, 28), "float32"),)
    run = make_run(str(file), format=ModelFormat(form), inputs=inputs)
    compile_model(run.job, run.emit)
    larger = torch.rand(5, 1, 28, 28)
    (answer,) = Session(run.job.library_path).run([larger.numpy()])
    np.testing.assert_allclose(answer, net(larger).detach().numpy(), rtol=1e-4, atol=1e-4)
