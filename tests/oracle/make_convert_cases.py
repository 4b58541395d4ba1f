#!/usr/bin/env python3
"""Makes the data of tests/unit/test_quantizer.c and tests/unit/test_gguf_blocks.c.

    make_convert_cases.py QUANTIZER_OUT GGUF_OUT

Needs coremltools 9, gguf and numpy. Codes and scales come from coremltools' own symmetric linear quantization of float16
weights, values of GGUF blocks from the gguf package. Layouts, all little-endian:

    "PQNT" u32 n_cases;  case: u32 n, u32 block, u32 top, u16 weights[n] (half), i8 codes[n], u16 scales[n / block] (half)
    "PGGB" u32 n_cases;  case: u32 type, u32 n, u32 n_bytes, the bytes, f32 values[n]
"""
import struct
import sys

import gguf
import numpy as np
from coremltools.converters.mil.mil import types
from coremltools.optimize import _utils

rng = np.random.default_rng(20261130)


def weights(n, kind):
    w = rng.standard_normal(n).astype(np.float32) * 0.02
    if kind == "wide":
        w *= np.exp(rng.uniform(-8, 8, n)).astype(np.float32)
    elif kind == "large":
        w *= 32000 / np.abs(w).max()
    elif kind == "subnormal":
        w *= 3e-4
    elif kind == "halves":  # quotients that lie between two codes
        w = rng.integers(-15, 16, n).astype(np.float32) / 2
    elif kind == "zeros":
        w[: n // 2] = 0
    return w.astype(np.float16)


def quantizer_cases():
    cases = []
    for kind in ("plain", "wide", "large", "subnormal", "halves", "zeros"):
        for block in (16, 32, 512):
            for name, top in (("int4", 7), ("int8", 127)):
                w = weights(512, kind).reshape(1, -1)
                codes, scale, offset = _utils.compute_qparams_by_dtype(w, types.string_to_builtin(name), "LINEAR_SYMMETRIC",
                                                                       [1, block])
                assert offset is None or not np.any(offset)
                scale = np.asarray(scale)
                assert scale.dtype == np.float16, scale.dtype
                cases.append(struct.pack("<III", w.size, block, top) + w.tobytes() + codes.astype(np.int8).tobytes() +
                             scale.tobytes())
    return b"PQNT" + struct.pack("<I", len(cases)) + b"".join(cases)


HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
          "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def gguf_cases():
    cases = []
    for name, places in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        n_blocks = 3 if block == 256 else 8
        data = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)
        for at in places:
            data[:, at:at + 2] = rng.standard_normal(n_blocks).astype(np.float16).view(np.uint8).reshape(-1, 2)
        values = gguf.quants.dequantize(data.reshape(1, -1), kind).astype(np.float32).ravel()
        cases.append(struct.pack("<III", int(kind), values.size, data.size) + data.tobytes() + values.tobytes())
    for name, dtype in (("F16", np.float16), ("F32", np.float32)):
        values = rng.standard_normal(64).astype(dtype)
        cases.append(struct.pack("<III", int(gguf.GGMLQuantizationType[name]), 64, values.nbytes) + values.tobytes() +
                     values.astype(np.float32).tobytes())
    return b"PGGB" + struct.pack("<I", len(cases)) + b"".join(cases)


if __name__ == "__main__":
    open(sys.argv[1], "wb").write(quantizer_cases())
    open(sys.argv[2], "wb").write(gguf_cases())
