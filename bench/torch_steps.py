#!/usr/bin/env python3
"""Measures training steps of one GPU with PyTorch, as a table that bench/truth.py reads.

  bench/torch_steps.py [-o FILE.csv] [--runtime eager|compiled]... [--only TEXT] [--steps N] [--ways] [--kernels FILE.csv] [--small]

(needs PyTorch and a GPU.) The models are those of scripts/make_models.py with random weights: parameters and activations in bfloat16,
Adam with states and a copy of the parameters in float32 (fused), the loss in float32. `eager` issues each op by itself, attention by
scaled_dot_product_attention; `compiled` compiles each layer and the head with torch.compile. torch_step_s is the median of the steps by CUDA
events, update_s what of it is Adam. --kernels writes times of single products and attentions too. --small: tiny models, also on a CPU.

--ways: one step of each model in every way that one GPU has: by 1, 2, 4, ... micro-batches, whose gradients are added up in float32, with every
layer repeated for its backward pass (recompute: full) or nothing. What does not fit has neither time nor memory.
"""
import argparse
import csv
import gc
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

COLUMNS = ("gpu", "torch", "runtime", "family", "layers", "hidden", "heads", "kv_heads", "feed_forward", "vocabulary", "sequence", "batch",
           "micro_batches", "recompute", "torch_step_s", "update_s", "memory_bytes")
#          family   layers hidden heads kv   ffn    vocabulary sequence batch
MODELS = [("llama", 16, 2048, 32, 8, 8192, 32000, 4096, 2), ("llama", 16, 2048, 32, 8, 8192, 32000, 1024, 1),
          ("llama", 4, 4096, 32, 8, 14336, 32000, 8192, 1), ("llama", 4, 4096, 32, 8, 14336, 32000, 2048, 2), ("llama", 24, 1024, 16, 16, 2816, 32000, 2048, 8),
          ("gpt", 24, 1024, 16, 16, 4096, 50304, 1024, 16), ("gpt", 24, 1600, 25, 25, 6400, 50304, 1024, 8), ("gpt", 6, 4096, 32, 32, 16384, 50304, 2048, 4),
          ("gpt", 12, 768, 12, 12, 3072, 50304, 1024, 2)]
WAYS = [("llama", 16, 2048, 32, 8, 8192, 32000, 4096, 16), ("llama", 6, 4096, 32, 8, 14336, 32000, 2048, 32), ("gpt", 24, 1600, 25, 25, 6400, 50304, 1024, 32),
        ("llama", 24, 1024, 16, 16, 2816, 32000, 2048, 64)]
SMALL = [("llama", 2, 64, 4, 2, 128, 256, 32, 2), ("gpt", 2, 64, 4, 4, 256, 256, 32, 2)]


class Layer(nn.Module):
    def __init__(self, family, hidden, heads, kv_heads, feed_forward):
        super().__init__()
        self.gated, self.heads, self.kv_heads, self.size = family == "llama", heads, kv_heads, hidden // heads
        bias = not self.gated
        norm = nn.RMSNorm if self.gated else nn.LayerNorm
        self.norm1, self.norm2 = norm(hidden, eps=1e-5), norm(hidden, eps=1e-5)
        self.q, self.o = nn.Linear(hidden, hidden, bias), nn.Linear(hidden, hidden, bias)
        self.k, self.v = nn.Linear(hidden, kv_heads * self.size, bias), nn.Linear(hidden, kv_heads * self.size, bias)
        self.up, self.down = nn.Linear(hidden, feed_forward, bias), nn.Linear(feed_forward, hidden, bias)
        self.gate = nn.Linear(hidden, feed_forward, bias) if self.gated else None

    def turned(self, x, angles):
        if not self.gated:
            return x
        cos, sin = angles
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x, angles):
        batch, sequence, hidden = x.shape
        y = self.norm1(x)
        q = self.turned(self.q(y).view(batch, sequence, self.heads, self.size).transpose(1, 2), angles)
        k = self.turned(self.k(y).view(batch, sequence, self.kv_heads, self.size).transpose(1, 2), angles)
        v = self.v(y).view(batch, sequence, self.kv_heads, self.size).transpose(1, 2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads != self.heads)
        x = x + self.o(a.transpose(1, 2).reshape(batch, sequence, hidden))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y) if self.gated else F.gelu(self.up(y), approximate="tanh"))


