"""Where a worker was: in words, and read from what a hostile one may have written."""

from __future__ import annotations

import json

import pytest

from service.position import crash, phrase, read_position, too_slow


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
    ("content", "position"),
    [
        (
            json.dumps({"inner_pass": "FuseOps", "function": "main"}).encode().ljust(512),
            {"inner_pass": "FuseOps", "function": "main"},
        ),
        (b'{"inner_pass": null}', {}),
        (b'{"inner_pass": "F", "function": ["main"], "signal": "x"}', {"inner_pass": "F"}),
        (b"", {}),
        (b"null", {}),
        (b"[" * 5000, {}),
        (b'"' + b"a" * 5000, {}),
        (json.dumps({"inner_pass": "a\nb"}).encode(), {}),
        (json.dumps({"inner_pass": "a" * 200}).encode(), {}),
        (b"\xff\xfe", {}),
        (b"{}", {}),
    ],
)
def test_only_names_are_read(tmp_path, content, position):
    (tmp_path / "position").write_bytes(content)
    assert read_position(tmp_path) == position


def test_without_a_file_there_is_none(tmp_path):
    assert read_position(tmp_path) == {}
