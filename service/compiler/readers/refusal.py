"""The two ways in which a reader says no, with sentences that name the place in the file."""

from __future__ import annotations

from service.errors import DamagedModel, ImportFailed, UnsafeModel

MAX_SHOWN = 120


def shown(value: object) -> str:
    """`value` as it may stand in a sentence: quoted, one line, not long."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def unsafe(what: str, where: str = "") -> UnsafeModel:
    """The Problem for something that PyTorch would act on and relaxd does not. `what` is a sentence without a stop."""
    place = f" (at {where})" if where else ""
    return UnsafeModel(f"{what}{place}. relaxd loads no file that asks for this.", where=where or None)


def damaged(what: str, where: str = "") -> DamagedModel:
    """The Problem for a part that is not what its format says. `what` is a sentence without a stop."""
    place = f" (at {where})" if where else ""
    return DamagedModel(f"{what}{place}. Save the model again and send the new file.", where=where or None)


def too_many(count: int, what: str, limit: int, setting: str) -> ImportFailed:
    """The Problem for a model that is larger than a limit."""
    return ImportFailed(
        f"The model has {count} {what}, at most {limit} are taken. Send a smaller model, or let the operator raise "
        f"{setting}.",
        limit=limit,
    )
