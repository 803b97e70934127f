"""relaxd.Client, AsyncClient and their Compilations: that both are the same, and what is bound to a Compilation."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import io
import socket

import httpx
import numpy as np
import pytest
from relaxd import AsyncClient, AsyncCompilation, Client, Compilation, ServerUnreachable, Step, calls, errors
from rich.console import Console

from .fake_relaxd import ID, FakeRelaxd, compilation, problem, problem_response


def connect(fake: FakeRelaxd) -> Client:
    return Client("http://server", transport=httpx.MockTransport(fake))


def public(cls: type) -> dict[str, list[str]]:
    """The names and parameters of the public methods."""
    methods = inspect.getmembers(cls, inspect.isfunction)
    return {
        name: [str(entry.replace(annotation=entry.empty)) for entry in inspect.signature(method).parameters.values()]
        for name, method in methods
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("sync", "asynchronous"), [(Client, AsyncClient), (Compilation, AsyncCompilation)])
def test_the_asynchronous_class_has_the_same_methods_and_parameters(sync: type, asynchronous: type) -> None:
    assert public(sync) == public(asynchronous)
    assert "infer" in public(sync)


def test_a_compilation_has_typed_fields() -> None:
    with connect(FakeRelaxd(compilation())) as client:
        compiled = client.get(ID)
    assert (compiled.id, compiled.state, compiled.checks, compiled.ended) == (ID, "succeeded", "artifact", True)
    assert (compiled.model.filename, compiled.model.size_bytes) == ("mlp.pt2", 5)
    assert compiled.signature is not None
    assert compiled.signature.inputs[0].shape == ("batch", 3)
    assert compiled.steps[1].pass_name == "fuse_dense_add"
    assert compiled.steps[1].error == 2.5e-7
    assert compiled.timings[0].phase == "build"
    assert compiled.verification is not None
    assert (compiled.verification.passed, compiled.verification.cases) == (True, ("example", "random"))
    assert compiled.verification.outputs[0].max_abs_error == 1e-7
    assert np.isnan(compiled.verification.outputs[0].max_rel_error or 0)
    assert compiled.recipe.name == "course"


def test_a_compilation_is_frozen() -> None:
    with connect(FakeRelaxd(compilation())) as client:
        compiled = client.get(ID)
    with pytest.raises(dataclasses.FrozenInstanceError):
        compiled.state = "failed"  # type: ignore[misc]


def test_a_compilation_without_signature_steps_and_verification_can_be_read() -> None:
    queued = compilation("queued", 0, signature=None, verification=None, timings=[], started_at=None)
    with connect(FakeRelaxd(queued)) as client:
        compiled = client.get(ID)
    assert (compiled.signature, compiled.verification, compiled.stages, compiled.ended) == (None, None, (), False)


def test_members_that_a_newer_server_adds_are_ignored_and_kept_raw() -> None:
    with connect(FakeRelaxd(compilation(carbon_g=3))) as client:
        assert client.get(ID).raw["carbon_g"] == 3


def test_stages_are_listed_in_the_order_of_the_steps_without_repetition() -> None:
    steps = [*compilation()["steps"], {**compilation()["steps"][1], "index": 3}]
    with connect(FakeRelaxd({**compilation(), "steps": steps})) as client:
        assert client.get(ID).stages == ("import", "fusion", "fuse_tir")


def test_ir_and_diff_of_a_compilation_need_no_id() -> None:
    with connect(FakeRelaxd(compilation())) as client:
        compiled = client.get(ID)
        assert compiled.ir("fusion") == "# fusion\n@T.prim_func\n@R.function"
        assert compiled.snapshot("fusion").stage == "fusion"
        assert compiled.diff("import", 1).splitlines() == [
            "--- import",
            "+++ fusion (step 1)",
            "@@ -1,3 +1,3 @@",
            "-# import",
            "+# fusion",
            " @T.prim_func",
            " @R.function",
        ]
        assert compiled.diff(1, "fusion") == ""


def test_the_diff_with_a_step_that_is_not_there_says_how_many_there_are() -> None:
    with connect(FakeRelaxd(compilation())) as client, pytest.raises(IndexError, match="it has 3"):
        client.get(ID).diff(0, 9)


def test_infer_of_a_compilation_knows_the_signature_and_needs_one_request() -> None:
    fake = FakeRelaxd(compilation())
    with connect(fake) as client:
        compiled = client.get(ID)
        outputs = compiled.infer([[1, 2, 3]])
    assert fake.sent() == [f"GET /compile/{ID}", "POST /infer"]
    assert (outputs["x"].dtype.name, outputs["x"].tolist()) == ("float32", [[1.0, 2.0, 3.0]])


def test_the_table_shows_each_step_with_its_pass_operators_time_and_error() -> None:
    with connect(FakeRelaxd(compilation())) as client:
        table = client.get(ID).table()
    assert table.splitlines() == [
        "step  stage     pass            changed   ms  ops     max error",
        "   0  import    (import)        yes      1.5  9               -",
        "   1  fusion    fuse_dense_add  yes      1.5  9 -> 6   2.50e-07",
        "   2  fuse_tir  fuse_tir        no       1.5  6 -> 6          -",
    ]


def test_a_base_url_without_a_scheme_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="http://"):
        Client("127.0.0.1:8000")


def test_a_base_url_may_have_a_path() -> None:
    fake = FakeRelaxd()
    with Client("http://server/relaxd/", transport=httpx.MockTransport(fake)) as client, pytest.raises(errors.NotFound):
        client.health()
    assert fake.sent() == ["GET /relaxd/healthz"]


def test_a_real_refused_connection_names_the_url() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with Client(url) as client, pytest.raises(ServerUnreachable, match=url):
            client.infer(ID, {"x": np.ones(1)})


def test_the_asynchronous_client_compiles_reports_steps_and_infers() -> None:
    fake = FakeRelaxd(compilation("running", 1), compilation("running", 2), compilation())
    seen: list[Step] = []

    async def use() -> AsyncCompilation:
        async with AsyncClient("http://server", transport=httpx.MockTransport(fake)) as client:
            compiled = await client.compile(b"PK", on_step=seen.append)
            assert (await compiled.infer([[1, 2, 3]]))["x"].dtype == "float32"
            assert (await compiled.diff(0, 1)).startswith("--- import (step 0)")
            assert await compiled.ir("fusion") == await client.ir(ID, "fusion")
            await client.delete(ID)
            return compiled

    compiled = asyncio.run(use())
    assert tuple(seen) == compiled.steps
    assert len(compiled.steps) == 3


def test_the_asynchronous_client_raises_the_same_errors_and_retries_the_same() -> None:
    fake = FakeRelaxd(compilation("failed", problem=problem("build-failed", 422)))
    fake.faults = [problem_response("overloaded", 503, {"retry-after": "0"}), httpx.ReadError("reset")]

    async def use() -> None:
        async with AsyncClient("http://server", transport=httpx.MockTransport(fake)) as client:
            await client.get(ID)
            assert len(fake.requests) == 3
            await client.compile(b"PK")

    with pytest.raises(errors.BuildFailed):
        asyncio.run(use())


def test_cancelling_the_task_stops_the_waiting_and_not_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SHORTEST_POLL_S", 30.0)
    fake = FakeRelaxd(compilation("running", 1))

    async def use() -> None:
        async with AsyncClient("http://server", transport=httpx.MockTransport(fake)) as client:
            await asyncio.wait_for(client.compile(b"PK"), timeout=0.2)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(use())
    assert fake.sent() == ["POST /compile", f"GET /compile/{ID}"]


def test_what_is_found_out_shows_itself_in_terminals_and_notebooks() -> None:
    with connect(FakeRelaxd(compilation())) as client:
        compiled = client.get(ID)
    verification = compiled.verification
    assert verification is not None
    assert str(verification).splitlines()[0] == "the numbers are PyTorch's: largest error 1.0e-07"
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(verification)
    assert "output_0" in console.export_text()
    html = compiled._repr_html_()
    assert "<table>" in html
    assert ID in html
    assert "the numbers are PyTorch&#x27;s" in html
    assert "fuse_dense_add" in html
