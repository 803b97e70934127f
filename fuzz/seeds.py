"""``python -m fuzz.seeds``: writes the corpora anew, from honest models and plain requests. They are small."""

from __future__ import annotations

import pickle
import shutil
import zipfile
from pathlib import Path

from fuzz.run import ROOT
from tests.hostile import fx_files, pt2_files, script_files
from tests.hostile.mutations import unpack

CORPUS = ROOT / "fuzz" / "corpus"
HOST = b"Host: 127.0.0.1\r\n"
FORM = b"Content-Type: multipart/form-data; boundary=B\r\n"
PART = b'--B\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\nx\r\n--B--\r\n'
REQUESTS = {
    "get": b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "query": b"GET /ir/import?id=x&format=json HTTP/1.1\r\n" + HOST + b"Accept: */*\r\n\r\n",
    "two": (b"GET /passes HTTP/1.1\r\n" + HOST + b"\r\n") * 2,
    "infer": b"POST /infer HTTP/1.1\r\n" + HOST + b'Content-Length: 28\r\n\r\n{"model": "x", "inputs": {}}',
    "chunks": b"POST /infer HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "oip": b"POST /v2/models/x/infer HTTP/1.1\r\n"
    + HOST
    + b"Inference-Header-Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}ab",
    "compile": b"POST /compile HTTP/1.1\r\n" + HOST + FORM + b"Content-Length: %d\r\n\r\n" % len(PART) + PART,
    "delete": b"DELETE /compile/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "head": b"HEAD / HTTP/1.1\r\n" + HOST + b"If-None-Match: x\r\n\r\n",
    "expect": b"POST /models/x HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
}  # fmt: skip
JSON = [
    b'{"a": 1}',
    b'{"model": "x", "inputs": {"x": [[1.5, "NaN"], [1e308, -0]]}}',
    b'{"\\ud83d\\ude00": null}',
    b"[[[]]]",
]


def main() -> None:
    """Writes all of them."""
    shutil.rmtree(CORPUS, ignore_errors=True)
    for name, data in REQUESTS.items():
        _write("http", name, data)
    for number, data in enumerate(JSON):
        _write("json", str(number), data)
    archives = {
        "pt2": pt2_files.honest_files(),
        "torchscript": script_files.honest_files(),
        "fx": unpack(fx_files.saved()),
    }
    for target, files in archives.items():
        with zipfile.ZipFile(CORPUS / f"{target}.zip", "w") as archive:
            for name, data in files.items():
                archive.writestr(zipfile.ZipInfo(f"archive/{name}"), data)
        for number, (name, data) in enumerate(files.items()):
            if len(data) <= 32 << 10:
                # Numbers, not names: these are no Python files.
                _write(target, f"{number:02}", bytes([number]) + data)
                if name.endswith(".pkl"):
                    _write("pickle", f"{target}-{number:02}", data)
        _write("zip", target, (CORPUS / f"{target}.zip").read_bytes())
    _write("pickle", "plain", pickle.dumps({"a": [1, 2.5, None, (True, "x", b"y")], "b": {1, 2}}, 2))


def _write(folder: str, name: str, data: bytes) -> None:
    path = Path(CORPUS, folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    main()
