"""Where a worker was: in words, and read from what a hostile one may have written."""

from __future__ import annotations

import json

import pytest

from service.position import crash, phrase, read_inner_pass, too_slow


@pytest.mark.parametrize(
    ("doing", "said"),
    [
        ({"phase": "start"}, "before the import had begun"),
        (
            {"phase": "build", "inner_pass": "tirx.LowerTVMBuiltin"},
            "in the build, inside of TVM's tirx.LowerTVMBuiltin",
        ),
        ({"phase": "pass", "step": 2, "pass": "fuse_ops"}, "in step 2 (pass 'fuse_ops')"),
        (
            {"phase": "pass", "step": 2, "pass": "fuse_ops", "inner_pass": "FuseOps"},
            "in step 2 (pass 'fuse_ops', inside of TVM's FuseOps)",
        ),
        ({"phase": "verify"}, "in phase 'verify'"),
    ],
)
def test_a_position_has_a_phrase(doing, said):
    assert phrase(doing) == said
    assert said in crash("SIGSEGV", phrase(doing)).detail
    assert too_slow(3.0, doing).extensions["phase"] == doing["phase"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (json.dumps("FuseOps").encode().ljust(512), "FuseOps"),
        (b"", None),
        (b"null", None),
        (b"[" * 5000, None),
        (b'"' + b"a" * 5000, None),
        (json.dumps("a\nb").encode(), None),
        (json.dumps("a" * 200).encode(), None),
        (b"\xff\xfe", None),
        (b"{}", None),
    ],
)
def test_only_a_name_is_read(tmp_path, content, name):
    (tmp_path / "position").write_bytes(content)
    assert read_inner_pass(tmp_path) == name


def test_without_a_file_there_is_none(tmp_path):
    assert read_inner_pass(tmp_path) is None
