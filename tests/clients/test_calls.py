"""relaxd.calls through the synchronous client: what each call sends, and the whole course of a compilation."""

from __future__ import annotations

import io
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
from relaxd import Client, Step, StillRunning, TensorSpec, UnexpectedAnswer, calls, errors

from .fake_relaxd import ID, FakeRelaxd, compilation, parts, problem, problem_response


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SHORTEST_POLL_S", 0.0)


def connect(fake: FakeRelaxd) -> Client:
    return Client("http://server", transport=httpx.MockTransport(fake))


def failed(steps: int = 2) -> dict[str, object]:
    return compilation("failed", steps, problem=problem("pass-failed", 422, step=2))


def test_compile_sends_the_file_s_bytes_and_name_and_only_the_fields_that_were_given(tmp_path: Path) -> None:
    (tmp_path / "mlp.pt2").write_bytes(b"PK\r\n--model")
    fake = FakeRelaxd()
    with connect(fake) as client:
        client.compile(tmp_path / "mlp.pt2")
    request = fake.requests[0]
    assert request.headers["prefer"] == "respond-async"
    assert b'filename="mlp.pt2"' in request.content
    assert parts(request) == {"model": b"PK\r\n--model", "request": b'{"verify": "artifact"}'}


def test_compile_sends_passes_target_inputs_and_example_inputs() -> None:
    fake = FakeRelaxd()
    with connect(fake) as client:
        client.compile(
            b"PK",
            passes=["fuse_dense_add", {"name": "fuse_pattern", "options": {"pattern": "dense"}}],
            verify="every_step",
            inputs=[TensorSpec("x", ("batch", 3), "float32"), {"name": "y", "shape": [1], "dtype": "int64"}],
            example_inputs={"x": np.ones((2, 3), "float32")},
            target={"cpu": "native", "threads": 2},
            importing={"translator": "course", "ops": "tensorir"},
            pass_context={"opt_level": 1},
        )
    sent = parts(fake.requests[0])
    assert json.loads(sent["request"]) == {
        "verify": "every_step",
        "passes": ["fuse_dense_add", {"name": "fuse_pattern", "options": {"pattern": "dense"}}],
        "inputs": [
            {"name": "x", "shape": ["batch", 3], "dtype": "float32"},
            {"name": "y", "shape": [1], "dtype": "int64"},
        ],
        "target": {"cpu": "native", "threads": 2},
        "import": {"translator": "course", "ops": "tensorir"},
        "pass_context": {"opt_level": 1},
    }
    assert np.load(io.BytesIO(sent["inputs"]))["x"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_preset_s_name_is_sent_as_a_string() -> None:
    fake = FakeRelaxd()
    with connect(fake) as client:
        client.compile(b"PK", passes="course")
    assert json.loads(parts(fake.requests[0])["request"])["passes"] == "course"


def test_each_step_is_reported_once_in_order_however_they_arrive() -> None:
    states = [
        compilation("queued", 0),
        compilation("running", 1),
        compilation("running", 1),
        compilation("running", 3),
        compilation(),
    ]
    fake, seen = FakeRelaxd(*states), list[Step]()
    with connect(fake) as client:
        done = client.compile(b"PK", on_step=seen.append)
    assert [step.index for step in seen] == [0, 1, 2]
    assert tuple(seen) == done.steps
    assert fake.sent() == ["POST /compile"] + [f"GET /compile/{ID}"] * 4


def test_the_steps_of_an_already_compiled_model_are_reported_too() -> None:
    seen: list[int] = []
    with connect(FakeRelaxd()) as client:
        client.compile(b"PK", on_step=lambda step: seen.append(step.index))
    assert seen == [0, 1, 2]


@pytest.mark.parametrize(("on_step", "wait"), [(print, "wait=1"), (None, "wait=20")])
def test_polls_are_long_and_shorter_when_the_steps_are_watched(on_step: object, wait: str) -> None:
    fake = FakeRelaxd(compilation("running", 0), compilation())
    with connect(fake) as client:
        client.compile(b"PK", on_step=on_step)  # type: ignore[arg-type]
    assert fake.requests[1].headers["prefer"] == wait


def test_the_read_timeout_of_a_poll_includes_what_the_server_was_asked_to_wait() -> None:
    fake = FakeRelaxd(compilation("running", 0), compilation())
    with Client("http://server", timeout=5, transport=httpx.MockTransport(fake)) as client:
        client.compile(b"PK")
    assert [request.extensions["timeout"]["read"] for request in fake.requests] == [5, 25]


def test_a_server_that_does_not_wait_is_not_hammered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SHORTEST_POLL_S", 0.2)
    slept: list[float] = []
    monkeypatch.setattr("relaxd.client.time.sleep", slept.append)
    fake = FakeRelaxd(compilation("queued", 0), compilation("queued", 0), compilation())
    with connect(fake) as client:
        client.compile(b"PK")
    assert slept == [pytest.approx(0.2, abs=0.1)]


def test_a_failed_compilation_raises_its_typed_problem_with_its_id_after_its_steps() -> None:
    seen: list[int] = []
    fake = FakeRelaxd(compilation("running", 1), failed(steps=2))
    with connect(fake) as client, pytest.raises(errors.PassFailed) as caught:
        client.compile(b"PK", on_step=lambda step: seen.append(step.index))
    assert caught.value.compilation == ID
    assert caught.value.extensions["step"] == 2
    assert seen == [0, 1]


def test_a_failure_in_the_answer_to_the_upload_reports_its_steps_as_well() -> None:
    seen: list[int] = []
    with connect(FakeRelaxd(failed())) as client, pytest.raises(errors.PassFailed) as caught:
        client.compile(b"PK", on_step=lambda step: seen.append(step.index))
    assert (caught.value.compilation, seen) == (ID, [0, 1])


def test_the_failure_is_raised_even_when_its_steps_cannot_be_fetched() -> None:
    fake = FakeRelaxd()
    fake.faults = [problem_response("pass-failed", 422, compilation=ID), problem_response("internal-error", 500)]
    with connect(fake) as client, pytest.raises(errors.PassFailed):
        client.compile(b"PK", on_step=print)


def test_a_cancelled_compilation_raises_cancelled() -> None:
    fake = FakeRelaxd(compilation("running"), compilation("cancelled"))
    with connect(fake) as client, pytest.raises(errors.Cancelled) as caught:
        client.compile(b"PK")
    assert caught.value.compilation == ID


def test_a_compilation_that_does_not_end_in_time_goes_on_and_the_error_has_its_id() -> None:
    fake = FakeRelaxd(compilation("running", 1))
    with connect(fake) as client, pytest.raises(StillRunning, match=ID) as caught:
        client.compile(b"PK", wait_s=0)
    assert caught.value.compilation == ID
    assert "DELETE" not in str(fake.sent())


def test_a_callback_that_raises_ends_the_call_with_its_error_and_is_not_called_again() -> None:
    seen: list[int] = []

    def stop(step: Step) -> None:
        seen.append(step.index)
        raise KeyboardInterrupt

    with connect(FakeRelaxd()) as client, pytest.raises(KeyboardInterrupt):
        client.compile(b"PK", on_step=stop)
    assert seen == [0]


def test_the_upload_is_sent_in_full_again_after_an_overload(tmp_path: Path) -> None:
    (tmp_path / "mlp.pt2").write_bytes(b"model bytes")
    fake = FakeRelaxd()
    fake.faults = [problem_response("overloaded", 503, {"retry-after": "0"})]
    with connect(fake) as client:
        client.compile(tmp_path / "mlp.pt2")
    assert [parts(request)["model"] for request in fake.requests] == [b"model bytes", b"model bytes"]


def test_a_path_that_does_not_exist_is_the_usual_error_and_nothing_is_sent(tmp_path: Path) -> None:
    fake = FakeRelaxd()
    with connect(fake) as client, pytest.raises(FileNotFoundError):
        client.compile(tmp_path / "missing.pt2")
    assert fake.requests == []


def test_ir_asks_for_text_and_snapshot_for_json_with_the_same_query() -> None:
    fake = FakeRelaxd()
    with connect(fake) as client:
        text = client.ir(ID, "fusion", step=1, function="main")
        snapshot = client.snapshot(ID, "fusion", step=1, function="main")
    assert text == snapshot.text == "# fusion\n@T.prim_func\n@R.function"
    assert [request.headers["accept"] for request in fake.requests] == ["text/plain", "application/json"]
    assert {str(request.url) for request in fake.requests} == {f"http://server/ir/fusion?id={ID}&step=1&function=main"}
    assert (snapshot.step.index, snapshot.functions[0].calls) == (1, ("f",))


def test_names_are_one_segment_of_the_path_whatever_they_contain() -> None:
    fake = FakeRelaxd()
    with connect(fake) as client:
        with pytest.raises(errors.StageNotReached):
            client.ir(ID, "../passes?x")
        with pytest.raises(errors.UnknownCompilation):
            client.get("a/b")
    assert [request.url.raw_path.split(b"?")[0] for request in fake.requests] == [
        b"/ir/..%2Fpasses%3Fx",
        b"/compile/a%2Fb",
    ]


def test_compilations_are_listed_without_their_steps_up_to_a_limit() -> None:
    fake = FakeRelaxd()
    with connect(fake) as client:
        assert [(entry.id, entry.steps) for entry in client.compilations(limit=3)] == [(ID, ())]
        client.compilations()
    assert [request.url.query for request in fake.requests] == [b"limit=3", b""]


def test_get_returns_a_failed_compilation_with_its_problem_not_raised() -> None:
    with connect(FakeRelaxd(failed())) as client:
        compiled = client.get(ID, wait_s=7)
    assert compiled.ended
    assert isinstance(compiled.problem, errors.PassFailed)
    assert compiled.problem.compilation == ID


def test_infer_with_arrays_by_name_is_one_request_in_the_protocol_s_form() -> None:
    fake = FakeRelaxd()
    with connect(fake) as client:
        outputs = client.infer(ID, {"x": np.array([[1, 2]], "int64")})
    assert fake.sent() == ["POST /infer"]
    assert json.loads(fake.requests[0].content) == {
        "model": ID,
        "inputs": [{"name": "x", "shape": [1, 2], "datatype": "INT64", "data": [1, 2]}],
    }
    assert outputs["x"].dtype == "int64"


@pytest.mark.parametrize("inputs", [[[1, 2, 3]], np.ones((1, 3), "float32"), {"x": [[1, 2, 3]]}])
def test_infer_asks_for_the_signature_when_the_name_or_the_dtype_is_missing(inputs: object) -> None:
    fake = FakeRelaxd(compilation())
    with connect(fake) as client:
        outputs = client.infer(ID, inputs)  # type: ignore[arg-type]
    assert fake.sent() == [f"GET /compile/{ID}", "POST /infer"]
    assert outputs["x"].dtype == "float32"


def test_an_inference_answer_of_an_unknown_datatype_is_unexpected_and_not_a_wrong_array() -> None:
    fake = FakeRelaxd()
    fake.on_infer = lambda body: {"outputs": [{"name": "y", "shape": [1], "datatype": "FP4", "data": [1]}]}
    with connect(fake) as client, pytest.raises(UnexpectedAnswer, match="FP4"):
        client.infer(ID, {"x": np.ones(1)})


def test_the_catalogue_and_health_are_read() -> None:
    with connect(FakeRelaxd()) as client:
        assert [(info.name, info.options) for info in client.passes()] == [("fuse_tir", {"type": "object"})]
        assert [(info.name, info.passes[0].name) for info in client.recipes()] == [("course", "fuse_tir")]
        assert client.health() == {"status": "ok"}


def test_delete_is_a_delete_and_gives_nothing() -> None:
    fake = FakeRelaxd(compilation())
    with connect(fake) as client:
        client.delete(ID)
        with pytest.raises(errors.UnknownCompilation):
            client.get(ID)
    assert fake.sent()[0] == f"DELETE /compile/{ID}"


def test_verify_checks_every_step_of_what_was_compiled_without_the_model() -> None:
    fake = FakeRelaxd(compilation())
    with connect(fake) as client:
        verdict = client.get(ID).verify()
    assert verdict.passed
    request = next(each for each in fake.requests if each.method == "POST")
    sent = parts(request)
    assert "model" not in sent
    document = json.loads(sent["request"])
    assert document["verify"] == "every_step"
    assert (document["from"], document["passes"]) == ({"id": ID, "step": 1}, [])


def test_verify_asks_nothing_where_every_step_was_checked() -> None:
    fake = FakeRelaxd({**compilation(), "verify": "every_step"})
    with connect(fake) as client:
        assert client.get(ID).verify().passed
    assert [request.method for request in fake.requests] == ["GET"]
