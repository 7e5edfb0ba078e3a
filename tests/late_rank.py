"""One rank of four in Python's onnxruntime: an AllReduce twice over, but rank 2 does something else before the second.

usage: late_rank.py LIBRARY sleeps|exits|throws
"""
import os
import sys
import time

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

library, instead = sys.argv[1:]
rank = int(os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
node = helper.make_node("AllReduce", ["X"], ["Y"], name="sum", domain="ai.autopar", reduce_op="sum", seq=0, groups=[0, 1, 2, 3], group_size=4,
                        mesh_axes=["a"])
model = helper.make_model(helper.make_graph([node], "late", [info("X")], [info("Y")]), ir_version=10,
                          opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.autopar", 1)])
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.register_custom_ops_library(library)
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
session.run(None, {"X": np.ones(4, np.float32)})
if rank == 2:
    if instead == "sleeps":
        time.sleep(60)
    if instead == "throws":
        raise RuntimeError("no more data")
    sys.exit(0)
try:
    session.run(None, {"X": np.ones(4, np.float32)})
except Exception as error:
    print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
    time.sleep(0.5)  # the launcher ends the others with the first
    sys.exit(1)
