#!/usr/bin/env python3
"""Runs one rank of a plan in Python's onnxruntime, with the ops of ai.autopar from libautopar_ops.so.

    mpirun -n 4 python scripts/run_with_onnxruntime.py --library LIB PLAN.onnx [--model MODEL.onnx] [--data IO.npz] [--seed S]

One process per rank; the rank is the launcher's. Every rank cuts its slices from the same whole inputs (IO.npz: in.NAME or
NAME; else from the seed), as metadata_props["autopar.io"] says they lie, runs the plan, and compares its slices of the
outputs with those of the unsharded model, and with out.NAME of the data. Prints PASSED or FAILED (rank 0: per output);
exit status 0 or 1. Needs onnxruntime, onnx and numpy.
"""
import argparse
import json
import os
import sys

import numpy as np
import onnx
import onnxruntime

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def rank_of_environment():
    return next((int(os.environ[name]) for name in RANK_VARIABLES if os.environ.get(name)), 0)


def slice_of(whole, layout, rank):
    """What `rank` holds of a whole array: rank is row-major in the device matrix, -1 in the tensor map is no axis."""
    if not layout["tensor_map"]:
        return whole
    matrix = layout["device_matrix"]
    place = np.unravel_index(rank, matrix)
    for dimension, entry in enumerate(layout["tensor_map"]):
        for index in entry if isinstance(entry, list) else [entry]:
            if index >= 0:
                axis = len(matrix) - 1 - index
                whole = np.split(whole, matrix[axis], dimension)[place[axis]]
    return np.ascontiguousarray(whole)


def random_array(value, layout, seed):
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    generator = np.random.default_rng([seed, *value.name.encode()])
    if np.issubdtype(dtype, np.floating):
        return np.asarray(0.1 * generator.standard_normal(layout["shape"]), dtype)
    return np.asarray(generator.integers(0, 2, layout["shape"]), dtype)


def session_options(library=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    # Collectives are issued in the order in which the plan chains them.
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    if library:
        options.register_custom_ops_library(library)
    return options


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    parser.add_argument("--library", default="libautopar_ops.so", help="libautopar_ops.so with its path")
    parser.add_argument("--model", help="the unsharded model")
    parser.add_argument("--data", help=".npz with in.NAME and out.NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rtol", type=float, default=2e-4)
    parser.add_argument("--atol", type=float, default=2e-5)
    options = parser.parse_args()
    if not options.model and not options.data:
        parser.error("nothing to compare with: say --model or --data")

    rank = rank_of_environment()
    proto = onnx.load(options.plan, load_external_data=False)
    layouts = json.loads({p.key: p.value for p in proto.metadata_props}["autopar.io"])
    for value in proto.graph.input:  # a number is whole everywhere
        layouts.setdefault(value.name, {"shape": [], "device_matrix": [1], "tensor_map": []})
    data = dict(np.load(options.data)) if options.data else {}
    inputs = {v.name: data.get("in." + v.name, data.get(v.name)) for v in proto.graph.input}
    for value in proto.graph.input:
        if inputs[value.name] is None:
            inputs[value.name] = random_array(value, layouts[value.name], options.seed)

    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(options.plan, session_options(options.library), providers=providers)
    names = [output.name for output in session.get_outputs()]
    slices = {name: slice_of(whole, layouts[name], rank) for name, whole in inputs.items()}
    results = dict(zip(names, session.run(names, slices)))

    expected = {name[len("out."):]: whole for name, whole in data.items() if name.startswith("out.")}
    if options.model:
        model = onnxruntime.InferenceSession(options.model, session_options(), providers=providers)
        expected.update(zip(names, model.run(names, inputs)))
    passed = True
    for name in names:
        if name not in expected:
            continue
        want, got = slice_of(expected[name], layouts[name], rank), results[name]
        good = got.shape == want.shape and got.dtype == want.dtype and np.allclose(
            got, want, rtol=options.rtol, atol=options.atol, equal_nan=True)
        passed = passed and good
        if rank == 0:
            error = np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0) if got.shape == want.shape else "-"
            print(f"  {name}: {list(got.shape)} of {layouts[name]['shape']}, largest error {error}, {'ok' if good else 'WRONG'}")
    if rank == 0 or not passed:
        print(f"rank {rank}: " * (rank != 0) + ("PASSED" if passed else "FAILED"), flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
