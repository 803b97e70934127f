"""Every pass of the installed TVM is in the Catalogue, or in the table of those that are left out."""

from __future__ import annotations

import re

from tvm import relax

from service.compiler.passes import pass_names
from tests.conftest import ROOT

CLASSES = {"FunctionPass", "DataflowBlockPass", "FusionPattern", "PatternCheckContext"}


def left_out() -> set[str]:
    text = (ROOT / "docs/passes-left-out.md").read_text()
    rows = re.findall(r"^\| ([A-Z][^|]*) \| ", text, re.MULTILINE)
    return {name.strip() for row in rows for name in row.split(",")}


def test_no_pass_of_tvm_is_forgotten() -> None:
    of_tvm = {name for name in dir(relax.transform) if name[0].isupper()} - CLASSES
    offered = {re.sub(r"_", "", name) for name in pass_names()}
    in_catalogue = {name for name in of_tvm if name.lower() in offered}
    assert left_out() <= of_tvm
    assert of_tvm - in_catalogue == left_out()
    assert len(in_catalogue) >= 26
