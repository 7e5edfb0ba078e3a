"""Durations are read alike by every command that takes one."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
MODELS = pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "models"
PROBLEM = {"problem": {"name": "one", "nodes": {"intervals": [[0, 1]], "costs": [[3, 2]], "usages": [[1, 1]]},
                       "edges": {"nodes": [], "costs": []}, "usage_limit": 1}}


def run(*args):
    return subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True, timeout=300)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        problem = folder / "problem.json"
        problem.write_text(json.dumps(PROBLEM))
        search = ("search", MODELS / "mlp.onnx", "--cluster", MODELS / "clusters" / "pcie-8.json", "--mesh", "2x4", "--inputs", "data_parallel", "--outputs", "full",
                  "-o", folder / "out")
        commands = {search: "--time-limit", ("solve", problem): "--time-limit", ("run", folder / "out"): "--timeout",
                    ("calibrate", "--quick", "--ranks", 2, "-o", folder / "here.json"): "--timeout"}
        for command, option in commands.items():
            for text in ("30s", "20000ms", "2m", "60", "1.5e1"):
                if command[0] == "calibrate" and text != "2m":
                    continue  # a second each
                done = run(*command, option, text)
                assert done.returncode == 0, (command, text, done.returncode, done.stdout, done.stderr)
            for text in ("", "s", "30 parsecs", "0", "-1s", "nan", "inf", "1e999", "1h30", "30s "):
                done = run(*command, option, text)
                assert done.returncode == 2, (command, text, done.returncode, done.stdout, done.stderr)
                assert option in done.stderr and "30s, 500ms or 2m" in done.stderr, (command, text, done.stderr)
        # The limit holds in the unit that was said: a millisecond is not a minute. A rank that wakes late from its wait finds that all
        # have come, so one collective may pass.
        for _ in range(20):
            limited = run("run", folder / "out", "--timeout", "0.001ms", "--repeat", 30)
            if limited.returncode != 0:
                break
        assert limited.returncode == 5 and "1e-06 s" in limited.stderr, (limited.returncode, limited.stdout, limited.stderr)


if __name__ == "__main__":
    sys.exit(main())
