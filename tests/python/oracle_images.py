"""Resizing and sampling of images, by NumPy and PyTorch in double precision; the grids are those of coremltools' definitions."""
import numpy as np
import torch

from oracle_draw import operator
from oracle_elementwise import double
from oracle_program import Case, Out
from oracle_shapes import late

MODES = ["DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS", "UNALIGN_CORNERS"]


def grid(mode, n_in, n_out):
    """Where samples are taken along an axis of n_in, of length n_in - 1."""
    i = np.arange(n_out, dtype=np.float64)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        if n_out == 1:
            return np.array([0. if mode[0] == "S" else (n_in - 1) / 2])
        return i * (n_in - 1) / (n_out - 1)
    at = {"OFFSET_CORNERS": (i + .5) * max(1, n_in - 1) / n_out, "UNALIGN_CORNERS": (i + .5) * n_in / n_out - .5}
    return np.clip(at.get(mode, i * n_in / n_out), 0, n_in - 1)


def interpolated(x, axis, at):
    low = np.clip(np.floor(at).astype(int), 0, x.shape[axis] - 1)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    shape = [1] * x.ndim
    shape[axis] = -1
    weight = (at - low).reshape(shape)
    return np.take(x, low, axis) * (1 - weight) + np.take(x, high, axis) * weight


def image(d, dtype):
    if d.number == 3:
        return d.array((1, 2, 33, 70), dtype, -4, 4)
    return d.array(tuple(1 if d.number == 2 else d.integer(1, n) for n in (2, 3, 8, 8)), dtype, -4, 4)


def size_of(d, mode):
    return d.integer(2 if mode == "STRICT_ALIGN_CORNERS" else 1, 40 if d.number == 3 else 14)


def bilinear(x, mode, h, w):
    return interpolated(interpolated(double(x), x.ndim - 2, grid(mode, x.shape[-2], h)), x.ndim - 1, grid(mode, x.shape[-1], w))


@operator("resize_bilinear")
def resize_bilinear(d):
    dtype, mode = d.dtype("x"), d.choice(MODES)
    x, h, w = image(d, dtype), size_of(d, mode), size_of(d, mode)
    consts = {"target_size_height": h, "target_size_width": w}
    if mode != "DEFAULT" or d.flag():
        consts["sampling_mode"] = mode
    return Case(d.op, {"x": x}, consts, [Out(bilinear(x, mode, h, w), dtype)])


@operator("resize_nearest_neighbor")
def resize_nearest_neighbor(d):
    dtype = d.dtype("x")
    x, h, w = image(d, dtype), size_of(d, ""), size_of(d, "")
    rows, columns = np.arange(h) * x.shape[2] // h, np.arange(w) * x.shape[3] // w
    return Case(d.op, {"x": x}, {"target_size_height": h, "target_size_width": w}, [Out(x[:, :, rows][..., columns], dtype)], exact_half=True)


def scale(d, name, n):
    """A whole or a broken factor, and the length that it leads to without rounding."""
    if d.dtype(name) == "int32":
        factor = np.int32(d.integer(1, 3))
    else:
        factor = np.float32(d.choice([1, 2, 3] + [1.5] * (n % 2 == 0) + [.5] * (n % 2 == 0) + [2.5] * (n % 2 == 0)))
    return factor, int(n * factor)


