"""Servers to compare with: ``python serve_peers.py NAME MODEL_FOLDER PORT``, with a Python that has what NAME needs.

The folder has `model.pt2`, `input.npy`, `weights.npz` (the MLP's, for those without torch) and `model.so`. mlserver,
LitServe, BentoML and pytriton run the MLP in numpy, so that nothing but their own work is measured beside it.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any


def fastapi_app(run: Any) -> Any:
    """What a user would write: pydantic reads the numbers, a list is answered."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Tensor(BaseModel):
        name: str
        shape: list[int]
        datatype: str
        data: list[float]

    class Request(BaseModel):
        inputs: list[Tensor]

    app = FastAPI()

    def infer(request: Request) -> dict[str, Any]:
        (tensor,) = request.inputs
        output = run(tensor.data, tensor.shape)
        return {
            "outputs": [
                {"name": "output_0", "shape": list(output.shape), "datatype": "FP32", "data": output.ravel().tolist()}
            ]
        }

    # Annotations are text here, and FastAPI cannot look into this function for the name.
    infer.__annotations__["request"] = Request
    app.post("/")(infer)
    return app


def fastapi_torch(folder: Path, port: int) -> None:
    """FastAPI and torch eager in one process."""
    import torch
    import uvicorn

    torch.set_num_threads(1)
    module = torch.export.load(folder / "model.pt2").module()

    def run(data: list[float], shape: list[int]) -> Any:
        with torch.inference_mode():
            return module(torch.tensor(data, dtype=torch.float32).reshape(shape)).numpy()

    uvicorn.run(fastapi_app(run), port=port, log_level="error")


def fastapi_tvm(folder: Path, port: int) -> None:
    """FastAPI and relaxd's library in one process. A lock, since a virtual machine is for one thread."""
    import threading

    import numpy as np
    import uvicorn

    sys.modules["torch"] = None  # type: ignore[assignment]
    from service.runtime.session import Session

    session, lock = Session(str(folder / "model.so")), threading.Lock()

    def run(data: list[float], shape: list[int]) -> Any:
        with lock:
            return session.run([np.array(data, np.float32).reshape(shape)])[0]

    uvicorn.run(fastapi_app(run), port=port, log_level="error")


def mlp(folder: Path) -> Any:
    """The MLP in numpy."""
    import numpy as np

    weights = dict(np.load(folder / "weights.npz"))

    def run(x: Any) -> Any:
        hidden = np.maximum(x @ weights["w0"].T + weights["b0"], 0)
        return hidden @ weights["w1"].T + weights["b1"]

    return run


def litserve(folder: Path, port: int) -> None:
    """LitServe with its defaults, one worker, which it starts from a file."""
    (folder / "litserve_app.py").write_text(LITSERVE_APP)
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    os.execv(sys.executable, [sys.executable, str(folder / "litserve_app.py"), str(folder), str(port)])


def mlserver(folder: Path, port: int) -> None:
    """mlserver without worker processes (PARALLEL=1 for one): the faster of the two."""
    home = folder / "mlserver"
    home.mkdir(exist_ok=True)
    (home / "runtime.py").write_text(MLSERVER_RUNTIME)
    settings = {
        "http_port": port,
        "grpc_port": port + 1,
        "metrics_port": port + 2,
        "parallel_workers": int(os.environ.get("PARALLEL", "0")),
    }
    (home / "settings.json").write_text(json.dumps(settings))
    (home / "model-settings.json").write_text(json.dumps({"name": "mlp", "implementation": "runtime.Mlp"}))
    os.environ["PYTHONPATH"] = f"{home}:{Path(__file__).parent}"
    os.environ["MODEL_FOLDER"] = str(folder)
    os.execv(str(Path(sys.executable).parent / "mlserver"), ["mlserver", "start", str(home)])


