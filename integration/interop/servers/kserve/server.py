"""A KServe model server that listens on loopback alone. Its models are the JSON in MODELS: a list of objects with name and takes_s."""

import asyncio
import json
import os

import grpc.aio
import kserve
import uvicorn

LOOPBACK = "127.0.0.1"


class LoopbackConfig(uvicorn.Config):
    def __init__(self, app, host, **options):
        super().__init__(app, host=LOOPBACK, **options)


def loopback_server(*args, make=grpc.aio.server, **options):
    server = make(*args, **options)
    add = server.add_insecure_port
    server.add_insecure_port = lambda address: add(address.replace("[::]", LOOPBACK))
    return server


class Echo(kserve.Model):
    """Answers with what it was sent."""

    def __init__(self, name, takes_s):
        super().__init__(name)
        self.takes_s = takes_s
        self.ready = True

    async def predict(self, payload, headers=None):
        await asyncio.sleep(self.takes_s)
        x = payload.inputs[0]
        y = kserve.InferOutput(name="y", shape=x.shape, datatype=x.datatype)
        y.set_data_from_numpy(x.as_numpy(), binary_data=True)
        return kserve.InferResponse(response_id=payload.id, model_name=self.name, infer_outputs=[y])

    def get_input_types(self):
        return [{"name": "x", "datatype": "FP32", "shape": [-1]}]

    def get_output_types(self):
        return [{"name": "y", "datatype": "FP32", "shape": [-1]}]


if __name__ == "__main__":
    uvicorn.Config = LoopbackConfig
    grpc.aio.server = loopback_server
    models = [Echo(**model) for model in json.loads(os.environ["MODELS"])]
    kserve.ModelServer(workers=1, grace_period=5).start(models)