@operator("upsample_nearest_neighbor")
def upsample_nearest_neighbor(d):
    dtype = d.dtype("x")
    x = image(d, dtype)
    (a, h), (b, w) = scale(d, "scale_factor_height", x.shape[2]), scale(d, "scale_factor_width", x.shape[3])
    values = x[:, :, np.arange(h) * x.shape[2] // h][..., np.arange(w) * x.shape[3] // w]
    return Case(d.op, {"x": x}, {"scale_factor_height": a, "scale_factor_width": b}, [Out(values, dtype)], exact_half=True)


@operator("upsample_bilinear")
def upsample_bilinear(d):
    dtype = d.dtype("x")
    x = image(d, dtype)
    (a, h), (b, w) = scale(d, "scale_factor_height", x.shape[2]), scale(d, "scale_factor_width", x.shape[3])
    consts, align = {"scale_factor_height": a, "scale_factor_width": b}, True
    if d.flag():
        consts["align_corners"] = align = d.flag()
    half = not align
    if d.version >= 16 and not align and d.flag():
        consts["half_pixel_centers"] = half = d.flag()
    mode = "STRICT_ALIGN_CORNERS" if align else "UNALIGN_CORNERS" if half else "DEFAULT"
    return Case(d.op, {"x": x}, consts, [Out(bilinear(x, mode, h, w), dtype)])


@operator("resize")
def resize(d):
    dtype, mode = d.dtype("x"), d.choice(MODES)
    near = dtype == "int32" or d.flag()
    x = d.values(image(d, "float32").shape, dtype) if dtype == "int32" else image(d, dtype)
    n = d.integer(1, 2)
    sizes = [size_of(d, mode) for _ in range(n)]
    values = x if near else double(x)
    for k, size in enumerate(sizes):
        axis = x.ndim - n + k
        at = grid(mode, x.shape[axis], size)
        if near and (np.abs(at % 1 - .5) < 1e-3).any():  # which of two neighbours is nobody's word
            size = sizes[k] = x.shape[axis]
            at = grid(mode, size, size)
            if (np.abs(at % 1 - .5) < 1e-3).any():
                mode_of_axis = np.arange(size)
                at = mode_of_axis.astype(np.float64)
                near, values = False, double(values)
        values = np.take(values, np.rint(at).astype(int), axis) if near else interpolated(values, axis, grid(mode, x.shape[axis], size))
    if dtype == "int32" and not near:
        return resize_default(d, dtype)
    given = [0 if size == x.shape[x.ndim - n + k] and d.flag() else size for k, size in enumerate(sizes)]
    given = [d.integer(1, 9) for _ in range(d.integer(0, x.ndim - n))] + given  # what comes before does not count
    consts = {"shape": np.array(given, d.dtype("shape")), "resized_dims": np.uint32(n)}
    if near or d.flag():
        consts["interpolation_mode"] = "NEAREST_NEIGHBOR" if near else "LINEAR"
    if mode != "DEFAULT" or d.flag():
        consts["sampling_mode"] = mode
    inputs, consts, is_late = late(d, consts, "shape") if consts["shape"].dtype != np.uint32 else ({}, consts, False)
    return Case(d.op, {"x": x, **inputs}, consts, [Out(values, dtype, tuple(range(x.ndim)) if is_late else ())])


def resize_default(d, dtype):
    """Each element twice."""
    x = d.values((2, 5), dtype)
    consts = {"shape": np.array([10], np.int32), "resized_dims": np.uint32(1), "interpolation_mode": "NEAREST_NEIGHBOR"}
    return Case(d.op, {"x": x}, {**consts, "sampling_mode": "UNALIGN_CORNERS"}, [Out(x.repeat(2, 1), dtype)])


# ---- boxes ----


@operator("crop_resize")
def crop_resize(d):
    dtype, mode = d.dtype("x"), d.choice(MODES)
    x = d.array((d.integer(1, 3), d.integer(1, 2), d.integer(2, 8), d.integer(2, 8)), dtype, -4, 4)
    height, width = x.shape[2:]
    n, h, w = d.integer(1, 3), size_of(d, mode) % 9 or 2, size_of(d, mode) % 9 or 2
    whole = "boxes" in d.row["params"] and d.row["params"]["boxes"]["dtypes"] and d.dtype("boxes")
    kind = d.note("roi", dtype) if d.version < 17 else whole
    normalized = kind != "uint16" and d.flag()
    place = d.choice(["CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST"])
    factor = 1. if kind == "uint16" or d.flag() else .5
    ends = []
    for size in (height, width):
        a, b = np.sort(d.array((2, n), "float64", 0, size - 1), 0)
        if kind == "uint16":
            a, b = np.floor(a), np.floor(b)
            if "CENTER" in place:
                b = a + (b - a) // 2 * 2
        if d.version >= 16 and kind != "uint16" and d.flag():
            b = b + 2  # beyond the image
        ends.append((a, b))
    units = [(s - 1 if normalized else 1) * factor for s in (height, width)]
    given = [np.stack([(a + b) / 2, b - a] if "CENTER" in place else [a, b]) / u for (a, b), u in zip(ends, units)]
    given = np.asarray(given[::-1] if "WIDTH" in place else given, np.float64).astype(kind)  # [axis, begin or end, n]
    boxes = given.transpose(2, 1, 0).reshape(n, 4)
    stored = double(given)[::-1] if "WIDTH" in place else double(given)
    spans = []
    for (p, q), u in zip(stored, units):
        spans.append((p * u - q * u / 2, p * u + q * u / 2) if "CENTER" in place else (p * u, q * u))
    consts = {"target_height": h, "target_width": w, "normalized_coordinates": normalized, "box_coordinate_mode": place,
              "spatial_scale": np.float32(factor), "sampling_mode": mode}
    value = 0.
    if d.version >= 16 and d.flag():
        consts["pad_value"] = d.array((), d.other("pad_value", dtype), -2, 2)
        value = float(consts["pad_value"])
    numbers = d.rng.integers(0, len(x), n)

    def crop(picture, k):
        at = []
        for (begin, end), size in zip(spans, (h, w)):
            length = abs(end[k] - begin[k])
            points = grid_of_box(mode, length, size)
            at.append(begin[k] + points)
        inside = [(p >= 0) & (p <= s - 1) for p, s in zip(at, (height, width))]
        safe = [np.clip(p, 0, s - 1) for p, s in zip(at, (height, width))]
        values = interpolated(interpolated(double(picture), 1, safe[0]), 2, safe[1])
        return np.where(inside[0][None, :, None] & inside[1][None, None, :], values, value)

    case = Case(d.op, {"x": x}, consts, [])
    if dtype == "float16" or kind == "float16":
        case.tolerance = (2e-3, 2e-2)
    if d.version >= 17:
        case.inputs["boxes"] = boxes
        if d.flag() or n != len(x):
            case.inputs["box_indices"] = numbers.astype(d.dtype("box_indices"))
        else:
            numbers = np.arange(n)
        values = np.stack([crop(x[i], k) for k, i in enumerate(numbers)])
    elif d.flag():
        case.inputs["roi"] = np.concatenate([numbers[:, None].astype(kind), boxes], 1).reshape(n, 1, 5, 1, 1)
        values = np.stack([crop(x[i], k)[None] for k, i in enumerate(numbers)])
    else:
        case.inputs["roi"] = boxes.reshape(n, 1, 4, 1, 1)
        values = np.stack([np.stack([crop(picture, k) for picture in x]) for k in range(n)])
    # at the very edge rounding decides whether a point is inside
    edges = [np.abs(b + 0. - s + 1).min() for (_, b), s in zip(spans, (height, width))] + [np.abs(a).min() for a, _ in spans]
    if min(edges) < 1e-3 and kind != "uint16":
        d.number += 1000
        d.rng = np.random.default_rng(d.number + len(d.op))
        return crop_resize(d)
    case.outs = [Out(values, dtype)]
    return case


def grid_of_box(mode, length, n_out):
    """As `grid`, where n_in - 1 is a length that need not be whole."""
    i = np.arange(n_out, dtype=np.float64)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        if n_out == 1:
            return np.array([0. if mode[0] == "S" else length / 2])
        return i * length / (n_out - 1)
    at = {"OFFSET_CORNERS": (i + .5) * max(1, length) / n_out, "UNALIGN_CORNERS": (i + .5) * (length + 1) / n_out - .5}
    return np.clip(at.get(mode, i * (length + 1) / n_out), 0, length)


# ---- sampling at given places ----


def sampled(x, places, mode, padding, align, value):
    """torch's grid_sample; a value outside other than 0 is taken off before and put on again."""
    with torch.no_grad():
        y = torch.nn.functional.grid_sample(torch.from_numpy(double(x) - value), torch.from_numpy(np.ascontiguousarray(places)), mode, padding, align)
    return y.numpy() + value


@operator("resample")
def resample(d):
    dtype, kind = d.dtype("x"), d.dtype("coordinates")
    batch, c, height, width, h, w = d.integer(1, 2), d.integer(1, 3), *(d.integer(2, 7) for _ in range(4))
    if d.number == 3:
        height, width, h, w = 20, 30, 40, 17
    x = d.array((batch, c, height, width), dtype, -4, 4)
    whole = kind not in ("float32", "float16")
    mode = "bilinear" if kind == "float16" else d.choice(["bilinear", "nearest"])
    system = "unnormalized" if whole else d.choice(["unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one"])
    align = d.flag()
    padding = d.choice(["constant", "border", "reflection" if align else "symmetric"])
    low, high = {"unnormalized": (-3, 9), "normalized_minus_one_to_one": (-1.7, 1.7), "normalized_zero_to_one": (-.4, 1.4)}[system]
    places = d.array((batch, h, w, 2), kind, low, high)
    sizes, v = np.array([width, height]), double(places)
    if system == "normalized_zero_to_one":
        v = 2 * v - 1
    elif system == "unnormalized":
        v = 2 * v / (sizes - 1) - 1 if align else (2 * v + 1) / sizes - 1
    value = d.array((), d.note("padding_value", dtype), -2, 2) if padding == "constant" else np.zeros((), dtype)
    values = sampled(x, v, mode, {"constant": "zeros", "symmetric": "reflection"}.get(padding, padding), align, float(value))
    consts = {"sampling_mode": mode, "padding_mode": padding, "padding_value": value, "coordinates_mode": system, "align_corners": align}
    return Case(d.op, {"x": x, "coordinates": places}, consts, [Out(values, dtype)])


@operator("affine")
def affine(d):
    dtype = d.dtype("x")
    batch, c, height, width, h, w = d.integer(1, 2), d.integer(1, 3), *(d.integer(2, 7) for _ in range(4))
    x = d.array((batch, c, height, width), dtype, -4, 4)
    matrix = d.array((batch, 6), d.note("transform_matrix", dtype), -1.2, 1.2)
    where = torch.nn.functional.affine_grid(torch.from_numpy(double(matrix).reshape(batch, 2, 3)), [batch, c, h, w], align_corners=True)
    values = sampled(x, where.numpy(), "bilinear", "zeros", True, 0.)
    consts = {"output_height": h, "output_width": w, "sampling_mode": "bilinear", "padding_mode": "constant",
              "padding_value": np.zeros((), d.note("padding_value", dtype)), "coordinates_mode": "normalized_minus_one_to_one", "align_corners": True}
    case = Case(d.op, {"x": x, "transform_matrix": matrix}, consts, [Out(values, dtype)])
    case.tolerance = (2e-3, 4e-3) if dtype == "float16" else None
    return case