class Head(nn.Module):
    def __init__(self, family, hidden, vocabulary):
        super().__init__()
        self.norm = (nn.RMSNorm if family == "llama" else nn.LayerNorm)(hidden, eps=1e-5)
        self.logits = nn.Linear(hidden, vocabulary, False)

    def forward(self, x, labels):
        return F.cross_entropy(self.logits(self.norm(x)).float().flatten(0, 1), labels.flatten())


class Model(nn.Module):
    def __init__(self, family, layers, hidden, heads, kv_heads, feed_forward, vocabulary, sequence):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Parameter(torch.randn(sequence, hidden) * 0.02) if family == "gpt" else None
        self.layers = nn.ModuleList(Layer(family, hidden, heads, kv_heads, feed_forward) for _ in range(layers))
        self.head = Head(family, hidden, vocabulary)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, labels, angles, recompute):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions
        for layer in self.layers:
            x = checkpoint(layer, x, angles, use_reentrant=False, preserve_rng_state=False) if recompute == "full" else layer(x, angles)
        return self.head(x, labels)


class Clock:
    """Seconds of what lies between two marks, on the device."""

    def __init__(self, device):
        self.on_gpu = device == "cuda"

    def mark(self):
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, a, b):
        if not self.on_gpu:
            return b - a
        b.synchronize()
        return a.elapsed_time(b) / 1e3


def measured_step(setting, passes, recompute, runtime, steps, device):
    family, layers, hidden, heads, kv_heads, feed_forward, vocabulary, sequence, batch = setting
    torch.manual_seed(0)
    with torch.device(device):
        model = Model(family, layers, hidden, heads, kv_heads, feed_forward, vocabulary, sequence).to(torch.bfloat16)
    if runtime == "compiled":
        for layer in model.layers:
            layer.compile(dynamic=False)
        model.head.compile(dynamic=False)
    masters = [p.detach().float() for p in model.parameters()]
    adam = torch.optim.AdamW(masters, lr=1e-4, fused=device == "cuda")
    for master in masters:
        master.grad = torch.zeros_like(master)
    size = hidden // heads
    turns = torch.outer(torch.arange(sequence, device=device).float(), 10000.0 ** (-torch.arange(0, size, 2, device=device).float() / size))
    angles = tuple(torch.cat((part, part), -1).to(torch.bfloat16) for part in (turns.cos(), turns.sin()))
    ids, labels = (torch.randint(vocabulary, (batch, sequence), device=device) for _ in range(2))
    clock, step_times = Clock(device), []
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    warm_up = 4 if passes == 1 else 2
    for step in range(steps + warm_up):
        start = clock.mark()
        for pass_ids, pass_labels in zip(ids.chunk(passes), labels.chunk(passes)):
            loss = model(pass_ids, pass_labels, angles, recompute) / passes
            loss.backward()
            if passes > 1:
                torch._foreach_add_([m.grad for m in masters], [p.grad for p in model.parameters()])
                model.zero_grad()
        middle = clock.mark()
        if passes == 1:
            torch._foreach_copy_([m.grad for m in masters], [p.grad for p in model.parameters()])
        adam.step()
        with torch.no_grad():
            torch._foreach_copy_(list(model.parameters()), masters)
        if passes > 1:
            torch._foreach_zero_([m.grad for m in masters])
        model.zero_grad()
        end = clock.mark()
        if step >= warm_up:
            step_times.append((start, middle, end))
    times = [(clock.between(a, c), clock.between(b, c)) for a, b, c in step_times]
    memory = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    assert torch.isfinite(loss), "the loss is no number"
    return statistics.median(t[0] for t in times), statistics.median(t[1] for t in times), memory


