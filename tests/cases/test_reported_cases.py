"""The reproduced bug reports of ../shared/cases: eager's answer, or a refusal, and never a wrong number."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.cases.programs import try_program

FOLDER = Path(__file__).parents[3] / "shared" / "cases"
FILES = sorted(FOLDER.glob("*.py"))

REFUSED = {
    "59_bool_mask_select": "bool mask",
    "61_row_index_out_of_range": "outside its range",
    "69_sparse_buffer": "adj",
    "77_random_inside": "random",
    "90_state_second_call": "total",
}

pytestmark = pytest.mark.skipif(not FILES, reason=f"{FOLDER} is not there: the reports are not part of the repository")


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("preset", ["generic", "course"])
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_reported_program_gives_eager_s_answer_or_is_refused_by_name(path: Path, preset: str) -> None:
    case = load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        module, args = case.make()
    outcome = try_program(
        module.eval(),
        args,
        preset,
        run=case.run_args() if hasattr(case, "run_args") else None,
        calls=getattr(case, "CALLS", 1),
        dynamic_shapes=case.dynamic_shapes() if hasattr(case, "dynamic_shapes") else None,
    )
    if path.stem in REFUSED:
        assert outcome.kind == "refused"
        assert REFUSED[path.stem] in outcome.problem.detail
    else:
        assert outcome.kind == "equal", outcome.problem.detail
