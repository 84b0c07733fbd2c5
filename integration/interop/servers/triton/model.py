import json
import time

import triton_python_backend_utils as triton


class TritonPythonModel:
    """Answers with what it was sent. A batch takes as long as one request."""

    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.takes_s = float(parameters["takes_s"]["string_value"])
        time.sleep(float(parameters["loads_s"]["string_value"]))

    def execute(self, requests):
        time.sleep(self.takes_s)
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = triton.get_input_tensor_by_name(request, "x").as_numpy()
        return triton.InferenceResponse([triton.Tensor("y", x)])
