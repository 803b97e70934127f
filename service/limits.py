"""What one request, one worker, one caller or the whole server may use: every limit there is, and its default."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from service.errors import JsonObject


@dataclass(frozen=True)
class Limits:
    """Bytes, seconds and counts; each is a setting, ``RELAXD_`` and its name in capitals."""

    # one request
    upload_bytes: int = 1 << 30
    request_bytes: int = 1 << 20
    infer_body_bytes: int = 64 << 20
    passes: int = 200
    wait_s: float = 300.0
    tune_s: float = 600.0
    # one model
    unpacked_bytes: int = 1 << 30
    nodes: int = 100_000
    parameters: int = 100_000
    constant_bytes: int = 1 << 30
    # one worker
    compile_s: float = 300.0
    compile_cpu_s: int = 600
    import_s: float = 150.0
    import_cpu_s: float = 300.0
    passes_s: float = 300.0
    passes_cpu_s: float = 600.0
    build_s: float = 300.0
    build_cpu_s: float = 600.0
    verify_s: float = 150.0
    verify_cpu_s: float = 300.0
    compile_memory_bytes: int = 8 << 30
    link_s: int = 120
    examine_s: int = 60
    infer_s: float = 30.0
    infer_memory_bytes: int = 4 << 30
    library_bytes: int = 4 << 30
    ir_bytes: int = 64 << 20
    # all workers
    concurrent_compilations: int = 2
    queued_compilations: int = 64
    loaded_sessions: int = 8
    loaded_bytes: int = 8 << 30
    replicas: int = 1
    queued_inferences: int = 256
    max_queue_delay_ms: float = 0.0
    # one caller
    caller_concurrent_compilations: int = 2
    caller_queued_compilations: int = 32
    compile_requests_per_s: float = 10.0
    infer_requests_per_s: float = 5000.0
    read_requests_per_s: float = 200.0
    burst_s: float = 5.0
    caller_stored_bytes: int = 1 << 37
    # the store
    stored_bytes: int = 1 << 40
    kernel_cache_bytes: int = 1 << 30
    tuning_records: int = 4096
    expire_s: float = 10 * 366 * 86400.0
    # connections
    connections: int = 1024
    head_bytes: int = 32 << 10
    head_s: float = 5.0
    slowest_bytes_per_s: int = 1024
    idle_s: int = 75
    # lists that are being written, all together
    listed_compilations: int = 1000

    def to_json(self) -> JsonObject:
        return dataclasses.asdict(self)
