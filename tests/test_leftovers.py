"""What is not needed any more goes, now or later."""

from __future__ import annotations

import shutil
from pathlib import Path

from service.leftovers import remove


def test_files_and_folders_go_and_links_are_not_followed(tmp_path):
    kept = tmp_path / "kept"
    (kept / "inside").mkdir(parents=True)
    folder, file, link = tmp_path / "folder", tmp_path / "file", tmp_path / "link"
    (folder / "inside").mkdir(parents=True)
    file.touch()
    link.symlink_to(kept)
    remove(folder, file, link, tmp_path / "never there")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "inside").is_dir()


def test_what_cannot_be_deleted_goes_with_the_next_call(tmp_path, monkeypatch):
    folder, file, later = tmp_path / "folder", tmp_path / "file", tmp_path / "later"
    folder.mkdir()
    file.touch()
    later.touch()

    def refuse(*_arguments, **_names):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        patched.setattr(Path, "unlink", refuse)
        remove(folder, file)
    assert folder.exists()
    assert file.exists()
    remove(later)
    assert list(tmp_path.iterdir()) == []
