"""Archives that lie, whatever model they hold: sizes, places, names and counts that are not what they say."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable

Files = dict[str, bytes]


def packed(files: Files, root: str = "archive", how: int = zipfile.ZIP_STORED) -> bytearray:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for name, data in files.items():
            archive.writestr(f"{root}/{name}", data)
    return bytearray(out.getvalue())


def with_entry(files: Files, name: str, data: bytes, how: int = zipfile.ZIP_STORED, mode: int = 0) -> bytes:
    """One more entry, named as given from the root on."""
    out = io.BytesIO(bytes(packed(files)))
    with warnings.catch_warnings(), zipfile.ZipFile(out, "a") as archive:
        warnings.simplefilter("ignore")  # of two entries of one name
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        info.compress_type = how
        archive.writestr(info, data)
    return out.getvalue()


def directory(data: bytes | bytearray) -> list[int]:
    """Where the entries of the central directory stand."""
    return [at for at in range(len(data) - 4) if data[at : at + 4] == b"PK\x01\x02"]


def edited(files: Files, offset: int, form: str, *values: int | bytes, entry: int = -1, root: str = "archive") -> bytes:
    """A field of a directory entry, changed."""
    data = packed(files, root)
    struct.pack_into(form, data, directory(data)[entry] + offset, *values)
    return bytes(data)


def end_edited(files: Files, offset: int, form: str, *values: int) -> bytes:
    """A field of the end record, changed."""
    data = packed(files)
    struct.pack_into(form, data, data.rindex(b"PK\x05\x06") + offset, *values)
    return bytes(data)


def quine(files: Files) -> bytes:
    """Many directory entries for one place: it unpacks to a thousand times what it holds (a "better zip bomb")."""
    data = packed({**files, "data/0": bytes(1 << 20)})
    at = directory(data)
    end = data.rindex(b"PK\x05\x06")
    last = bytes(data[at[-1] : end])
    name_size = struct.unpack_from("<H", last, 28)[0]
    copies = b"".join(
        last[:46] + last[46 : 46 + name_size - 4] + b"%04d" % number + last[46 + name_size :] for number in range(1000)
    )
    tail = bytearray(data[end:])
    struct.pack_into("<HHI", tail, 8, len(at) + 1000, len(at) + 1000, end - at[0] + len(copies))
    return bytes(data[:end]) + copies + bytes(tail)


def nested(files: Files, depth: int = 30) -> bytes:
    inner = bytes(packed(files))
    for _ in range(depth):
        inner = bytes(packed({"models/model.json": inner, "data.pkl": inner}, how=zipfile.ZIP_DEFLATED))
    return inner


def deflated_garbage(files: Files) -> bytes:
    data = bytearray(packed({**files, "data/9": zlib.compress(bytes(1000))}, how=zipfile.ZIP_DEFLATED))
    for at in range(40, min(len(data) - 400, 4000), 7):
        data[at] ^= 0x55
    return bytes(data)


LIES: dict[str, Callable[[Files], bytes]] = {
    "bomb": lambda files: with_entry(files, "archive/data/9", bytes(300 << 20), zipfile.ZIP_DEFLATED),
    "bomb of many places": quine,
    "archives in archives": nested,
    "two entries at one place": lambda files: edited(files, 42, "<I", 0),
    "an entry beyond the end": lambda files: edited(files, 42, "<I", 0x7FFFFFFF),
    "an entry inside of the directory": lambda files: edited(files, 42, "<I", len(packed(files)) - 60),
    "an unpacked size that is a lie": lambda files: edited(files, 24, "<I", 0x7FFFFFFF),
    "a packed size that is a lie": lambda files: edited(files, 20, "<I", 0x7FFFFFFF),
    "a size of zip64 that is not there": lambda files: edited(files, 24, "<I", 0xFFFFFFFF),
    "a packing that there is not": lambda files: edited(files, 10, "<H", 99),
    "an entry said to be encrypted": lambda files: edited(files, 8, "<H", 1),
    "a name that is another in the entry": lambda files: edited(files, 46, "<8s", b"elsewher"),
    "more entries than there are": lambda files: end_edited(files, 8, "<HH", 60000, 60000),
    "fewer entries than there are": lambda files: end_edited(files, 8, "<HH", 1, 1),
    "a directory beyond the end": lambda files: end_edited(files, 16, "<I", 0x7FFFFFFF),
    "a directory without end": lambda files: end_edited(files, 12, "<I", 0x7FFFFFFF),
    "no end record": lambda files: bytes(packed(files)[:-22]),
    "a second end record in the comment": lambda files: bytes(packed(files)) + b"PK\x05\x06" + bytes(18),
    "half of it": lambda files: bytes(packed(files)[: len(packed(files)) // 2]),
    "the second half": lambda files: bytes(packed(files)[len(packed(files)) // 2 :]),
    "a program before it": lambda files: b"\x7fELF" + bytes(4096) + bytes(packed(files)),
    "a path that climbs": lambda files: with_entry(files, "archive/../../../../tmp/relaxd-harm", b"x"),
    "an absolute path": lambda files: with_entry(files, "/tmp/relaxd-harm", b"x"),
    "a path of Windows": lambda files: with_entry(files, "archive\\..\\..\\relaxd-harm", b"x"),
    "a symbolic link": lambda files: with_entry(files, "archive/data/8", b"/etc/passwd", mode=0o120777),
    "a device": lambda files: with_entry(files, "archive/data/8", b"", mode=0o020666),
    "a folder": lambda files: with_entry(files, "archive/data/8/", b""),
    "a name with a zero byte": lambda files: bytes(packed(files)).replace(b"data/", b"dat\0/"),
    "a name with an escape": lambda files: with_entry(files, "archive/data/\x1b[2J", b"x"),
    "a name of 60,000 characters": lambda files: with_entry(files, "archive/" + "a" * 60_000, b"x"),
    "a second root": lambda files: with_entry(files, "other/data/0", b"x"),
    "an entry twice": lambda files: with_entry(files, f"archive/{next(iter(files))}", b"{}"),
    "100,001 entries": lambda files: bytes(packed({**files, **{f"extra/{number}": b"" for number in range(100_001)}})),
    "damaged data": deflated_garbage,
    "zeros": lambda files: bytes(1 << 20),
    "a gzip file": lambda files: b"\x1f\x8b\x08" + bytes(packed(files)),
    "only an end record": lambda files: b"PK\x05\x06" + bytes(18),
}  # fmt: skip
