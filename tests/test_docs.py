"""The docs say what is so: README and its examples run, every setting, error and call is described."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from service import pass_context
from service.api.compile import parse_request
from service.errors import all_problems
from service.json_schema import find_flaw
from service.nouns import Limits, Stage
from service.patterns.request import SCHEMA, check
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_first_two_commands_are_demo_and_test():
    lines = [line.split("#")[0].strip() for line in blocks("sh")[0].splitlines()]
    assert lines == ["./dev demo", "./dev test"]


def test_what_the_readme_shows_works_as_it_stands(server, tmp_path):
    def run(command: list[str]) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    address = "http://127.0.0.1:8000"
    export, predict, fuse = blocks("python")
    run([sys.executable, "-W", "ignore", "-c", export])
    compile_course, look, compile_list = (block.replace(address, server.url) for block in blocks("sh")[1:])
    assert '"state":"succeeded"' in run(["sh", "-c", compile_course])
    shown = run(["sh", "-c", look])
    assert '"Primitive": True' in shown
    assert '"name":"main"' in shown
    assert '"fuse_tir"' in run(["sh", "-c", compile_list])
    printed = run([sys.executable, "-c", predict.replace(address, server.url)])
    assert "lower_to_tensorir" in printed
    assert "+++ " in printed
    assert "output_0" in printed
    assert "'group': 'dense_relu'" in run([sys.executable, "-c", fuse.replace(address, server.url)])


def test_every_command_of_dev_is_described():
    usage = subprocess.run([str(ROOT / "dev"), "help"], capture_output=True, text=True, check=True).stdout
    for command in ("demo", "serve", "test", "check", "docs", "fuzz", "bench"):
        assert re.search(rf"^  {command}\b", usage, re.MULTILINE)
    unknown = subprocess.run([str(ROOT / "dev"), "tset"], capture_output=True, text=True, check=False)
    assert unknown.returncode == 2
    assert "unknown command 'tset'" in unknown.stderr


def test_ci_calls_exactly_the_commands_of_the_readme():
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert [line for line in lines if line.startswith("./dev")] == ["./dev check", "./dev test", "./dev fuzz"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert os.access(ROOT / "dev", os.X_OK)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Limits)])
def test_every_limit_has_its_setting_described(field):
    assert f"`RELAXD_{field.upper()}`" in (ROOT / "docs/deploy.md").read_text()


def test_every_problem_and_stage_is_described():
    errors = (ROOT / "docs/errors.md").read_text()
    assert all(f"### {problem.slug}\n" in errors for problem in all_problems())
    http = (ROOT / "docs/http.md").read_text()
    assert all(f"`{stage.value}`" in http for stage in Stage)


def test_the_requests_of_the_docs_would_be_taken():
    checked = 0
    for document in ("http.md", "lectures.md"):
        for block in re.findall(r"```json\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL):
            for text in block.splitlines() if block.startswith('{"import"') else [block]:
                value = json.loads(text.replace("...", ""))
                if {"passes", "import"} & set(value):
                    fields = parse_request(text.encode())
                    value = next((entry for entry in fields.passes if isinstance(entry, dict)), {})
                    checked += 1
                if value.get("name") == "fuse_pattern":
                    assert find_flaw(value["options"].get("patterns", []), SCHEMA) is None
                    check({"pattern": [], "patterns": [], **value["options"]})
                    checked += 1
    assert checked == 5


def test_every_key_of_the_allowlist_is_described():
    http = (ROOT / "docs/http.md").read_text()
    assert all(f"`{name}`" in http for name in (*pass_context.DISABLED, *pass_context.CONFIG))


def test_every_call_is_described(server):
    http = (ROOT / "docs/http.md").read_text()
    for path, operations in server.http.get("/openapi.json").json()["paths"].items():
        for method in operations:
            assert re.search(rf"`{method.upper()} {re.escape(path)}[`?]", http), f"{method} {path}"


def test_every_link_between_the_docs_leads_somewhere():
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} -> {target}"


def test_the_docker_image_is_built_from_what_is_tested(tmp_path):
    """There is no Docker engine here: the file's install steps are read, and their equivalent is run."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.+)$", dockerfile, re.MULTILINE)
    names = [name for line in copied for name in shlex.split(line)[:-1]]
    assert all((ROOT / name).exists() for name in names)
    assert {"service", "pyproject.toml", "constraints.txt"} <= set(names)
    assert "binutils" in dockerfile
    assert re.search(r"pip install .*-c constraints.txt .*\.$", dockerfile, re.MULTILINE)
    assert re.search(r"^USER 10001$", dockerfile, re.MULTILINE)
    assert "HEALTHCHECK" in dockerfile
    # The wheel that `pip install .` would make has all that the server needs, and runs from elsewhere.
    context, site = tmp_path / "context", tmp_path / "site"
    context.mkdir()
    for name in names:
        # A copy, as the image has: what a build leaves behind must not lie in the checkout.
        subprocess.run(["cp", "-r", str(ROOT / name), str(context / name)], check=True)
    wheel = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(context)]
    subprocess.run(wheel, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "service", "passes"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "fuse_dense_add" in done.stdout
