"""Whom workers run as."""

from __future__ import annotations

import pytest

from service import worker_user
from service.worker_user import NOBODY, worker_uid


@pytest.mark.parametrize(("euid", "mode", "expected"), [(1000, 0o755, None), (0, 0o755, NOBODY), (0, 0o700, None)])
def test_root_becomes_nobody_where_nobody_can_read_python(tmp_path, monkeypatch, euid, mode, expected):
    python = tmp_path / "python"
    python.mkdir()
    monkeypatch.setattr(worker_user.os, "geteuid", lambda: euid)
    monkeypatch.setattr(worker_user.sysconfig, "get_path", lambda _name: str(python))
    monkeypatch.setattr(worker_user.sys, "base_prefix", str(python))
    monkeypatch.setattr(worker_user, "_readable_by_all", lambda folder: folder.stat().st_mode & 0o001 != 0)
    python.chmod(mode)
    worker_uid.cache_clear()
    assert worker_uid() == expected
    monkeypatch.undo()
    worker_uid.cache_clear()
