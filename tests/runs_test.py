"""bench/runs.py: where the stages of published runs begin."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "bench"))
import runs

PLAYBOOK = {"1B": (16, 2048, 8192), "3B": (28, 3072, 8192), "8B": (32, 4096, 14336)}  # layers, width, inner width
WORDS = 131072


def cuts(model, stages, nodes=1):
    return runs.nanotron_cuts(*PLAYBOOK[model], WORDS, stages, nodes)


def test_nanotron():
    assert cuts("8B", 2) == (18,) and cuts("8B", 4) == (9, 18, 26) and cuts("3B", 2) == (16,)
    # The head of 1B is as four of its layers: half of the products end with a layer.
    assert cuts("1B", 2) == (10,) and cuts("1B", 4) == (5, 10, 15)
    # The cast of the logits is a block of its own, and so is the loss: each may be all that a stage has.
    assert cuts("3B", 16)[-2:] == ("head", "cast") and cuts("8B", 32)[-2:] == ("cast", "loss")
    assert len(set(cuts("8B", 32))) == 31 == len(set(cuts("8B", 32, 16)))
    # No cut is left for the last stages.
    assert cuts("1B", 16) == cuts("1B", 32) == cuts("8B", 64) == ()


def test_rows():
    row = {"model": "8B", "layers": "32", "hidden": "4096", "heads": "32", "ffn": "14336", "tied_embeddings": "untied", "nodes": "16", "gpus": "128", "dp": "1",
           "tp": "4", "pp": "32", "zero": "0", "mbs": "1", "grad_acc": "256", "gbs": "256", "memory_gb": "19.7", "iteration_s": "2.8239", "status": "ok", "note": ""}
    assert not runs.playbook(row).impossible
    assert runs.playbook({**row, "pp": "64", "tp": "2"}).impossible == "stages without ops"


def test_waiting():
    waits = lambda tensor, samples=8, stages=1, nodes=1, passes=8: runs.nanotron_waiting(2048, 8192, 4096, samples, tensor, stages, nodes, passes)
    whole = 8 * 4096 * 2048 * 2
    assert waits(1) == 0 and waits(4) == 65 * whole and waits(4, stages=2) == 65 * whole and waits(4, stages=2, nodes=4) == 46 * whole
    assert waits(4, passes=1) == 32.5 * whole and waits(4, stages=2, nodes=4, passes=2) == 23 * whole
    # The device waits for the host.
    assert waits(4, samples=1) == 65 * 0.35 * whole / 8


for test in (test_nanotron, test_rows, test_waiting):
    test()
