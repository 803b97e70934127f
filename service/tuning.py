"""What is known of the speed of kernels, and how far a search for more has got. Standard library only.

A record is made by a worker that may be hostile: it names one of the choices that the compiler offers for a kernel
anyway, so that a wrong one costs speed and nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import JsonObject

# The pass whose kernels have something to choose.
TUNED = "schedule"

_KEY = re.compile(r"[a-z][a-z_]{0,31}-[0-9a-f]{16}")
_NAME = re.compile(r"[a-z][a-z_]{0,31}")
_MOST_PARAMETERS = 8
_LARGEST = 4096


@dataclass(frozen=True)
class TuningRecord:
    """The best known choice for a kernel.

    `key` is the kernel's class and a digest of what is built for it by the rule, `choice` its parameters by name, and
    `gain` the time with the rule's choice divided by the time with this one.
    """

    key: str
    choice: Mapping[str, int]
    gain: float

    def to_json(self) -> JsonObject:
        return {"key": self.key, "choice": dict(self.choice), "gain": self.gain}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TuningRecord:
        """Reads what `to_json` wrote. Raises KeyError, TypeError, ValueError on anything else."""
        key, choice, gain = value["key"], value["choice"], value["gain"]
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ValueError("the key of a tuning record is not one")
        if not isinstance(choice, dict) or len(choice) > _MOST_PARAMETERS:
            raise ValueError("the choice of a tuning record is not one")
        for name, number in choice.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name) or type(number) is not int:
                raise ValueError("a parameter of a tuning record is not a number with a name")
            if not 0 <= number <= _LARGEST:
                raise ValueError("a parameter of a tuning record is out of range")
        if type(gain) not in (int, float) or not math.isfinite(gain) or not 0 < gain < 1e6:
            raise ValueError("the gain of a tuning record is not a ratio")
        return cls(key, dict(choice), float(gain))


@dataclass(frozen=True)
class Tuning:
    """What a compile worker is told: the records that are known, and for how many seconds to look for better ones.

    Without a budget it uses the records and measures nothing.
    """

    budget_s: float | None = None
    records: tuple[TuningRecord, ...] = ()

    def by_key(self) -> dict[str, TuningRecord]:
        """The records by the keys of their kernels."""
        return {record.key: record for record in self.records}

    def to_json(self) -> JsonObject:
        return {"budget_s": self.budget_s, "records": [record.to_json() for record in self.records]}

    @classmethod
    def from_json(cls, value: JsonObject) -> Tuning:
        return cls(value["budget_s"], tuple(TuningRecord.from_json(record) for record in value["records"]))


@dataclass(frozen=True)
class TuningProgress:
    """How far a search has got: kernels that have something to choose, those that are done, candidates measured.

    `seconds_left` is what is left of the budget, `best_gain` the largest gain of one kernel, 1 where there is none yet.
    """

    budget_s: float
    seconds_left: float
    kernels: int = 0
    kernels_done: int = 0
    candidates: int = 0
    best_gain: float = 1.0

    def to_json(self) -> JsonObject:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TuningProgress:
        """Reads what `to_json` wrote. Raises KeyError, TypeError, ValueError on anything else."""
        fields = {field.name: value[field.name] for field in dataclasses.fields(cls)}
        for name, number in fields.items():
            whole = name in ("kernels", "kernels_done", "candidates")
            if type(number) not in ((int,) if whole else (int, float)) or not 0 <= number < 1e9:
                raise ValueError(f"{name} of a tuning's progress is out of range")
        return cls(**fields)


def records_used(kernels: Iterable[Any]) -> tuple[TuningRecord, ...]:
    """The records in the details of a schedule step, which a worker has written: what is none is left out."""
    found = {}
    for entry in kernels:
        try:
            if entry["tuned"] is True:
                record = TuningRecord.from_json(entry)
                found[record.key] = record
        except (KeyError, TypeError, ValueError):
            continue
    return tuple(found.values())
