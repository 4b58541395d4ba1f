"""Classifiers and images, in the library and in the command. Pixels are judged by NumPy, files by zlib and libjpeg-turbo."""
import ctypes
import ctypes.util
import json
import logging
import struct
import subprocess
import warnings
import zlib

import numpy as np
import pytest

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
ct = pytest.importorskip("coremltools")

from coremltools.converters.mil.mil import Builder as mb  # noqa: E402

from pome_api import Model, PomeError  # noqa: E402

H, W = 4, 6
LAYOUTS = {"RGB": 3, "BGR": 3, "GRAYSCALE": 1, "GRAYSCALE_FLOAT16": 1}


def convert(body, layout="RGB", image_output=None, **options):
    channels = LAYOUTS[layout]

    @mb.program(input_specs=[mb.TensorSpec(shape=(1, channels, H, W))], opset_version=ct.target.iOS16)
    def program(x):
        return body(x)

    image = ct.ImageType(name="x", shape=(1, channels, H, W), scale=0.5, bias=[1.0, 2.0, 3.0] if channels == 3 else 4.0,
                         color_layout=getattr(ct.colorlayout, layout))
    model = ct.convert(program, inputs=[image], minimum_deployment_target=ct.target.iOS16,
                       compute_precision=ct.precision.FLOAT32, skip_model_load=True, **options)
    if image_output:
        spec = model.get_spec()
        kind = spec.description.output[0].type.imageType
        kind.width, kind.height, kind.colorSpace = W, H, kind.ColorSpace.Value(image_output)
        model = ct.models.MLModel(spec, weights_dir=model.weights_dir, skip_model_load=True)
    return model


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    for name, labels in (("strings", ["red", "green", "blue"]), ("ids", [5, 7, -9])):
        model = convert(lambda x: mb.softmax(x=mb.mul(x=mb.reduce_mean(x=x, axes=[2, 3]), y=np.float32(.05)), name="p"),
                        classifier_config=ct.ClassifierConfig(labels))
        model.save(str(folder / f"{name}.mlpackage"))
    return folder


