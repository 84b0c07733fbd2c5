import asyncio

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Echo(MLModel):
    """Answers with what it was sent."""

    async def load(self):
        extra = self.settings.parameters.extra
        await asyncio.sleep(extra["loads_s"])
        if extra["broken"]:
            raise RuntimeError("this model cannot be loaded")
        return True

    async def predict(self, request):
        await asyncio.sleep(self.settings.parameters.extra["takes_s"])
        x = NumpyCodec.decode_input(request.inputs[0])
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", x)])
