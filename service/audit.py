"""Who did what to which Compilation or model, one line each in the log ``relaxd.audit``."""

from __future__ import annotations

import logging

from service import keys

log = logging.getLogger("relaxd.audit")


def audit(action: str, target: str, detail: str = "-") -> None:
    """Notes an action of the caller of this request; ``-`` stands for one without a key."""
    caller = keys.current.get()
    log.info("caller=%s action=%s target=%s detail=%s", "-" if caller is None else caller.name, action, target, detail)
