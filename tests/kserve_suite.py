"""Run by a Python that has kserve: ``python kserve_suite.py URL MODEL INPUT OUTPUT``. Its client, unmodified, on a server of ours.

Prints ``passed`` in the end; any check that fails is a traceback.
"""

from __future__ import annotations

import asyncio
import sys

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def request(
    model: str, name: str, *, binary: bool, outputs: list[RequestedOutput] | None = None, **rest
) -> InferRequest:
    given = InferInput(name, list(X.shape), "FP32")
    given.set_data_from_numpy(X, binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=[given], request_outputs=outputs, **rest)


async def main(url: str, model: str, name: str, output: str) -> None:
    async with InferenceRESTClient(RESTConfig(protocol="v2", retries=1)) as client:
        assert await client.is_server_live(url)
        assert await client.is_server_ready(url)
        assert await client.is_model_ready(url, model)
        assert not await client.is_model_ready(url, "nothing")
        values = []
        for binary in (False, True):
            for wanted in (
                None,
                [RequestedOutput(output, {"binary_data": True})],
                [RequestedOutput(output, {"binary_data": False})],
            ):
                answer = await client.infer(
                    url, request(model, name, binary=binary, outputs=wanted, request_id="mine"), model_name=model
                )
                assert answer.id == "mine"
                assert answer.model_name == model
                assert [each.name for each in answer.outputs] == [output]
                assert answer.outputs[0].datatype == "FP32"
                values.append(answer.outputs[0].as_numpy())
        for each in values:
            np.testing.assert_array_equal(each, values[0])
        answer = await client.infer(
            url, request(model, name, binary=True, parameters={"binary_data_output": True}), model_name=model
        )
        np.testing.assert_array_equal(answer.outputs[0].as_numpy(), values[0])
        many = await asyncio.gather(
            *(client.infer(url, request(model, name, binary=i % 2 == 0), model_name=model) for i in range(50))
        )
        assert len({each.id for each in many}) == 50, "ids that the client made come back"
        for wrong, status in (
            (request("nothing", name, binary=True), 404),
            (request(model, "nothing", binary=True), 400),
        ):
            assert await refused(client.infer(url, wrong, model_name=wrong.model_name)) == status
    sys.stdout.write("passed\n")


async def refused(asking) -> int:
    """The status with which a request was refused, in the protocol's form."""
    try:
        await asking
    except httpx.HTTPStatusError as error:
        found = error.response
    if set(found.json()) != {"error"}:
        raise AssertionError(found.text)
    return found.status_code


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
