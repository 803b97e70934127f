"""relaxd.compile and the Compilation as something to call: each kind of model, arrays and tensors in and out."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import relaxd
import torch
from relaxd import compiling
from relaxd.stages import Stages
from rich.console import Console

from .fake_relaxd import ID, FakeRelaxd, compilation, parts
from .test_tour import served


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(3, 3)
        self.drop = torch.nn.Dropout()

    # Without annotations: torch cannot pickle a traced module that has them as strings.
    def forward(self, x, scale):
        return self.drop(self.dense(x)) * scale


EXAMPLES = (torch.ones(2, 3), torch.ones(3))


@pytest.fixture
def fake() -> FakeRelaxd:
    return FakeRelaxd()


@pytest.fixture
def url(fake: FakeRelaxd) -> Iterator[str]:
    with served(fake) as address:
        yield address
        compiling._client(address, None).close()


def sent(fake: FakeRelaxd) -> tuple[dict[str, object], dict[str, bytes]]:
    found = parts(fake.requests[-1])
    return json.loads(found["request"]), found


def test_a_module_is_exported_in_evaluation_mode_and_keeps_its_own(fake: FakeRelaxd, url: str) -> None:
    module = Net()
    module.dense.eval()
    compiled = relaxd.compile(module, EXAMPLES, passes="course", url=url)
    assert (module.training, module.dense.training, module.drop.training) == (True, False, True)
    request, found = sent(fake)
    assert (compiled.id, request["passes"]) == (ID, "course")
    program = torch.export.load(io.BytesIO(found["model"]))
    (dropout,) = [node for node in program.graph.nodes if "dropout" in str(node.target)]
    assert dropout.args[2] is False
    assert b'filename="Net.pt2"' in fake.requests[-1].content


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: "batch"}, "scale": None},
        ({0: torch.export.Dim("batch")}, None),
        [("batch", None), None],
    ],
)
def test_the_names_of_dynamic_dimensions_are_declared(fake: FakeRelaxd, url: str, shapes: object) -> None:
    relaxd.compile(Net(), EXAMPLES, dynamic_shapes=shapes, url=url)
    assert sent(fake)[0]["inputs"] == [
        {"name": "x", "shape": ["batch", 3], "dtype": "float32"},
        {"name": "scale", "shape": [3], "dtype": "float32"},
    ]


def test_example_inputs_may_be_arrays_by_argument(fake: FakeRelaxd, url: str) -> None:
    relaxd.compile(Net(), {"x": np.ones((2, 3), "float32"), "scale": np.ones(3, "float32")}, url=url)
    assert torch.export.load(io.BytesIO(sent(fake)[1]["model"])).graph_signature.user_inputs == ("x", "scale")


def test_an_exported_program_is_sent_as_it_is(fake: FakeRelaxd, url: str) -> None:
    relaxd.compile(torch.export.export(Net().eval(), EXAMPLES), url=url)
    assert "inputs" not in sent(fake)[0]


@pytest.mark.parametrize("make", [torch.jit.script, torch.fx.symbolic_trace])
def test_torchscript_and_fx_take_shapes_and_names_from_the_examples(fake: FakeRelaxd, url: str, make: object) -> None:
    relaxd.compile(make(Net().eval()), EXAMPLES, dynamic_shapes={"x": {0: "batch"}}, url=url)  # type: ignore[operator]
    request, found = sent(fake)
    assert request["inputs"] == [
        {"name": "x", "shape": ["batch", 3], "dtype": "float32"},
        {"name": "scale", "shape": [3], "dtype": "float32"},
    ]
    assert set(np.load(io.BytesIO(found["inputs"])).files) == {"x", "scale"}


def test_a_path_is_sent_with_named_examples(fake: FakeRelaxd, url: str, tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(b"PK")
    relaxd.compile(tmp_path / "m.pt2", {"x": torch.ones(2, 3)}, url=url, until="fusion")
    request, found = sent(fake)
    assert (request["until"], found["model"]) == ("fusion", b"PK")
    with pytest.raises(TypeError, match="dict by input name"):
        relaxd.compile(str(tmp_path / "m.pt2"), (torch.ones(1),), url=url)


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (3, {}, "not int"),
        (Net(), {}, "`example_inputs`"),
        ("m.pt2", {"dynamic_shapes": {}}, "`dynamic_shapes`"),
    ],
)
def test_what_makes_no_model_file_says_what_would(model: object, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        relaxd.compile(model, **arguments)  # type: ignore[arg-type]


def test_the_url_is_that_of_the_environment(fake: FakeRelaxd, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXD_URL", url)
    relaxd.compile(Net(), EXAMPLES)
    assert fake.sent() == ["POST /compile"]


def test_progress_is_shown_with_rich_and_calls_on_step_too(fake: FakeRelaxd, url: str, capsys) -> None:
    seen: list[int] = []
    relaxd.compile(Net(), EXAMPLES, url=url, progress=True, on_step=lambda step: seen.append(step.index))
    assert seen == [0, 1, 2]
    relaxd.compile(Net(), EXAMPLES, url=url)
    assert capsys.readouterr().out == ""


def compiled(signature: dict[str, object] | None = None) -> relaxd.Compilation:
    state = compilation() if signature is None else compilation(signature=signature)
    return relaxd.Client("http://server", transport=httpx.MockTransport(FakeRelaxd(state))).get(ID)


def two_inputs() -> relaxd.Compilation:
    spec = {"shape": [2], "dtype": "float32"}
    specs = [{"name": "x", **spec}, {"name": "y", **spec}]
    return compiled({"inputs": specs, "outputs": specs})


def test_arrays_in_give_arrays_and_tensors_give_tensors() -> None:
    model = compiled()
    array = np.ones((1, 3), "float32")
    assert isinstance(model(array), np.ndarray)
    answer = model(torch.from_numpy(array))
    assert isinstance(answer, torch.Tensor)
    assert torch.equal(answer, torch.ones(1, 3))
    assert torch.equal(model(x=torch.ones(1, 3, requires_grad=True)), answer)


def test_several_outputs_are_a_tuple_in_order() -> None:
    x, y = two_inputs()(np.zeros(2, "float32"), y=np.ones(2, "float32"))
    assert (x.tolist(), y.tolist()) == ([0, 0], [1, 1])


def test_bfloat16_goes_there_and_back() -> None:
    spec = {"name": "x", "shape": [2], "dtype": "bfloat16"}
    answer = compiled({"inputs": [spec], "outputs": [spec]})(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert (answer.dtype, answer.tolist()) == (torch.bfloat16, [1.5, -2.0])


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, 2, 3), {}, "takes 2 inputs"),
        ((1,), {}, "missing: y"),
        ((1,), {"x": 1, "y": 1}, "given twice"),
        ((1, 2), {"z": 1}, "no input 'z'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_as_by_a_function(args: tuple, kwargs: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        two_inputs()(*args, **kwargs)


def test_a_compilation_without_a_signature_cannot_be_called() -> None:
    state = compilation("queued", 0, signature=None)
    client = relaxd.Client("http://server", transport=httpx.MockTransport(FakeRelaxd(state)))
    with pytest.raises(TypeError, match="no Signature"):
        client.get(ID)(1)


def test_the_stages_are_names_and_show_themselves_as_a_table() -> None:
    stages = compiled().stages
    assert stages == ("import", "fusion", "fuse_tir")
    assert str(stages) == compiled().table()
    console = Console(width=100, file=io.StringIO())
    console.print(stages)
    assert "fuse_dense_add" in console.file.getvalue()  # type: ignore[attr-defined]
    page = stages._repr_html_()
    assert page.startswith("<table>")
    assert page.count("<tr") == 4
    assert "9 -&gt; 6" in page
    again = pickle.loads(pickle.dumps(stages))
    assert (type(again), again.steps) == (Stages, stages.steps)
