"""The application for any ASGI server: ``uvicorn service.main:app``, set up by environment variables alone.

``RELAXD_DATA`` is the folder for all data. The address is the server's own business, so API keys are asked for, also
where there are none yet, unless ``RELAXD_INSECURE=1``. On uvicorn, ``--http service.fast_lane:FastLane`` adds the fast
lane.
"""

from __future__ import annotations

import os
from pathlib import Path

from service.api.app import create_app
from service.settings import Settings, limits_from_environment, request_log_from_environment

app = create_app(
    Settings(
        host="0.0.0.0",  # noqa: S104  not to listen on: as open as can be
        data=Path(os.environ.get("RELAXD_DATA", "data")),
        limits=limits_from_environment(os.environ),
        allow_weak_sandbox=os.environ.get("RELAXD_ALLOW_WEAK_SANDBOX") == "1",
        insecure=os.environ.get("RELAXD_INSECURE") == "1",
        request_log=request_log_from_environment(os.environ),
    )
)
