"""Shared by bench/fit.py and bench/fit_collectives.py: rows of measured times, a tenth of which is kept apart, and fits of formulas to them.

Data has a row for each time: its fourth column is the time in seconds, its fifth 1 where the row is kept apart.
"""
import csv
import gzip
import hashlib

import numpy as np

STEPS = (0.5, 0.7, 0.85, 0.93, 0.97, 1.03, 1.07, 1.15, 1.4, 2)
MOST_ROUNDS = 40
LEAST_GAIN = 1e-5
FRACTIONS = ("fraction", "memory", "forward")  # at most 1


def read_rows(path, column, unit):
    """Of a table of times in `column`, counted in units of so many seconds."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for row in rows:
        row["held_out"] = hashlib.sha256(repr(sorted(row.items())).encode()).digest()[0] % 10 == 0
        row["seconds"] = float(row[column]) * unit
    return [r for r in rows if r["seconds"] > 0]


def descend(start, choices, seconds, data):
    """Coordinate descent from `start`; `choices`: per parameter that is fitted the values it may have, None for any. The parameters, and their error."""
    fitted = data[data[:, 4] == 0]
    error = lambda p: np.abs(np.log(seconds(p, fitted) / fitted[:, 3])).mean()
    best, least = dict(start), error(start)
    for _ in range(MOST_ROUNDS):
        before = least
        for name, values in choices.items():
            for value in values or [best[name] * f for f in STEPS]:
                if name in FRACTIONS and value > 1:
                    continue
                other = {**best, name: value}
                now = error(other)
                if now < least:
                    best, least = other, now
        if before - least < LEAST_GAIN:
            break
    return best, least


def mape(parameters, seconds, data):
    return round(100 * float(np.mean(np.abs(seconds(parameters, data) / data[:, 3] - 1))), 2) if len(data) else None


def as_shown(parameters, seconds, data):
    held = data[:, 4] == 1
    return {**{k: float(f"{v:.4g}") for k, v in parameters.items()}, "rows": len(data), "mape_fitted": mape(parameters, seconds, data[~held]),
            "held_out": int(held.sum()), "mape_held_out": mape(parameters, seconds, data[held])}