def bentoml(folder: Path, port: int) -> None:
    """BentoML with one worker."""
    home = folder / "bentoml"
    home.mkdir(exist_ok=True)
    (home / "service.py").write_text(BENTOML_SERVICE)
    os.environ.update(PYTHONPATH=str(Path(__file__).parent), MODEL_FOLDER=str(folder), BENTOML_DO_NOT_TRACK="True")
    command = ["bentoml", "serve", "service:Mlp", "--port", str(port), "--working-dir", str(home)]
    os.execv(str(Path(sys.executable).parent / "bentoml"), command)


def pytriton(folder: Path, port: int) -> None:
    """Triton in pytriton, batches of up to 32."""
    import numpy as np
    from pytriton.decorators import batch
    from pytriton.model_config import ModelConfig, Tensor
    from pytriton.triton import Triton, TritonConfig

    run = mlp(folder)
    # Its workers are programs that load the library of this very Python, which need not be the system's.
    os.environ["LD_LIBRARY_PATH"] = str(sysconfig.get_config_var("LIBDIR"))

    @batch  # type: ignore[untyped-decorator, unused-ignore]
    def infer(**inputs: Any) -> dict[str, Any]:
        return {"output_0": run(inputs["input"])}

    config = TritonConfig(http_port=port, grpc_port=port + 1, metrics_port=port + 2, log_verbose=0)
    with Triton(config=config) as triton:
        triton.bind(
            model_name="mlp",
            infer_func=infer,
            inputs=[Tensor(name="input", dtype=np.float32, shape=(784,))],
            outputs=[Tensor(name="output_0", dtype=np.float32, shape=(10,))],
            config=ModelConfig(max_batch_size=32),
        )
        triton.serve()


def bare(folder: Path, _: int) -> None:
    """No server: relaxd's library in this process, called without a pause for as many seconds as each line says."""
    import time

    import numpy as np

    sys.modules["torch"] = None  # type: ignore[assignment]
    from service.runtime.session import Session, aligned_copy, as_tensor

    session = Session(str(folder / "model.so"))
    arguments = [as_tensor(aligned_copy(np.load(folder / "input.npy")))]
    for line in sys.stdin:
        times, cpu = [], time.process_time()
        end = time.perf_counter() + float(line)
        while (begun := time.perf_counter()) < end:
            session.call(arguments)
            times.append(time.perf_counter() - begun)
        found = {
            "requests_per_s": len(times) / sum(times),
            "p50_us": sorted(times)[len(times) // 2] * 1e6,
            "cpu_us": (time.process_time() - cpu) / len(times) * 1e6,
            "errors": 0.0,
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


BENTOML_SERVICE = """
import os
from pathlib import Path
import bentoml
import numpy as np
from serve_peers import mlp

@bentoml.service(workers=1)
class Mlp:
    def __init__(self):
        self.run = mlp(Path(os.environ["MODEL_FOLDER"]))

    @bentoml.api
    def predict(self, inputs: list[dict]) -> dict:
        tensor = inputs[0]
        output = self.run(np.array(tensor["data"], np.float32).reshape(tensor["shape"]))
        return {"outputs": [{"name": "output_0", "data": output.ravel().tolist()}]}
"""

LITSERVE_APP = """
import sys
from pathlib import Path
import litserve as ls
import numpy as np
from serve_peers import mlp

class Api(ls.LitAPI):
    def setup(self, device):
        self.run = mlp(Path(sys.argv[1]))

    def decode_request(self, request):
        tensor = request["inputs"][0]
        return np.array(tensor["data"], np.float32).reshape(tensor["shape"])

    def predict(self, x):
        return self.run(x)

    def encode_response(self, output):
        return {"outputs": [{"name": "output_0", "data": output.ravel().tolist()}]}

if __name__ == "__main__":
    server = ls.LitServer(Api(), accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[2]), log_level="error", generate_client_file=False)
"""

MLSERVER_RUNTIME = """
import os
from pathlib import Path
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from serve_peers import mlp

class Mlp(MLModel):
    async def load(self):
        self.run = mlp(Path(os.environ["MODEL_FOLDER"]))
        return True

    async def predict(self, payload):
        x = NumpyCodec.decode_input(payload.inputs[0])
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("output_0", self.run(x))])
"""


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
