"""How the system says that a disk, or what somebody may have of it, is full."""

from __future__ import annotations

import errno

# An OSError with one of these is the operator's to mend, and neither the model's fault nor the caller's.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
