"""What an id and a line of the log cost a request, in µs of one core: ``./dev bench request_log``."""

from __future__ import annotations

import asyncio
import time

from service.request_log import RequestLog, RequestNote, request_id

ROUNDS = 5
COUNT = 20_000


def cost_us(wanted: str, given: str | None) -> float:
    """Of one request: its id, its note, and its line with the writing of it, to nowhere."""

    async def run() -> float:
        log = RequestLog(wanted, lambda _: None)
        begun = time.process_time()
        for number in range(COUNT):
            log.note(RequestNote(request_id(given), "POST", "/v2/models/{model}/infer", "digits", "ci"), 200)
            if number % 256 == 0:
                log.flush()
        log.flush()
        return (time.process_time() - begun) / COUNT * 1e6

    return min(asyncio.run(run()) for _ in range(ROUNDS))


def main() -> None:
    """Measures and prints."""
    for wanted in ("off", "failed", "all"):
        own, made = cost_us(wanted, "0a1b2c3d-0a1b-0a1b"), cost_us(wanted, None)
        print(f"RELAXD_REQUEST_LOG={wanted:7} {own:5.2f} µs with an id of the caller, {made:5.2f} µs with a new one")


if __name__ == "__main__":
    main()
