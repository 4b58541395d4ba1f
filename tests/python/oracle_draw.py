"""Random parameter sets of operators, the same in every run; the tables of operators that the oracle_* files fill."""
import json
import pathlib
import zlib

import numpy as np

TABLE = json.loads((pathlib.Path(__file__).resolve().parent.parent / "unit" / "data" / "op_table.json").read_text())
SETS = 56  # for each version of each operator
NUMPY = {"fp16": "float16", "fp32": "float32"}
CURRENT = (15, 16, 17, 18, 26)

# {operator: [(parameters of the table that it draws types for), function of a Draw that gives a Case]}
GENERATORS = {}


def operator(*names):
    """Registers the generator of cases for these operators."""
    def register(function):
        for name in names:
            assert name not in GENERATORS, name
            GENERATORS[name] = function
        return function
    return register


def versions():
    """{(operator, version): (row of the table, opsets at which this version counts)}"""
    rows = {}
    for row in TABLE:
        rows.setdefault(row["op"], []).append(row)
    found = {}
    for op, mine in rows.items():
        for row, after in zip(mine, mine[1:] + [None]):
            opsets = [o for o in CURRENT if o >= row["opset"] and (after is None or o < after["opset"])]
            found[op, row["opset"]] = row, opsets
    return found


class Draw:
    """What one parameter set is drawn from. The first few sets of each version are edges of shape: rank 0, empty, size 1,
    large, high rank, special values."""

    def __init__(self, op, row, opset, number):
        self.op, self.row, self.version, self.opset, self.number = op, row, row["opset"], opset, number
        self.rng = np.random.default_rng(zlib.crc32(f"{op}-{row['opset']}-{number}".encode()))
        self.seen = set()

    def dtype(self, parameter, *, without=()):
        """One of the types that the parameter takes in this version."""
        allowed = [NUMPY.get(d, d) for d in self.row["params"][parameter]["dtypes"]]
        chosen = str(self.rng.choice([d for d in allowed if d not in without]))
        self.seen.add((parameter, chosen))
        return chosen

    def other(self, parameter, like):
        """The type of a constant: from iOS 17 on it may differ from that of the data."""
        return self.dtype(parameter) if self.version >= 17 and self.flag() else self.note(parameter, like)

    def note(self, parameter, dtype):
        self.seen.add((parameter, dtype))
        return dtype

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def flag(self):
        return bool(self.rng.integers(2))

    def choice(self, options):
        return options[int(self.rng.integers(len(options)))]

    @property
    def is_special(self):
        return self.number == 5

    def shape(self, low=0, high=5, size=6, empty=True):
        n = self.number
        if n == 0:
            return (self.integer(1, size),) * low
        if n == 1 and empty:
            shape = [self.integer(1, size) for _ in range(self.integer(max(low, 1), high))]
            shape[self.integer(0, len(shape) - 1)] = 0
            return tuple(shape)
        if n == 2:
            return (1,) * self.integer(max(low, 1), high)
        if n == 3:
            return (1,) * (max(low, 1) - 1) + (4099,) if max(low, 1) > 1 or low == high else (37, 131)
        rank = high if n == 4 else self.integer(low, high)
        return tuple(self.integer(1, size) for _ in range(rank))

    def array(self, shape, dtype, low=-3.0, high=3.0):
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return np.asarray(self.rng.integers(0, 2, shape), np.bool_)
        if dtype.kind in "iu":
            limit = np.iinfo(dtype)
            return np.asarray(self.rng.integers(max(int(low), limit.min), min(int(high), limit.max) + 1, shape), dtype)
        return np.asarray(self.rng.uniform(low, high, shape), dtype)

    def values(self, shape, dtype):
        """Of any type, over its range."""
        if np.dtype(dtype).kind == "f":
            return self.array(shape, dtype, -9, 9)
        limit = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return self.array(shape, dtype, *limit)

    def axis(self, rank):
        return self.integer(-rank, rank - 1)

    def broadcast(self, n=2, high=4):
        """Shapes that broadcast together."""
        whole = self.shape(0, high)
        shapes = []
        for _ in range(n):
            mine = [m if self.rng.random() < .7 else 1 for m in whole]
            shapes.append(tuple(mine[self.integer(0, len(mine)):] if self.flag() else mine))
        return shapes