def pixels(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def probabilities(image):
    scores = (image[..., :3].reshape(-1, 3) * .5 + [1, 2, 3]).mean(0) * .05
    return np.exp(scores) / np.exp(scores).sum()


def write_png(path, array):
    """8 or 16 bits, gray, RGB or RGBA."""
    kind = {2: 0, (3, 3): 2, (3, 4): 6}[2 if array.ndim == 2 else (3, array.shape[2])]

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + row.astype(row.dtype.newbyteorder(">")).tobytes() for row in array)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", array.shape[1], array.shape[0],
                     array.itemsize * 8, kind, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def read_png(path):
    data, at, body = path.read_bytes(), 8, b""
    while at < len(data):
        n, name = struct.unpack(">I4s", data[at : at + 8])
        if name == b"IHDR":
            width, height, depth, kind = struct.unpack(">IIBB", data[at + 8 : at + 18])
        body += data[at + 8 : at + 8 + n] if name == b"IDAT" else b""
        at += 12 + n
    assert depth == 8
    size = {0: 1, 2: 3}[kind]
    raw = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + width * size)
    out = np.zeros((height, width * size), np.uint8)
    for y in range(height):  # undo the filters
        line = raw[y, 1:].astype(int)
        up = out[y - 1].astype(int) if y else np.zeros(width * size, int)
        for x in range(width * size):
            a, b, c = (out[y, x - size] if x >= size else 0), up[x], (up[x - size] if x >= size else 0)
            a, p = int(a), int(a) + int(b) - int(c)
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            out[y, x] = (line[x] + (0, a, b, (a + b) // 2, paeth)[raw[y, 0]]) & 255
    return out.reshape((height, width) if size == 1 else (height, width, size))


def pome_predict(pome, package, *arguments):
    done = subprocess.run([pome, "predict", str(package), *map(str, arguments)], capture_output=True, text=True)
    return done


def test_labels_and_probabilities(classifier):
    image = pixels((H, W, 3))
    want = probabilities(image)
    for name, label in (("strings", ["red", "green", "blue"]), ("ids", [5, 7, -9])):
        with Model(classifier / f"{name}.mlpackage", threads=1) as model, model.predictor() as run:
            for given in (image, np.dstack([image, pixels((H, W), 1)]), image.transpose(2, 0, 1)[None].astype(np.float32)):
                got = run({"x": given})
                assert got["classLabel"] == label[int(want.argmax())]
                np.testing.assert_allclose(got["classLabel_probs"], want, rtol=1e-5)


def test_image_of_another_size(classifier):
    with Model(classifier / "ids.mlpackage", threads=1) as model:
        with pytest.raises(PomeError, match=r"ARG: input x: shape \[1, 3, 4, 5\], wanted image RGB 6 x 4"):
            model.predict({"x": pixels((H, 5, 3))})
        with pytest.raises(PomeError, match=r"pixels \[height, width, 3 or 4\]"):
            model.predict({"x": pixels((H, W))})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_images_in_and_out(layout, tmp_path, pome):
    """y = 0.5 x + bias - 20: some values leave 0..255."""
    offset = np.float32(-20)
    convert(lambda x: mb.add(x=mb.mul(x=x, y=np.float32(2)), y=offset, name="y"), layout, layout).save(
        str(tmp_path / "m.mlpackage"))
    color = LAYOUTS[layout] == 3
    image = pixels((H, W, 3) if color else (H, W), 3)
    bias = np.array([1, 2, 3] if layout == "RGB" else [3, 2, 1]) if color else 4  # biases go with the program's planes
    want = 2 * (image * .5 + bias) - 20
    given = image if layout != "GRAYSCALE_FLOAT16" else image.astype(np.float16)
    with Model(tmp_path / "m.mlpackage", threads=1) as model:
        got = model.predict({"x": given})["y"]
    if layout == "GRAYSCALE_FLOAT16":
        assert got.dtype == np.float16
        np.testing.assert_array_equal(got, want.astype(np.float16))
        return
    expected = np.clip(np.rint(want), 0, 255).astype(np.uint8)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, expected)
    write_png(tmp_path / "x.png", image)
    done = pome_predict(pome, tmp_path / "m.mlpackage", "--input", f"x={tmp_path / 'x.png'}", "--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(read_png(tmp_path / "out" / "y.png"), expected)


def test_command_with_files(classifier, tmp_path, pome):
    image = pixels((H, W, 3), 5)
    wide = image.astype(np.uint16) * 257
    write_png(tmp_path / "rgb.png", image)
    write_png(tmp_path / "rgba.png", np.dstack([image, pixels((H, W), 6)]))
    write_png(tmp_path / "deep.png", wide)
    want = probabilities(image)
    label = ["red", "green", "blue"][int(want.argmax())]
    for name in ("rgb", "rgba", "deep"):
        done = pome_predict(pome, classifier / "strings.mlpackage", "--input", f"x={tmp_path / name}.png", "--json")
        outputs = {o["name"]: o for o in json.loads(done.stdout)["outputs"]}
        assert outputs["classLabel"]["label"] == label
        got = outputs["classLabel_probs"]["probabilities"]
        np.testing.assert_allclose([got[k] for k in ("red", "green", "blue")], want, rtol=1e-5)
    done = pome_predict(pome, classifier / "strings.mlpackage", "--input", f"x={tmp_path / 'rgb.png'}")
    lines = done.stdout.splitlines()
    assert lines[0] == f"classLabel  {label}" and lines[2] == f"  {want.max():.6f}  {label}"
    done = pome_predict(pome, classifier / "ids.mlpackage", "--input", f"x={tmp_path / 'rgb.png'}", "--output", tmp_path / "o.npz")
    stored = np.load(tmp_path / "o.npz")
    assert stored["classLabel"] == want.argmax()
    np.testing.assert_allclose(stored["classLabel_probs"], want, rtol=1e-5)
    (tmp_path / "no.png").write_bytes((tmp_path / "rgb.png").read_bytes()[:60])
    (tmp_path / "text.jpg").write_text("hello")
    for name, text in (("no.png", "no.png: "), ("text.jpg", "neither a PNG nor a JPEG")):
        done = pome_predict(pome, classifier / "ids.mlpackage", "--input", f"x={tmp_path / name}")
        assert done.returncode == 1 and text in done.stderr


def test_jpeg(classifier, tmp_path, pome):
    library = ctypes.util.find_library("turbojpeg")
    if not library:
        pytest.skip("no libturbojpeg")
    jpeg = ctypes.CDLL(library)
    jpeg.tjInitCompress.restype = jpeg.tjInitDecompress.restype = ctypes.c_void_p
    image, out, size = pixels((H, W, 3), 8), ctypes.c_void_p(), ctypes.c_ulong()
    source = image.ctypes.data_as(ctypes.c_void_p)
    assert jpeg.tjCompress2(ctypes.c_void_p(jpeg.tjInitCompress()), source, W, 0, H, 0, ctypes.byref(out),
                            ctypes.byref(size), 0, 95, 0) == 0
    (tmp_path / "x.jpg").write_bytes(ctypes.string_at(out, size.value))
    seen = np.zeros_like(image)
    assert jpeg.tjDecompress2(ctypes.c_void_p(jpeg.tjInitDecompress()), out, size, seen.ctypes.data_as(ctypes.c_void_p), W, 0, H,
                              0, 4096) == 0
    done = pome_predict(pome, classifier / "strings.mlpackage", "--input", f"x={tmp_path / 'x.jpg'}", "--json")
    got = json.loads(done.stdout)["outputs"][1]["probabilities"]
    np.testing.assert_allclose([got[k] for k in ("red", "green", "blue")], probabilities(seen), rtol=1e-5)
