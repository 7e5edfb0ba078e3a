"""Plans that are used again: chunks of a pipeline that take a plan of another one, and strategies that say for what memory they were planned; bounds of several forms; with levels of recomputation that are said wrongly."""
import json
import pathlib
import tempfile

from tools.small_steps import called, same_files, small_model, with_cluster


def with_one_in_flight(folder, model):
    """A chunk of one micro-batch at a time repeats ops in another place than its like with several, which another schedule had before."""
    called("search", model, "--cluster", folder / "cluster.json", "--train", "--optimizer", "adam", "--loss", "sum", "--batch", 24, "--micro-batches", 6,
           "--stages", 4, "--schedule", "auto", "--recompute", "cheap", "-q", "-o", folder / "one")
    called("verify", folder / "one")


def limit_is_kept(folder, model):
    """A strategy is applied and priced for the memory that it was planned for, which says what is fetched ahead."""
    train = ["--train", "--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 16, "--micro-batches", 4, "--profile", "h100-megatron", "--zero", 3]
    for name, stages in (("one stage", []), ("two stages", ["--stages", 2])):
        free = folder / f"{name} free"
        called("search", model, "--cluster", folder / "cluster.json", *train, *stages, "-q", "-o", free)
        assert "memory_limit_bytes" not in json.loads((free / "strategy.json").read_text())
        limit = int(0.8 * json.loads((free / "report.json").read_text())["memory"]["peak_bytes"])
        out, again = folder / name, folder / f"{name} again"
        called("search", model, "--cluster", folder / "cluster.json", *train, *stages, "--memory", limit, "-q", "-o", out)
        assert json.loads((out / "strategy.json").read_text())["memory_limit_bytes"] == limit
        called("apply", model, "--cluster", folder / "cluster.json", "--strategy", out / "strategy.json", "-q", "-o", again)
        same_files(out, again, name)
        seconds = json.loads((out / "report.json").read_text())["cost"]["seconds"]
        priced = json.loads(called("price", model, "--cluster", folder / "cluster.json", "--strategy", out / "strategy.json", "--json").stdout)
        assert abs(priced["seconds"] / seconds - 1) < 1e-12, (name, priced["seconds"], seconds)
        # Another one that is said goes before it.
        called("apply", model, "--cluster", folder / "cluster.json", "--strategy", out / "strategy.json", "--memory", 2 * limit, "-q", "-o", again)
        assert json.loads((again / "strategy.json").read_text())["memory_limit_bytes"] == 2 * limit


def levels_said_wrongly(folder, model):
    train = ["--train", "--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 16, "--micro-batches", 4]
    cases = {"the first level begins with op 'h.1.ln_1'; expected the first op, 'wte'": [["h.1.ln_1", "full"], ["h.1.mlp.c_fc", "none"]],
             "is none of the forward pass": [["wte", "full"], ["h.1.mlp.c_fc.grad", "none"]]}
    names = json.loads((folder / "one stage" / "strategy.json").read_text())["ops"]
    backward = next(name for name in names if name.startswith("h.1.mlp.c_fc.grad"))
    for message, levels in cases.items():
        levels = [[name if name in names else backward, level] for name, level in levels]
        pins = {"format": "autopar-strategy", "version": 1, "recompute": "mixed", "recompute_from": [{"from": name, "recompute": level} for name, level in levels]}
        (folder / "pins.json").write_text(json.dumps(pins))
        done = called("search", model, "--cluster", folder / "cluster.json", *train, "--pin", folder / "pins.json", "-q", "-o", folder / "wrong", code=4)
        assert "pins.json: recompute_from: " in done.stderr and message in done.stderr, done.stderr
        assert not (folder / "wrong").exists()


def bound_of_forms(folder, model):
    """Where numbers of passes and levels of repetition are tried, the bound is one of those that were left out, too, and of those of which nothing fits there is none."""
    train = ["--train", "--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 16]
    out = folder / "form"
    planned = lambda *options: json.loads((out / "report.json").read_text()) if called("search", model, "--cluster", folder / "cluster.json", *train, *options, "-q", "-o", out,
                                                                                      code=(0, 3)).returncode == 0 else None
    free = planned("--micro-batches", 1)["memory"]["peak_bytes"]
    for share in (1, 0.7, 0.45):
        limit = ["--memory", int(share * free)]
        cost = planned("--micro-batches", "auto", *limit)["cost"]
        of_each = [report["cost"]["seconds"] for count in (1, 2, 4, 8) for level in ("none", "cheap", "full")
                   if (report := planned("--micro-batches", count, "--recompute", level, *limit)) is not None]
        assert 0.5 * cost["seconds"] < cost["lower_bound_seconds"] <= min(of_each) * (1 + 1e-9), (share, cost, of_each)
        assert cost["seconds"] <= min(of_each) * 1.006, (share, cost, of_each)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with_cluster(folder)
        model = small_model(folder / "model.onnx", "--family", "gpt", "--layers", "2", "--sequence", "16", "--vocabulary", "64")
        with_one_in_flight(folder, model)
        limit_is_kept(folder, model)
        levels_said_wrongly(folder, model)
        bound_of_forms(folder, model)
        print("plans are used again as they are")


if __name__ == "__main__":
    main()