def measured_kernels(path, device):
    """Products [m, k] [k, n] in bfloat16, attentions, copies: the median time of each."""
    def timed(run):
        for _ in range(3):
            run()
        clock, times = Clock(device), []
        for _ in range(12):
            a = clock.mark()
            run()
            times.append((a, clock.mark()))
        return statistics.median(clock.between(a, b) for a, b in times)

    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(("kernel", "a", "b", "c", "d", "e", "seconds"))
        for m in (1024, 4096, 8192, 16384):
            for k, n in ((1024, 1024), (2048, 8192), (4096, 4096), (4096, 14336), (14336, 4096), (4096, 1024), (8192, 32000), (512, 4096)):
                x, w = (torch.randn(*shape, device=device, dtype=torch.bfloat16) for shape in ((m, k), (k, n)))
                out.writerow(("product", m, k, n, "", "", f"{timed(lambda: x @ w):.4g}"))
        for batch, heads, kv_heads, sequence, size in ((1, 32, 32, 2048, 64), (1, 32, 8, 4096, 128), (1, 32, 8, 8192, 128), (4, 16, 16, 1024, 64), (1, 8, 2, 8192, 128)):
            q = torch.randn(batch, heads, sequence, size, device=device, dtype=torch.bfloat16, requires_grad=True)
            k, v = (torch.randn(batch, kv_heads, sequence, size, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
            attention = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
            out.writerow(("attention", batch, heads, kv_heads, sequence, size, f"{timed(attention):.4g}"))
            a = attention()
            g = torch.randn_like(a)
            out.writerow(("attention.grad", batch, heads, kv_heads, sequence, size, f"{timed(lambda: torch.autograd.grad(a, (q, k, v), g, retain_graph=True)):.4g}"))
        for size in (2**16, 2**20, 2**24, 2**28):
            x, y = (torch.randn(size, device=device).to(torch.bfloat16) for _ in range(2))
            out.writerow(("copy", size, "", "", "", "", f"{timed(lambda: y.copy_(x)):.4g}"))


def ways_of(setting):
    """Of one step: how many passes, what is repeated. Those first that hold least."""
    batch = passes = setting[-1]
    assert batch & (batch - 1) == 0, "a batch that is no power of two"
    while passes >= 1:
        yield from ((passes, recompute) for recompute in ("full", "none"))
        passes //= 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", default="-", metavar="FILE")
    parser.add_argument("--runtime", action="append", choices=["eager", "compiled"])
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--ways", action="store_true")
    parser.add_argument("--kernels", metavar="FILE")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.small:
        parser.error("there is no GPU here; --small runs tiny models on the CPU")
    gpu = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    file = sys.stdout if options.o == "-" else open(options.o, "w", newline="", encoding="utf-8")
    out = csv.writer(file)
    out.writerow(COLUMNS)
    for runtime in options.runtime or ["eager", "compiled"]:
        for setting in SMALL if options.small else WAYS if options.ways else MODELS:
            if options.only not in " ".join(map(str, setting)):
                continue
            too_large = set()  # what is repeated where a larger micro-batch does not fit
            for passes, recompute in ways_of(setting) if options.ways else [(1, "none")]:
                if recompute in too_large:
                    continue
                begun = time.perf_counter()
                torch._dynamo.reset()
                try:
                    step, update, memory = measured_step(setting, passes, recompute, runtime, options.steps, device)
                    measured = (f"{step:.6g}", f"{update:.6g}", memory)
                except torch.cuda.OutOfMemoryError:
                    too_large.add(recompute)
                    measured = ("", "", "")
                out.writerow((gpu, torch.__version__, runtime, *setting, passes, recompute, *measured))
                file.flush()
                print(runtime, setting, passes, recompute, *measured, f"{time.perf_counter() - begun:.0f} s in all", file=sys.stderr)
                gc.collect()
                if device == "cuda":
                    torch.cuda.empty_cache()
    if options.kernels:
        measured_kernels(options.kernels, device)


if __name__ == "__main__":
    main()
