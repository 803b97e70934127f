"""schemathesis over the OpenAPI document of a real server: no 5xx, no answer that the document does not describe."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fuzz.run import FINDINGS
from tests.conftest import Server, end_server, start_server

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ROUND = 20


def main(seconds: float, first_seed: int) -> int:
    """Goes through all operations, again and again with other seeds, until the time is over."""
    with tempfile.TemporaryDirectory() as folder:
        server = start_server(Path(folder) / "data", RELAXD_WAIT_S="2", RELAXD_COMPILE_S="10")
        try:
            while server.http.get("/healthz").json()["status"] != "ok":
                time.sleep(0.2)
            return _rounds(server, time.monotonic() + seconds, first_seed)
        finally:
            end_server(server)


def _rounds(server: Server, end: float, number: int) -> int:
    document = server.http.get("/openapi.json").json()
    operations = [result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations()]
    findings, cases = 0, 0
    while time.monotonic() < end:
        for operation in operations:
            if time.monotonic() >= end:
                break
            try:
                cases += _try(operation, server, number, end)
            except (FailureGroup, AssertionError) as error:
                findings += 1
                name = f"api-{operation.method}-{operation.path.strip('/').replace('/', '_')}-{number}.txt"
                (FINDINGS / name).write_text("\n\n".join(map(str, getattr(error, "exceptions", [error]))))
                print(f"{operation.method.upper()} {operation.path}: {error}", flush=True)
        number += 1
        if findings:
            break
    print(f"{cases} cases over {len(operations)} operations, {findings} findings")
    return 1 if findings else 0


def _try(operation: schemathesis.APIOperation, server: Server, number: int, end: float) -> int:
    count = 0

    @seed(number)
    @settings(
        max_examples=ROUND, deadline=None, database=None, phases=[Phase.generate], verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def one(case: Case) -> None:
        nonlocal count
        if time.monotonic() > end:
            return
        case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=30)
        count += 1

    one()
    return count


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
