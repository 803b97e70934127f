"""Seeded mutations of honest files: of their bytes, and, with a whole archive around them, of what they hold."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from typing import Any

from tests.hostile.pt2_files import pack

Files = dict[str, bytes]

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 1 << 31, 1 << 63, -(1 << 63), 1 << 70, 0.5, float("inf"), float("nan"), "", "x", "self",
    "__class__", "a.b", "\x00", "é", "lambda", [], {}, [[]], {"a": 1}, [None], {"as_int": -1}, {"as_none": True},
    "torch.ops.aten.relu.default", "torch.ops.aten.as_strided.default", "Symbol('s1', integer=True)", "s0*s0",
]  # fmt: skip


def unpack(content: bytes) -> Files:
    """The entries by their path below the root folder."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def mutate(content: bytes, rng: random.Random) -> bytes:
    """One mutated file."""
    if rng.random() < 0.25:
        return mutate_bytes(content, rng)
    files = unpack(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice([name for name in files if files[name]] or list(files))
        data = files[name]
        if name.endswith(".json") and rng.random() < 0.9:
            files[name] = mutate_json(data, rng)
        elif name.endswith(".py") and rng.random() < 0.8:
            files[name] = mutate_text(data, rng)
        elif rng.random() < 0.1:
            files[rng.choice(list(files))] = data
        elif rng.random() < 0.1:
            del files[name]
        else:
            files[name] = mutate_bytes(data, rng)
        if not files:
            break
    return pack(files)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut out, repeated or swapped in place."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        at, size = rng.randrange(len(changed)), rng.randrange(1, 9)
        kind = rng.randrange(5)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at] = rng.randrange(256)
        elif kind == 2:
            del changed[at : at + size]
        elif kind == 3:
            changed[at:at] = changed[at : at + size]
        else:
            other = rng.randrange(len(changed))
            changed[at : at + size], changed[other : other + size] = (
                changed[other : other + size],
                changed[at : at + size],
            )
    return bytes(changed)


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """Words of the text exchanged for each other or for others."""
    words = data.decode("utf-8", "replace").split(" ")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(words))
        words[at] = rng.choice(words) if rng.random() < 0.6 else str(rng.choice(VALUES))
    return " ".join(words).encode("utf-8", "replace")


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """Values exchanged for each other or for others, or left out."""
    try:
        value = json.loads(data)
    except ValueError:  # an earlier mutation of the same file
        return mutate_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = list(_places(value))
        if not places:
            break
        holder, key = rng.choice(places)
        if rng.random() < 0.15:
            del holder[key]
        elif rng.random() < 0.4:
            other, other_key = rng.choice(places)
            try:
                holder[key] = copy.deepcopy(other[other_key])
            except (KeyError, IndexError):
                continue
        elif isinstance(holder[key], str) and holder[key].startswith("["):
            holder[key] = mutate_bytes(holder[key].encode(), rng).decode("utf-8", "replace")
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return json.dumps(value).encode("utf-8", "replace")


def _places(value: Any) -> Any:
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if not isinstance(holder, (list, dict)):
            continue
        keys = range(len(holder)) if isinstance(holder, list) else list(holder)
        for key in keys:
            yield holder, key
            if isinstance(holder[key], (list, dict)):
                waiting.append(holder[key])
