"""Both clients against a real server (fixture `server_url`): the contract that the fake only repeats."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import relaxd
import torch
from relaxd import AsyncClient, Client, Step, errors

from .test_tour import TOUR

SIZES = (6, 5, 3)
README = Path(__file__).parents[2] / "clients" / "python" / "README.md"


def save(module: torch.nn.Module, path: Path, example: torch.Tensor) -> Path:
    torch.export.save(torch.export.export(module.eval(), (example,)), path)
    return path


@pytest.fixture(scope="module")
def mlp() -> torch.nn.Module:
    torch.manual_seed(7)
    layers = torch.nn.Linear(SIZES[0], SIZES[1]), torch.nn.ReLU(), torch.nn.Linear(SIZES[1], SIZES[2])
    return torch.nn.Sequential(*layers)


@pytest.fixture(scope="module")
def model(mlp: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(mlp, tmp_path_factory.mktemp("real") / "mlp.pt2", torch.ones(2, SIZES[0]))


def test_compile_watch_look_and_infer_over_the_course_recipe(
    server_url: str, mlp: torch.nn.Module, model: Path
) -> None:
    seen: list[Step] = []
    x = np.linspace(-1, 1, 2 * SIZES[0], dtype="float32").reshape(2, SIZES[0])
    with Client(server_url) as client:
        compiled = client.compile(model, passes="course", verify="every_step", on_step=seen.append)
        assert tuple(seen) == compiled.steps
        assert compiled.stages[0] == "import"
        assert {"fusion", "fuse_tir"} <= set(compiled.stages)
        assert compiled.verification is not None
        assert compiled.verification.passed
        assert compiled.model.filename == "mlp.pt2"
        assert all(step.error is not None and step.error < 1e-4 for step in compiled.steps)
        assert compiled.verify().first_wrong is None
        plain = client.compile(model, passes="course")
        assert plain.checks == "artifact"
        checked = plain.verify()
        assert checked.passed
        assert checked.raw["steps"] == {"first_wrong": None, "first_jump": None}
        assert "R.function" in compiled.ir("fusion")
        assert "T.prim_func" in compiled.ir("fuse_tir")
        assert compiled.diff("import", "fusion").startswith("--- import\n+++ fusion\n")
        snapshot = compiled.snapshot("fusion")
        assert snapshot.step == next(step for step in reversed(compiled.steps) if step.stage == "fusion")
        assert any(function.primitive for function in snapshot.functions)
        assert len(compiled.table().splitlines()) == len(compiled.steps) + 1
        (output,) = compiled.infer(x).values()
    assert output.dtype == "float32"
    np.testing.assert_allclose(output, mlp(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_the_same_request_is_the_same_compilation_and_reports_its_steps_again(server_url: str, model: Path) -> None:
    seen: list[int] = []
    with Client(server_url) as client:
        first = client.compile(model, passes="course")
        again = client.compile(model.read_bytes(), passes="course", on_step=lambda step: seen.append(step.index))
        assert again.id == first.id
        assert seen == [step.index for step in first.steps]
        assert first.id in [entry.id for entry in client.compilations()]


def test_example_inputs_target_and_pass_options_are_accepted(server_url: str, model: Path) -> None:
    with Client(server_url) as client:
        compiled = client.compile(model, passes=[{"name": "fuse_dense_add", "options": {}}], target={"threads": 1})
        assert compiled.signature is not None
        name = compiled.signature.inputs[0].name
        examples = {name: np.full((2, SIZES[0]), 0.25, "float32")}
        checked = client.compile(model, passes=["fuse_dense_add"], example_inputs=examples, target={"threads": 1})
    assert checked.id != compiled.id
    assert [spec.name for spec in checked.recipe.passes] == ["fuse_dense_add"]
    assert checked.recipe.target["threads"] == 1


def test_non_finite_numbers_and_int64_come_through_exactly(server_url: str, tmp_path: Path) -> None:
    class Both(torch.nn.Module):  # type: ignore[misc]  # torch is Any by the settings of mypy
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.log(x), (x > 0).to(torch.int64) + (2**53 + 1)

    path = save(Both(), tmp_path / "both.pt2", torch.tensor([1.0, 2.0, 3.0]))
    with Client(server_url) as client:
        logs, counts = client.compile(path).infer(np.array([-1, 0, np.inf], "float32")).values()
    np.testing.assert_array_equal(logs, np.array([np.nan, -np.inf, np.inf], "float32"))
    assert (counts.dtype.name, counts.tolist()) == ("int64", [2**53 + 1, 2**53 + 1, 2**53 + 2])


def test_the_mistakes_of_a_request_are_the_typed_errors(server_url: str, model: Path) -> None:
    with Client(server_url) as client:
        with pytest.raises(errors.UnknownPass) as caught:
            client.compile(model, passes=["fuse_dense_ad"])
        assert caught.value.extensions["nearest"][0] == "fuse_dense_add"
        with pytest.raises(errors.UnknownRecipe):
            client.compile(model, passes="corse")
        with pytest.raises(errors.EmptyModel):
            client.compile(b"")
        with pytest.raises(errors.UnsupportedFormat):
            client.compile(b"GIF89a, not a model")
        compiled = client.compile(model, passes="course")
        with pytest.raises(errors.StageNotReached):
            compiled.ir("simplify")
        with pytest.raises(errors.UnknownStage):
            compiled.ir("fused")
        with pytest.raises(errors.InputShape):
            compiled.infer(np.zeros((2, SIZES[0] + 1), "float32"))
        with pytest.raises(errors.InputDtype):
            compiled.infer(np.zeros((2, SIZES[0]), "float64"))
        with pytest.raises(errors.UnknownModel):
            client.infer("0" * 32, {"x": np.zeros(1, "float32")})


def test_a_failed_compilation_is_a_compilation_error_whose_steps_stay_readable(server_url: str, model: Path) -> None:
    seen: list[int] = []
    with Client(server_url) as client:
        with pytest.raises(errors.CompilationError) as caught:
            client.compile(
                model,
                inputs=[{"name": "x", "shape": [2, SIZES[0] + 1], "dtype": "float32"}],
                on_step=lambda step: seen.append(step.index),
            )
        assert caught.value.compilation is not None
        failed = client.get(caught.value.compilation)
    assert failed.state == "failed"
    assert type(failed.problem) is type(caught.value)
    assert seen == [step.index for step in failed.steps]


def test_deleted_is_unknown(server_url: str, model: Path) -> None:
    with Client(server_url) as client:
        compiled = client.compile(model, passes="none")
        client.delete(compiled.id)
        with pytest.raises(errors.UnknownCompilation):
            client.get(compiled.id)


def test_the_catalogue_and_health_of_a_real_server_can_be_read(server_url: str) -> None:
    with Client(server_url) as client:
        assert "course" in [recipe.name for recipe in client.recipes()]
        names = [info.name for info in client.passes()]
        assert {spec.name for recipe in client.recipes() for spec in recipe.passes} <= set(names)
        assert client.health()["status"] in ("ok", "starting")


def test_the_asynchronous_client_compiles_and_infers_several_at_once(
    server_url: str, mlp: torch.nn.Module, model: Path
) -> None:
    batches = [np.full((2, SIZES[0]), value, "float32") for value in (-1, 0, 1, 2)]

    async def use() -> list[np.ndarray]:
        async with AsyncClient(server_url) as client:
            twins = await asyncio.gather(*(client.compile(model, passes="generic") for _ in range(3)))
            assert len({twin.id for twin in twins}) == 1
            answers = await asyncio.gather(*(twins[0].infer(batch) for batch in batches))
            return [next(iter(outputs.values())) for outputs in answers]

    for batch, output in zip(batches, asyncio.run(use()), strict=True):
        expected = mlp(torch.from_numpy(batch)).detach().numpy()
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_a_module_is_compiled_called_profiled_published_and_taken_away_in_a_few_lines(
    server_url: str, mlp: torch.nn.Module, tmp_path: Path
) -> None:
    x = torch.linspace(-1, 1, 2 * SIZES[0]).reshape(2, SIZES[0])
    compiled = relaxd.compile(mlp, (x,), "course", dynamic_shapes=({0: "batch"},), url=server_url)
    assert compiled.signature is not None
    assert compiled.signature.inputs[0].shape == ("batch", SIZES[0])
    torch.testing.assert_close(compiled(x), mlp(x).detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(compiled(x[:1].numpy()), mlp(x[:1]).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert compiled.steps[1].figures is not None
    assert [result.stage for result in compiled.results][:3] == ["vm", "tir", "llvm"]
    assert "define" in compiled.ir("llvm")
    assert compiled.ir("fusion", format="html").lstrip().startswith("<")
    assert compiled.profile(runs=3, sizes={"batch": 2}).kernels
    assert zipfile.is_zipfile(compiled.download(tmp_path))
    assert compiled.artifact().manifest["signature"]
    with Client(server_url) as client:
        assert client.provenance(compiled.id, limit=1).origins
        assert "aten.addmm.default" in {*client.operators().supported, *client.operators().decomposed}
        ended = client.compile(base=(compiled.id, 1), passes=["lower_to_tensorir"], until="lowering")
        assert ended.stages[-1] == "lowering"
        assert client.publish("client-mlp", compiled.id).version == 1
        assert next(iter(client.infer("client-mlp", x.numpy()).values())).shape == (2, SIZES[2])
        client.withdraw("client-mlp")
        assert "client-mlp" not in [model.name for model in client.models()]


@pytest.mark.parametrize("form", [torch.jit.script, torch.fx.symbolic_trace])
def test_torchscript_and_fx_in_memory_are_compiled_too(server_url: str, mlp: torch.nn.Module, form: Any) -> None:
    x = torch.ones(2, SIZES[0])
    compiled = relaxd.compile(form(mlp), x, passes="none", dynamic_shapes=({0: "batch"},), url=server_url)
    assert compiled.signature is not None
    assert compiled.signature.inputs[0].shape[0] == "batch"
    torch.testing.assert_close(compiled(x[:1]), mlp(x[:1]).detach(), rtol=1e-4, atol=1e-5)


def test_the_command_line_goes_from_a_file_to_a_prediction(server_url: str, model: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        command = [sys.executable, "-m", "relaxd", *map(str, arguments), "--url", server_url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "fuse_dense_add" in run("compile", model, "--passes", "course", "--verify", "--watch")
    compiled = json.loads(run("compile", model, "--passes", "course", "--verify", "--json"))["id"]
    assert "T.prim_func" in run("ir", compiled[:12], "fuse_tir")
    assert "fused_dense_add" in run("diff", compiled, "import", "fusion")
    np.save(tmp_path / "x.npy", np.ones((2, SIZES[0]), "float32"))
    run("infer", compiled, tmp_path / "x.npy", "-o", tmp_path / "out.npz")
    assert np.load(tmp_path / "out.npz")["output_0"].shape == (2, SIZES[2])
    assert "fused_dense_add" in run("profile", compiled, "--runs", 3)
    assert compiled[:12] in run("ls")
    assert "landlock" in run("doctor")
    assert "aten" in run("inspect", model)


@pytest.mark.parametrize("block", [0, 1])
def test_the_examples_of_the_readme_run_as_they_are_written(server_url: str, tmp_path: Path, block: int) -> None:
    save(torch.nn.Linear(4, 2), tmp_path / "model.pt2", torch.ones(1, 4))
    code = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[block]
    code = code.replace("http://127.0.0.1:8000", server_url)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ("output_0" if block == 0 else "fuse_dense_add") in done.stdout


def test_the_example_of_one_call_runs_as_it_is_written(server_url: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"```py\n(.*?)```", README.read_text(), re.DOTALL)
    code = f"import torch\nmodule = torch.nn.Linear(4, 2)\n{block}\nprint(model(torch.ones(8, 4)).shape)"
    environment = {**os.environ, "RELAXD_URL": server_url}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "torch.Size([8, 2])\n"), done.stderr
    assert list(tmp_path.glob("*.zip"))


def test_the_curl_tour_goes_all_the_way(server_url: str, tmp_path: Path) -> None:
    # A model of its own: the tour deletes only a compilation that the server did not have.
    model = save(torch.nn.Linear(4, 2), tmp_path / "tour.pt2", torch.ones(1, 4))
    done = subprocess.run(["sh", TOUR, server_url, model], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DELETE" in done.stdout
    assert done.stdout.endswith("The tour is complete.\n")
