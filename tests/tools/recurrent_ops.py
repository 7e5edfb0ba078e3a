"""LSTM, GRU and RNN in the precision of their inputs, with everything that ONNX says of them: the evaluators calculate
in float32 or leave directions, lengths, activations and clipping out."""
import numpy as np
from onnx.reference.op_run import OpRun

ACTIVATIONS = {
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "softsign": lambda x, a, b: x / (1 + abs(x)),
    "softplus": lambda x, a, b: np.log1p(np.exp(x)),
    "affine": lambda x, a, b: a * x + b,
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "thresholdedrelu": lambda x, a, b: np.where(x >= a, x, 0),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x >= 0, x, a * (np.exp(x) - 1)),
}
ALPHA = {"affine": 1, "scaledtanh": 1, "leakyrelu": 0.01, "thresholdedrelu": 1, "hardsigmoid": 0.2, "elu": 1}
BETA = {"affine": 0, "scaledtanh": 1, "hardsigmoid": 0.5}


def activations_of(names, alphas, betas):
    alphas, betas, found = list(alphas or []), list(betas or []), []
    for name in map(str.lower, names):
        a = (alphas.pop(0) if alphas else ALPHA[name]) if name in ALPHA else 0
        b = (betas.pop(0) if betas else BETA[name]) if name in BETA else 0
        found.append(lambda x, f=ACTIVATIONS[name], a=a, b=b: f(x, a, b))
    return found


class Recurrent(OpRun):
    """A subclass says what its cell does in a step: (x, states, weights) -> states, the output's first."""
    gates, states, default = 1, 1, ["Tanh"]

    def _run(self, X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, activation_alpha=None,
             activation_beta=None, activations=None, clip=None, direction=None, hidden_size=None, input_forget=None,
             layout=None, linear_before_reset=None):
        if layout:
            X = X.swapaxes(0, 1)
            initial_h, initial_c = [s if s is None else s.swapaxes(0, 1) for s in (initial_h, initial_c)]
        time, batch, _ = X.shape
        directions, rows, hidden = R.shape
        initial = [s if s is not None else np.zeros((directions, batch, hidden), X.dtype) for s in (initial_h, initial_c)]
        lengths = np.full(batch, time) if sequence_lens is None else sequence_lens
        B = np.zeros((directions, 2 * rows), X.dtype) if B is None else B
        P = np.zeros((directions, 3 * hidden), X.dtype) if P is None else P
        functions = activations_of(activations or self.default * directions, activation_alpha, activation_beta)
        self.bend = lambda f, x: f(np.clip(x, -clip, clip) if clip else x)
        self.linear = linear_before_reset
        Y = np.zeros((time, directions, batch, hidden), X.dtype)
        last = [np.zeros((directions, batch, hidden), X.dtype) for _ in range(self.states)]
        for d in range(directions):
            f = functions[d * len(self.default):(d + 1) * len(self.default)]
            for b in range(batch):
                state = [s[d, b] for s in initial[:self.states]]
                steps = range(lengths[b])
                for t in reversed(steps) if direction == "reverse" or d == 1 else steps:
                    state = self.step(X[t, b], state, W[d], R[d], B[d], P[d], f)
                    Y[t, d, b] = state[0]
                for k in range(self.states):
                    last[k][d, b] = state[k]
        if layout:
            Y, last = Y.transpose(2, 0, 1, 3), [s.swapaxes(0, 1) for s in last]
        return tuple([Y, *last][:len(self.onnx_node.output)])


class RNN(Recurrent):
    def step(self, x, state, W, R, B, P, f):
        return [self.bend(f[0], W @ x + R @ state[0] + sum(np.split(B, 2)))]


class GRU(Recurrent):
    default = ["Sigmoid", "Tanh"]

    def step(self, x, state, W, R, B, P, f):
        h = state[0]
        (wz, wr, wh), (bz, br, bh) = np.split(W @ x + np.split(B, 2)[0], 3), np.split(np.split(B, 2)[1], 3)
        rz, rr, rh = np.split(R, 3)
        z, r = self.bend(f[0], wz + rz @ h + bz), self.bend(f[0], wr + rr @ h + br)
        inner = r * (rh @ h + bh) if self.linear else rh @ (r * h) + bh
        return [(1 - z) * self.bend(f[1], wh + inner) + z * h]


class LSTM(Recurrent):
    states, default = 2, ["Sigmoid", "Tanh", "Tanh"]

    def step(self, x, state, W, R, B, P, f):
        h, c = state
        i, o, forget, new = np.split(W @ x + R @ h + sum(np.split(B, 2)), 4)
        pi, po, pf = np.split(P, 3)
        i, forget = self.bend(f[0], i + pi * c), self.bend(f[0], forget + pf * c)
        c = forget * c + i * self.bend(f[1], new)
        return [self.bend(f[0], o + po * c) * f[2](c), c]


RECURRENT_OPS = [RNN, GRU, LSTM]
