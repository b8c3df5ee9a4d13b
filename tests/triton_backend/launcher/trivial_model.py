"""A Triton model without an engine: it answers `text` as often as `count` says, `pause_s` apart."""

import threading
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        folder = Path(args["model_repository"])
        if (folder / "refuse").exists():
            raise RuntimeError("this model refuses to load")

    def execute(self, requests):
        for request in requests:
            names = ("text", "count", "pause_s")
            tensors = [pb_utils.get_input_tensor_by_name(request, name) for name in names]
            text, count, pause_s = (tensor.as_numpy()[0] for tensor in tensors)
            answer = (request.get_response_sender(), text, int(count), float(pause_s))
            threading.Thread(target=self.answer, args=answer).start()

    def answer(self, sender, text, count, pause_s):
        for _ in range(count):
            tensor = pb_utils.Tensor("text", np.array([text], np.object_))
            sender.send(pb_utils.InferenceResponse([tensor]))
            time.sleep(pause_s)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
