"""What a pass has to say of one application, besides the module that it gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.errors import JsonObject


@dataclass
class Report:
    """Filled in by a pass while it works; becomes part of the Step.

    `notes` are sentences for the reader. `details` are facts for programs, by topic, as plain JSON values: ``kernels``
    (what each function was scheduled as, or why it was not), ``patterns`` (what a pattern matched, and what nearly).
    """

    notes: list[str] = field(default_factory=list)
    details: JsonObject = field(default_factory=dict)
