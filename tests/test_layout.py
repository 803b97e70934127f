"""The shape of the repository: tests beside names, no grab-bags, one version, small files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from service.version import VERSION
from tests.conftest import ROOT

SOURCES = sorted(path.relative_to(ROOT) for path in (ROOT / "service").rglob("*.py"))
BANNED = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}

# Tested through the file that is named: by themselves they have no behaviour that could be seen.
TESTED_ELSEWHERE = {
    "service/sandbox_probe.py": "tests/worker/test_container.py",
    "service/orphans.py": "tests/worker/test_container.py",
    "service/limits.py": "tests/test_settings.py",
    "service/link_workers.py": "tests/worker/test_linking.py",
    "service/worker/bisecting.py": "tests/test_bisection.py",
    "service/compiler/rerun.py": "tests/api/test_repro.py",
    "service/repro.py": "tests/api/test_repro.py",
    "service/api/bisect_schemas.py": "tests/api/test_bisect.py",
    "service/__main__.py": "tests/e2e/test_faults.py",
    "service/main.py": "tests/test_fast_lane.py",
    "service/serving.py": "tests/e2e/test_faults.py",
    "service/run.py": "tests/e2e/test_faults.py",
    "service/full_disk.py": "tests/e2e/test_store_faults.py",
    "service/version.py": "tests/test_layout.py",
    "service/front.py": "tests/test_fronts.py",
    "service/front_lane.py": "tests/test_fronts.py",
    "service/freed_memory.py": "tests/e2e/test_overload.py",
    "service/api/noted.py": "tests/test_request_log.py",
    "service/api/app.py": "tests/api/test_problem_shape.py",
    "service/api/problems.py": "tests/api/test_problem_shape.py",
    "service/api/about.py": "tests/api/test_problem_shape.py",
    "service/api/download.py": "tests/api/test_repro.py",
    "service/api/head.py": "tests/api/test_trials.py",
    "service/api/state.py": "tests/api/test_problem_shape.py",
    "service/api/schemas.py": "tests/api/test_schemas.py",
    "service/api/ir_schemas.py": "tests/api/test_schemas.py",
    "service/api/openapi.py": "tests/api/test_schemas.py",
    "service/api/tensors.py": "tests/api/test_infer.py",
    "service/worker/__main__.py": "tests/test_pool.py",
    "service/worker/compiling.py": "tests/e2e/test_faults.py",
    "service/worker/inferring.py": "tests/api/test_infer.py",
    "service/replica.py": "tests/test_sessions.py",
    "service/loading.py": "tests/test_sessions.py",
    "service/worker/draining.py": "tests/runtime/test_batching.py",
    "service/compiler/schedules/call_fusor.py": "tests/compiler/passes/test_fuse_views.py",
    "service/compiler/clock.py": "tests/compiler/test_pipeline.py",
    "service/compiler/constants.py": "tests/compiler/corrections/test_arithmetic.py",
    "service/compiler/eager.py": "tests/compiler/importers/test_exported_program.py",
    "service/compiler/extrema.py": "tests/compiler/corrections/test_arithmetic.py",
    "service/compiler/importers/program.py": "tests/compiler/importers/test_exported_program.py",
    "service/compiler/pointwise.py": "tests/compiler/corrections/test_arithmetic.py",
    "service/compiler/promotion.py": "tests/compiler/corrections/test_arithmetic.py",
    "service/runtime/machine_peak.py": "tests/runtime/test_profile.py",
    "service/compiler/kernel_cache.py": "tests/compiler/test_step_numbers.py",
    "service/compiler/node_values.py": "tests/compiler/test_step_numbers.py",
    "service/counterparts.py": "tests/api/test_provenance.py",
    "service/examinations.py": "tests/api/test_profile.py",
    "service/publications.py": "tests/api/test_models.py",
    "service/serving_errors.py": "tests/api/test_models.py",
    "service/statistics.py": "tests/api/test_oip.py",
    "service/api/oip_body.py": "tests/api/test_oip.py",
    "service/api/plain_body.py": "tests/api/test_infer.py",
    "service/api/inference.py": "tests/test_fast_lane.py",
    "service/api/door.py": "tests/test_fast_lane.py",
    "service/keys.py": "tests/api/test_access.py",
    "service/key_command.py": "tests/api/test_access.py",
    "service/audit.py": "tests/api/test_access.py",
    "service/archive.py": "tests/api/test_artifacts.py",
    "service/host_cpu.py": "tests/api/test_artifacts.py",
    "service/runtime/artifact_runner.py": "tests/api/test_artifacts.py",
    "service/compiler/expanding.py": "tests/api/test_ir.py",
    "service/compile_workers.py": "tests/api/test_going_on.py",
    "service/uninterrupted.py": "tests/test_compilations.py",
    "service/compiler/report.py": "tests/compiler/passes/test_fuse_dense_add.py",
    "service/compiler/site.py": "tests/compiler/importers/test_exported_program.py",
    "service/compiler/translation.py": "tests/compiler/corrections/test_arithmetic.py",
    "service/compiler/dataflow.py": "tests/compiler/test_snapshot.py",
}


@pytest.mark.parametrize("source", [path for path in SOURCES if path.name != "__init__.py"], ids=str)
def test_every_module_has_its_test(source):
    mirrored = Path("tests", *source.parts[1:-1], f"test_{source.stem}.py")
    if (ROOT / TESTED_ELSEWHERE.get(str(source), mirrored)).exists():
        return
    if source.parent == Path("service/compiler/passes"):
        return  # tests/compiler/passes/test_examples.py finds and tries all
    module = ".".join(source.with_suffix("").parts)
    in_its_folder = (ROOT / mirrored.parent).glob("test_*.py")
    assert any(module in test.read_text() for test in in_its_folder), f"{source} has no {mirrored}"


def test_the_list_of_exceptions_names_only_what_exists():
    assert {str(path) for path in SOURCES} >= set(TESTED_ELSEWHERE)


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_no_module_is_a_grab_bag_or_too_long(source):
    assert source.stem not in BANNED
    assert len((ROOT / source).read_text().splitlines()) <= 430


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_no_function_is_too_long(source):
    for node in ast.walk(ast.parse((ROOT / source).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            assert node.end_lineno - node.lineno < 60, f"{source}:{node.lineno} {node.name}"


def test_there_is_one_version():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == VERSION


def test_the_application_can_be_imported_without_torch_and_tvm():
    code = "import sys, service.__main__; print([m for m in ('torch', 'tvm', 'tvm_ffi') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post1", "torch==2.13.0"])
def test_what_must_be_exact_is_pinned_exactly_everywhere(name):
    assert name in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert name in (ROOT / "constraints.txt").read_text().splitlines()


def test_every_dependency_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"]) + list(client["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    locked = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    assert {re.split(r"[=<>\[]", name)[0].lower().replace("_", "-") for name in wanted} <= locked


def _needed_by(names: set[str]) -> set[str]:
    """Those distributions and, in turn, what they need on this machine; names as `importlib.metadata` normalizes them."""
    found: set[str] = set()
    while names:
        found |= names
        lines = [line for name in names for line in metadata.requires(name) or () if "extra ==" not in line]
        names = {re.split(r"[^A-Za-z0-9_.-]", line)[0] for line in lines} - found
        names = {name for name in names if any(metadata.distributions(name=name))}
    return {name.lower().replace("_", "-") for name in found}


def test_the_type_check_installs_what_the_files_it_reads_import():
    """`./dev check` makes an environment of its own on a fresh machine: what only the tests install is not in it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    mypy, project = settings["tool"]["mypy"], settings["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["check"], "relaxd-client"]
    installed = _needed_by({re.split(r"[=<>\[]", name)[0] for name in wanted})
    skipped = {name.removesuffix(".*") for part in mypy["overrides"] for name in part["module"]}
    distributions = metadata.packages_distributions()
    missing = set()
    for source in (path for folder in mypy["files"] for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for name in {name.partition(".")[0] for name in names} - skipped - sys.stdlib_module_names:
                givers = {giver.lower().replace("_", "-") for giver in distributions.get(name, ())}
                if givers and not givers & (installed | {"relaxd"}):
                    missing.add(f"{source.relative_to(ROOT)}: {name}")
    assert not missing
