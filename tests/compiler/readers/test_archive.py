"""Archives are opened under limits, and what lies outside of them is refused before it is unpacked."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.readers.archive import Archive, ArchiveLimits
from service.errors import DamagedModel, UnsafeModel


def zip_of(files: dict[str, bytes], packed: int = zipfile.ZIP_STORED) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packed) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out


def test_entries_are_read_by_their_path_below_the_root() -> None:
    with Archive(zip_of({"m/a": b"1", "m/b/c": b"22"}), ArchiveLimits()) as archive:
        assert archive.names == ["a", "b/c"]
        assert archive.read("b/c", 10) == b"22"
        assert b"".join(archive.chunks("a")) == b"1"
        assert archive.size("b/c") == 2
        with pytest.raises(DamagedModel, match="no entry"):
            archive.read("d", 1)
        with pytest.raises(DamagedModel, match="at most 1"):
            archive.read("b/c", 1)


@pytest.mark.parametrize("root", ["модель v2 (1)", "a&b#c!", "it's"])
def test_the_root_may_be_called_as_the_user_likes(root: str) -> None:
    with Archive(zip_of({f"{root}/a": b"1"}), ArchiveLimits()) as archive:
        assert (archive.root, archive.read("a", 1)) == (root, b"1")


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({"m/a": b"", "m/b": b""}, ArchiveLimits(entries=1)),
        ({"m/a": bytes(100)}, ArchiveLimits(unpacked_bytes=99)),
        ({"m/a": b"", "n/b": b""}, ArchiveLimits()),
        ({"m/a": b"", "b": b""}, ArchiveLimits()),
        ({"m/../a": b""}, ArchiveLimits()),
        ({"../a": b""}, ArchiveLimits()),
        ({"/a": b""}, ArchiveLimits()),
        ({"m\\n/a": b""}, ArchiveLimits()),
        ({"m/./a": b""}, ArchiveLimits()),
        ({"m//a": b""}, ArchiveLimits()),
        ({"m/a\\b": b""}, ArchiveLimits()),
        ({"m/a/": b""}, ArchiveLimits()),
        ({"m/" + "a" * 500: b""}, ArchiveLimits()),
    ],
)
def test_what_is_outside_the_limits_is_unsafe(files: dict[str, bytes], limits: ArchiveLimits) -> None:
    with pytest.raises(UnsafeModel):
        Archive(zip_of(files), limits)


def test_an_entry_that_unpacks_to_too_much_is_unsafe() -> None:
    packed = zip_of({"m/a": bytes(4 << 20)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(UnsafeModel, match="200 times"):
        Archive(packed, ArchiveLimits())
    with Archive(packed, ArchiveLimits(ratio=10_000)) as archive:
        assert len(archive.read("a", 4 << 20)) == 4 << 20


def test_a_wrong_checksum_is_damage() -> None:
    out = zip_of({"m/a": b"hello"})
    data = out.getvalue().replace(b"hello", b"hellp")
    with Archive(io.BytesIO(data), ArchiveLimits()) as archive, pytest.raises(DamagedModel):
        archive.read("a", 10)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_damage_or_an_archive(data: bytes) -> None:
    with pytest.raises((DamagedModel, UnsafeModel)):
        Archive(io.BytesIO(b"PK\x03\x04" + data), ArchiveLimits())
