"""The command `relaxd` against the fake over a real socket: output, JSON, exit codes, and what to do after an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from relaxd import errors
from relaxd.cli import serving
from relaxd.cli.app import app
from relaxd.cli.session import exit_code
from relaxd.cli.side_by_side import aligned, hunks, marked, side_by_side
from relaxd.cli.words import plain, read_base, read_input, read_passes, read_sizes
from rich.console import Console
from typer.testing import CliRunner, Result

from .fake_relaxd import ID, FakeRelaxd, compilation, parts, problem
from .test_surveys import ANSWERS, KERNEL
from .test_tour import served

BISECTION = {
    "compilation": ID, "state": "succeeded", "symptom": "wrong", "doing": None, "notes": ["A note."], "attempts": 7, "problem": None,
    "found": {"kind": "wrong", "step": 1, "pass": "fuse_dense_add", "inner_pass": "FuseOps", "function": None, "message": "Differs."},
    "reduced": {"nodes": 2, "nodes_before": 9, "code": "model = 1"},
}  # fmt: skip
HEALTH = {
    "status": "ok", "version": "0.1.0", "zygotes": {"compile": "ready"}, "limits": {},
    "sandbox": {"compile": {"limits": "on", "no_new_privs": "on", "landlock": "on", "seccomp": "on", "user": "off: root"}},
}  # fmt: skip
EVERY = [
    ["show", ID], ["ir", ID, "fusion"], ["diff", ID, "import", "fusion"], ["profile", ID], ["bisect", ID], ["rm", ID], ["ls"],
    ["publish", "digits", ID], ["models"], ["passes"], ["passes", "course"], ["doctor"],
]  # fmt: skip


@pytest.fixture
def fake() -> FakeRelaxd:
    answering = FakeRelaxd(compilation())
    answers: dict[str, Any] = {**ANSWERS, f"/compile/{ID}/bisect": BISECTION, "/healthz": HEALTH}
    answering.instead = {path: httpx.Response(200, json=answer) for path, answer in answers.items()}
    answering.instead[f"/artifacts/{ID}/archive"] = httpx.Response(200, content=b"PK archive")
    answering.instead[f"/compile/{ID}/bisect/model.pt2"] = httpx.Response(200, content=b"PK reduced")
    return answering


@pytest.fixture
def url(fake: FakeRelaxd) -> Iterator[str]:
    with served(fake) as address:
        yield address


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "mlp.pt2").write_bytes(b"PK model")
    return tmp_path / "mlp.pt2"


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(
        app, [str(entry) for entry in arguments], env={"RELAXD_URL": "", "COLUMNS": "120", **environment}
    )


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_every_command_answers_people_and_with_json_one_document(url: str, command: list[str]) -> None:
    shown = run(*command, "--url", url)
    assert (shown.exit_code, shown.stderr) == (0, ""), shown.output
    assert shown.stdout.strip()
    document = run(*command, "--json", RELAXD_URL=url) if command[0] != "rm" else run("ls", "--json", RELAXD_URL=url)
    assert document.exit_code == 0, document.output
    assert isinstance(json.loads(document.stdout), dict)


def test_compile_shows_the_steps_the_numbers_and_the_id(fake: FakeRelaxd, url: str, model: Path) -> None:
    done = run("compile", model, "--passes", "course", "--verify", "--until", "fusion", "--url", url)
    assert done.exit_code == 0, done.output
    assert "fuse_dense_add" in done.stdout
    assert "the numbers are PyTorch's: largest error 1.0e-07" in done.stdout
    assert "(x: float32[batch, 3]) -> output_0: float32[batch, 3]" in done.stdout
    assert done.stdout.endswith(f"succeeded {ID}\n")
    request = json.loads(parts(fake.requests[-1])["request"])
    assert request == {"passes": "course", "verify": "every_step", "until": "fusion"}


def test_compile_sends_what_its_options_say(fake: FakeRelaxd, url: str, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((2, 3), "float32"))
    options = [
        "-p",
        "fuse_dense_add,fuse_tir",
        "-i",
        "x=batch,3",
        "--threads",
        2,
        "--special-values",
        "report",
        "--keep",
    ]
    done = run("compile", model, *options, "--examples", tmp_path / "x.npz", "--from", "last:1", "--json", "--url", url)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["id"] == ID
    sent = parts(fake.requests[-1])
    assert json.loads(sent["request"]) == {
        "passes": ["fuse_dense_add", "fuse_tir"], "inputs": [{"name": "x", "shape": ["batch", 3], "dtype": "float32"}],
        "target": {"threads": 2}, "verify": "artifact", "special_values": "report", "from": {"id": ID, "step": 1}, "keep": True,
    }  # fmt: skip
    assert set(sent) == {"model", "request", "inputs"}


def test_watch_shows_each_step_once_and_keeps_json_clean(fake: FakeRelaxd, url: str, model: Path) -> None:
    shown = run("compile", model, "--watch", "--url", url)
    assert [line.split()[:2] for line in shown.stdout.splitlines()[:3]] == [
        ["0", "import"],
        ["1", "fusion"],
        ["2", "fuse_tir"],
    ]
    assert shown.stdout.count("fuse_dense_add") == 1
    document = run("compile", model, "--watch", "--json", "--url", url)
    assert json.loads(document.stdout)["id"] == ID
    assert "fuse_dense_add" in document.stderr


def test_a_failure_is_told_with_what_to_do_next_and_exits_with_1(url: str, fake: FakeRelaxd, model: Path) -> None:
    fake.states = [compilation("failed", 2, problem=problem("pass-failed", 422, step=2))]
    done = run("compile", model, "--url", url)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "The pass-failed detail." in done.stderr
    for hint in (
        f"relaxd show {ID}",
        f"relaxd bisect {ID}",
        f"relaxd download {ID} --what repro",
        "/problems/pass-failed",
    ):
        assert hint in done.stderr
    document = run("compile", model, "--json", "--url", url)
    assert (document.exit_code, json.loads(document.stdout)["type"], document.stderr) == (
        1,
        "/problems/pass-failed",
        "",
    )


def test_an_unknown_pass_exits_with_2(url: str, model: Path) -> None:
    done = run("compile", model, "-p", "fuse_tirr,fuse_tir", "--url", url)
    assert (done.exit_code, "unknown-pass" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", [["ls"], ["doctor"], ["show", ID], ["passes"]], ids=" ".join)
def test_without_a_server_it_exits_with_3_and_says_how_to_name_another(command: list[str]) -> None:
    done = run(*command, "--url", "http://127.0.0.1:9")
    assert done.exit_code == 3
    assert "Connection refused" in done.output
    document = run(*command, "--json", "--url", "http://127.0.0.1:9")
    assert (document.exit_code, isinstance(json.loads(document.stdout), dict)) == (3, True)


@pytest.mark.parametrize(
    "command",
    [
        ["compile"],
        ["compile", "nothing.pt2"],
        ["ir", ID],
        ["publish", "digits"],
        ["publish", "digits", ID, "--version", "1"],
        ["download", ID, "--what", "all"],
        ["ls", "--url", "server:8000"],
        ["brew"],
    ],
    ids=" ".join,
)
def test_a_command_that_makes_no_sense_exits_with_2(command: list[str]) -> None:
    done = run(*command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr


@pytest.mark.parametrize("leaf", errors.slugs().values(), ids=lambda leaf: leaf.__name__)
def test_the_exit_code_of_every_problem_says_whose_fault_it_is(leaf: type[errors.ProblemError]) -> None:
    allowed = {errors.CompilationError: {1}, errors.ServerError: {3}, errors.RequestError: {1, 2}}
    (code,) = (codes for branch, codes in allowed.items() if issubclass(leaf, branch))
    assert exit_code(leaf(problem(leaf.known_slug, 400))) in code


def test_an_id_may_be_its_beginning_or_last(fake: FakeRelaxd, url: str) -> None:
    for text in ("last", ID[:6]):
        assert run("rm", text, "--url", url).stdout.strip() == ID
        fake.stored = True
    assert run("rm", "fff", "--url", url).exit_code == 2


def test_the_api_key_comes_from_the_option_or_the_environment(fake: FakeRelaxd, url: str) -> None:
    run("ls", "--url", url, "--api-key", "k1")
    run("ls", "--url", url, RELAXD_API_KEY="k2")
    assert [request.headers["authorization"] for request in fake.requests] == ["Bearer k1", "Bearer k2"]


def test_infer_reads_npz_and_npy_and_writes_npz(url: str, tmp_path: Path) -> None:
    x = np.array([[1.5, np.nan, np.inf]], "float32")
    np.savez(tmp_path / "x.npz", x=x)
    np.save(tmp_path / "x.npy", x)
    for name in ("x.npz", "x.npy"):
        done = run("infer", ID, tmp_path / name, "-o", tmp_path / "out.npz", "--url", url)
        assert done.exit_code == 0, done.output
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["x"], x)
    shown = run("infer", "last", tmp_path / "x.npy", "--json", "--url", url)
    assert json.loads(shown.stdout)["outputs"]["x"] == {
        "dtype": "float32",
        "shape": [1, 3],
        "data": [[1.5, "NaN", "Infinity"]],
    }


def test_a_pickle_is_not_loaded(url: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([None]), allow_pickle=True)
    assert run("infer", ID, tmp_path / "x.npy", "--url", url).exit_code == 2


def test_profile_shows_kernels_with_rates_and_source_lines(fake: FakeRelaxd, url: str) -> None:
    done = run("profile", ID, "--runs", 5, "--sizes", "batch:8", "--url", url)
    assert "4.0 µs a run, median of 5; batch = 8" in done.stdout
    assert KERNEL["function"] in done.stdout
    assert "net.py:3, net.b" in done.stdout
    assert dict(fake.requests[-1].url.params) == {"runs": "5", "sizes": "batch:8"}


def test_bisect_shows_what_was_found_and_writes_the_smaller_model(url: str, tmp_path: Path) -> None:
    done = run("bisect", ID, "--symptom", "wrong", "-o", tmp_path / "small.pt2", "--url", url)
    assert "wrong at step 1, fuse_dense_add, in TVM's FuseOps" in done.stdout
    assert "model = 1" in done.stdout
    assert (tmp_path / "small.pt2").read_bytes() == b"PK reduced"


def test_download_writes_the_archive(url: str, tmp_path: Path) -> None:
    assert run("download", ID, "-o", tmp_path, "--url", url).exit_code == 0
    assert (tmp_path / f"{ID}.zip").read_bytes() == b"PK archive"


def test_inspect_exits_with_1_where_an_operator_is_not_supported(url: str, model: Path) -> None:
    done = run("inspect", model, "--url", url)
    assert (done.exit_code, "no: Use eigh." in done.stdout) == (1, True)


def test_doctor_tells_the_sandbox_and_fails_where_a_required_layer_is_off(fake: FakeRelaxd, url: str) -> None:
    well = run("doctor", "--url", url)
    assert (well.exit_code, "user: off: root" in well.stdout, "ld" in well.stdout) == (0, True, True)
    weak = HEALTH | {"sandbox": {"infer": {"landlock": "off: old kernel"}}}
    fake.instead["/healthz"] = httpx.Response(200, json=weak)
    ill = run("doctor", "--url", url)
    assert (ill.exit_code, "landlock: off: old kernel" in ill.stdout) == (1, True)
    nouns = pytest.importorskip("service.nouns", reason="the service needs Python 3.11", exc_type=AttributeError)
    assert serving.REQUIRED_LAYERS == nouns.REQUIRED_LAYERS


def test_serve_runs_the_service_with_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda _file, arguments: ran.append(arguments))
    assert run("serve", "--port", "0", "--data", "d").exit_code == 0
    assert ran == [[sys.executable, "-m", "service", "serve", "--port", "0", "--data", "d"]]
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert run("serve").exit_code == 2


def test_the_diff_is_side_by_side_or_a_patch(url: str) -> None:
    beside = run("diff", ID, "import", "1", "--url", url)
    assert [line.split() for line in beside.stdout.splitlines()][1] == ["1", "#", "import", "1", "#", "fusion"]
    patch = run("diff", ID, "import", "fusion", "-u", "--url", url)
    assert patch.stdout.startswith("--- import\n+++ fusion\n@@")
    assert run("diff", ID, "import", "0", "--url", url).stdout == "nothing differs\n"
    assert run("diff", ID, "import", "9", "--url", url).exit_code == 2


def test_lines_are_aligned_and_numbered_on_both_sides() -> None:
    assert aligned("a\nb\nc", "a\nc\nd") == [(1, "a", 1, "a"), (2, "b", None, ""), (3, "c", 2, "c"), (None, "", 3, "d")]


def test_hunks_have_context_and_join_where_they_touch() -> None:
    before = "\n".join(map(str, range(30)))
    after = before.replace("\n5\n", "\nfive\n").replace("\n8\n", "\neight\n").replace("\n25\n", "\n")
    rows = aligned(before, after)
    found = [(hunk[0][0], hunk[-1][0]) for hunk in hunks(rows, 2)]
    assert found == [(4, 11), (24, 28)]
    assert list(hunks(rows, None)) == [rows]
    assert list(hunks(aligned("a", "a"), 2)) == []


def test_what_differs_inside_of_a_line_is_marked() -> None:
    old, new = marked((1, "lv = R.add(x, y)", 1, "lv = R.add(x, z)"))
    assert [old.plain[span.start : span.end] for span in old.spans if span.style == "reverse"] == ["y"]
    assert [new.plain[span.start : span.end] for span in new.spans if span.style == "reverse"] == ["z"]
    old, new = marked((1, "same", 1, "same"))
    assert old.spans == new.spans == []


def test_markup_in_ir_is_text() -> None:
    console = Console(width=60)
    with console.capture() as shown:
        console.print(side_by_side("x[red]", "x[bold]", ("a", "b")))
    assert "x[red]" in shown.get()


def test_recipes_inputs_and_sizes_are_read(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('["fuse_tir"]')
    assert read_passes("course", ["course"]) == "course"
    assert read_passes("fuse_tir", ["course"]) == ["fuse_tir"]
    assert read_passes('["a", {"name": "b"}]', []) == ["a", {"name": "b"}]
    assert read_passes(f"@{tmp_path / 'r.json'}", []) == ["fuse_tir"]
    assert read_passes("", []) == []
    assert read_input("x=batch,784:int64").to_json() == {"name": "x", "shape": ["batch", 784], "dtype": "int64"}
    assert read_input("s=").shape == ()
    assert read_sizes("batch:8, n:3") == {"batch": 8, "n": 3}
    assert read_base("c1:2") == ("c1", 2)
    assert plain([float("-inf"), 1, [float("nan")]]) == ["-Infinity", 1, ["NaN"]]


@pytest.mark.parametrize(
    ("read", "text"), [(read_input, "x"), (read_sizes, "batch"), (read_base, "c1"), (read_base, ":1")]
)
def test_what_cannot_be_read_says_how_it_is_written(read: Any, text: str) -> None:
    with pytest.raises(ValueError, match="written"):
        read(text)


def test_it_runs_as_a_module_and_knows_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "relaxd", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("relaxd 0.")


def test_without_typer_it_says_how_to_get_it() -> None:
    code = "import importlib.util as u; real = u.find_spec; u.find_spec = lambda n: None if n == 'typer' else real(n); import relaxd.cli as c; c.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "relaxd-client[cli]" in done.stderr) == (2, True)


def test_the_shell_completes_commands_and_options() -> None:
    def completed(words: str) -> str:
        environment = {
            **os.environ,
            "_RELAXD_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        command = [sys.executable, "-m", "relaxd"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30).stdout

    assert completed("relaxd comp").split() == ["compile"]
    assert {"publish", "passes", "profile"} <= set(completed("relaxd p").split())
    assert "--local" in completed("relaxd compile --lo")
