"""relaxd.surveys and relaxd.publishing through both clients: what is sent, and what the answers become."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from relaxd import AsyncClient, Client, Figures, calls, errors

from .fake_relaxd import ID, SIGNATURE, FakeRelaxd, compilation, parts, step

INSPECTION = {
    "format": "exported_program",
    "signature": SIGNATURE,
    "parameters": {"count": 12, "bytes": 48},
    "operators": [{"name": "aten.addmm.default", "count": 2}, {"name": "aten.svd.default", "count": 1}],
    "unsupported": [
        {
            "operator": "aten.svd.default",
            "count": 1,
            "module_path": "net.head",
            "source_line": "net.py:3",
            "hint": "Use eigh.",
        }
    ],
}
KERNEL = {
    "function": "fused_dense", "calls": 2, "share": 0.75, "min_us": 1.0, "median_us": 2.0, "spread_us": 0.5, "flops": 100,
    "flops_per_s": 5e9, "of_peak": 0.25, "bytes_moved": None, "bytes_per_s": None, "of_bandwidth": None,
    "sources": [{"module": "net", "source": "net.py:3: y = a(x)"}, {"module": "net.b", "source": None}],
}  # fmt: skip
PROFILE = {
    "id": ID, "sizes": {"batch": 8}, "inputs": [], "runs": 5, "kernels": [KERNEL], "virtual_machine_us": 1.0, "sources": [],
    "total": {"min_us": 3.0, "median_us": 4.0, "spread_us": 1.0}, "machine": {"flops_per_s": 2e10, "bytes_per_s": 1e10},
}  # fmt: skip
PROVENANCE = {
    "id": ID,
    "origins": [{"index": 4, "node": "addmm", "operator": "aten.addmm", "module": "net", "source": "net.py:3"}],
    "places": [{"stage": "fusion", "step": 1, "function": "main", "binding": "lv", "origins": [4]}],
    "total_places": 2, "next_offset": 1, "coverage": {"kernels": 1, "with_origin": 1, "with_source": 1},
}  # fmt: skip
PUBLISHED = {
    "name": "digits", "version": 2, "compilation": ID,
    "versions": [{"version": 2, "compilation": ID, "published_at": "2026-01-01"}, {"version": 1, "compilation": "f" * 32, "published_at": "2025-01-01"}],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/inspect": INSPECTION,
    "/operators": {"supported": ["aten.add.Tensor"], "decomposed": ["aten.silu.default"]},
    f"/compile/{ID}/profile": PROFILE,
    f"/compile/{ID}/provenance": PROVENANCE,
    "/models": {"models": [PUBLISHED]},
    "/models/digits": PUBLISHED,
    f"/artifacts/{ID}": {"library_sha256": "ab" * 32, "manifest": {"cpu": "x86-64-v3"}},
}


def answering(*states: dict[str, Any]) -> FakeRelaxd:
    """The fake with an answer for every call of this file."""
    fake = FakeRelaxd(*states)
    fake.instead = {path: httpx.Response(200, json=answer) for path, answer in ANSWERS.items()}
    fake.instead[f"/artifacts/{ID}/archive"] = httpx.Response(200, content=b"PK archive")
    return fake


def connect(fake: FakeRelaxd) -> Client:
    return Client("http://server", transport=httpx.MockTransport(fake))


def test_an_inspection_tells_what_the_model_is_and_what_is_not_supported() -> None:
    fake = answering()
    with connect(fake) as client:
        found = client.inspect(b"PK", inputs=[{"name": "x", "shape": [1], "dtype": "float32"}])
    assert json.loads(parts(fake.requests[0])["request"])["inputs"][0]["name"] == "x"
    assert (found.format, found.parameters, found.parameter_bytes) == ("exported_program", 12, 48)
    assert found.operators == {"aten.addmm.default": 2, "aten.svd.default": 1}
    assert (found.unsupported[0].source_line, found.unsupported[0].hint) == ("net.py:3", "Use eigh.")
    assert found.signature is not None


def test_a_model_that_cannot_be_loaded_has_no_signature_and_no_parameters() -> None:
    fake = answering()
    fake.instead["/inspect"] = httpx.Response(200, json=INSPECTION | {"signature": None, "parameters": None})
    with connect(fake) as client:
        found = client.inspect(b"PK")
    assert (found.signature, found.parameters) == (None, None)


def test_operators_are_supported_or_decomposed() -> None:
    with connect(answering()) as client:
        assert client.operators().decomposed == ("aten.silu.default",)


def test_a_profile_asks_with_runs_and_sizes_and_has_the_kernels() -> None:
    fake = answering(compilation())
    with connect(fake) as client:
        client.profile(ID)
        found = client.get(ID).profile(runs=5, sizes={"batch": 8, "length": 3})
    assert dict(fake.requests[0].url.params) == {}
    assert dict(fake.requests[2].url.params) == {"runs": "5", "sizes": "batch:8,length:3"}
    assert (found.total_us, found.runs, found.sizes) == (4.0, 5, {"batch": 8})
    (kernel,) = found.kernels
    assert (kernel.function, kernel.median_us, kernel.of_peak, kernel.bytes_per_s) == ("fused_dense", 2.0, 0.25, None)
    assert kernel.sources == ("net.py:3: y = a(x)", "net.b")


def test_provenance_sends_only_what_was_asked() -> None:
    fake = answering()
    with connect(fake) as client:
        found = client.provenance(ID, source="net.py:3", limit=1)
    assert dict(fake.requests[0].url.params) == {"source": "net.py:3", "limit": "1"}
    assert (found.origins[0].node, found.places[0].binding, found.places[0].origins) == ("addmm", "lv", (4,))
    assert (found.total_places, found.next_offset) == (2, 1)


def test_publish_takes_an_id_or_the_number_of_a_version() -> None:
    fake = answering()
    with connect(fake) as client:
        model = client.publish("digits", ID)
        client.publish("digits", 1)
        assert client.models() == [model]
        client.withdraw("digits")
    assert [json.loads(request.content) for request in fake.requests[:2]] == [{"compilation": ID}, {"version": 1}]
    assert (model.version, [entry.version for entry in model.versions]) == (2, [2, 1])
    assert fake.sent()[-1] == "DELETE /models/digits"


def test_a_bare_array_for_a_published_name_takes_the_signature_of_its_compilation() -> None:
    fake = answering(compilation())
    with connect(fake) as client:
        assert list(client.infer("digits", np.ones((1, 3), "float32"))) == ["x"]
    assert fake.sent() == ["GET /compile/digits", "GET /models/digits", f"GET /compile/{ID}", "POST /infer"]


def test_a_name_that_is_neither_id_nor_model_is_an_unknown_compilation() -> None:
    with connect(FakeRelaxd(compilation())) as client, pytest.raises(errors.UnknownCompilation):
        client.infer("nothing", np.ones(1))


def test_download_writes_the_archive_to_a_file_or_into_a_folder(tmp_path: Path) -> None:
    with connect(answering()) as client:
        assert client.artifact(ID).manifest == {"cpu": "x86-64-v3"}
        assert client.download(ID, tmp_path / "digits.zip") == tmp_path / "digits.zip"
        assert client.download(ID, tmp_path) == tmp_path / f"{ID}.zip"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "digits.zip": b"PK archive",
        f"{ID}.zip": b"PK archive",
    }


def test_the_asynchronous_client_has_the_same_calls(tmp_path: Path) -> None:
    async def use() -> None:
        async with AsyncClient("http://server", transport=httpx.MockTransport(answering(compilation()))) as client:
            assert (await client.inspect(b"PK")).parameters == 12
            compiled = await client.get(ID)
            assert (await compiled.profile()).total_us == 4.0
            assert (await compiled.publish("digits")).version == 2
            assert (await compiled.download(tmp_path)).read_bytes() == b"PK archive"
            assert (await compiled.artifact()).library_sha256 == "ab" * 32
            assert (await client.provenance(ID)).total_places == 2
            assert (await compiled([[1, 2, 3]])).tolist() == [[1, 2, 3]]

    asyncio.run(use())


def test_a_compilation_goes_on_from_an_earlier_step_without_a_model() -> None:
    fake = FakeRelaxd()
    with connect(fake) as client:
        client.compile(base=("c1", 2), passes=["fuse_tir"], until="fuse_tir", keep=True, tune=3)
    sent = parts(fake.requests[0])
    assert set(sent) == {"request"}
    assert json.loads(sent["request"]) == {
        "passes": ["fuse_tir"], "verify": "artifact", "until": "fuse_tir", "from": {"id": "c1", "step": 2}, "keep": True,
        "tune": {"budget_s": 3},
    }  # fmt: skip


def test_neither_model_nor_base_is_refused_before_anything_is_sent() -> None:
    fake = FakeRelaxd()
    with connect(fake) as client, pytest.raises(ValueError, match="base"):
        client.compile()
    assert fake.requests == []


@pytest.mark.parametrize(("form", "accept"), calls.IR_FORMATS.items())
def test_ir_comes_in_each_format(form: str, accept: str) -> None:
    fake = FakeRelaxd(compilation())
    with connect(fake) as client:
        client.get(ID).ir("fusion", format=form)
    assert fake.requests[-1].headers["accept"] == accept


def test_a_format_that_is_not_there_is_refused_with_those_that_are() -> None:
    with connect(FakeRelaxd()) as client, pytest.raises(ValueError, match="html, dot, model_explorer"):
        client.ir(ID, "fusion", format="pdf")


def test_figures_and_results_are_read() -> None:
    figures = {
        "peak_rss_bytes": 1, "constants": 2, "constant_bytes": 3, "flops": None, "bytes_moved": 4, "op_changes": {"relax.add": -1},
        "functions_added": 0, "functions_removed": 0, "functions_changed": 1,
    }  # fmt: skip
    state = compilation(steps=1, results=[step(3, "vm", None, 0), step(4, "tir", None, 0)])
    state["steps"] = [step(0, "import", None, 9, figures=figures)]
    with connect(FakeRelaxd(state)) as client:
        compiled = client.get(ID)
    assert compiled.steps[0].figures == Figures(1, 2, 3, None, 4, {"relax.add": -1}, 0, 0, 1)
    assert [result.stage for result in compiled.results] == ["vm", "tir"]
    assert compiled.results[0].figures is None
