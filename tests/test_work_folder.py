"""The folder of a worker."""

from __future__ import annotations

import os

import pytest

from service.work_folder import COMPILE_FILES, work_folder


def test_it_has_what_may_be_read_and_what_may_be_written_and_goes_in_the_end(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"model")
    source.chmod(0o444)
    with work_folder(tmp_path, {"model": source}, COMPILE_FILES) as folder:
        assert sorted(path.name for path in folder.iterdir()) == sorted(["model", *COMPILE_FILES])
        assert (folder / "model").read_bytes() == b"model"
        assert (folder / "model").stat().st_ino == source.stat().st_ino
        assert all((folder / name).stat().st_size == 0 for name in COMPILE_FILES)
        assert all((folder / name).stat().st_mode & 0o777 == 0o600 for name in COMPILE_FILES)
    assert not folder.exists()
    assert source.read_bytes() == b"model"


def test_where_links_cannot_be_made_the_file_is_copied(tmp_path, monkeypatch):
    source = tmp_path / "source"
    source.write_bytes(b"model")

    def no_links(*_arguments):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    with work_folder(tmp_path, {"model": source}, ()) as folder:
        assert (folder / "model").read_bytes() == b"model"
        assert (folder / "model").stat().st_ino != source.stat().st_ino


def test_a_failure_inside_removes_it_too(tmp_path):
    with pytest.raises(ZeroDivisionError), work_folder(tmp_path, {}, ("slot",)) as folder:
        raise ZeroDivisionError
    assert not folder.exists()
