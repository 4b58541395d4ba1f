"""MobileNetV2 and ResNet-18 at 224 pixels (random weights, fp32): one prediction by pome and by onnxruntime's CPU provider, in
turns within one process, so that both meet the same machine. Needs the library of build/release (or POME_LIBRARY)."""
import argparse
import csv
import logging
import os
import pathlib
import statistics
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))
os.environ.setdefault("POME_LIBRARY", str(ROOT / "build" / "release" / "libpome.so"))
logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
os.environ.setdefault("TQDM_DISABLE", "1")

import coremltools as ct  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402

import networks  # noqa: E402
from pome_api import Model  # noqa: E402


def convert(network, x, folder):
    traced = torch.jit.trace(network, x)
    ct.convert(traced, inputs=[ct.TensorType(name="x", shape=x.shape)], outputs=[ct.TensorType(name="y")],
               minimum_deployment_target=ct.target.iOS17, compute_precision=ct.precision.FLOAT32,
               skip_model_load=True).save(str(folder / "m.mlpackage"))
    torch.onnx.export(network, (x,), str(folder / "m.onnx"), input_names=["x"], output_names=["y"], dynamo=False)


def measure(name, folder, threads, rounds):
    torch.manual_seed(0)
    x = torch.randn(1, 3, 224, 224)
    network = getattr(networks, name)()
    with torch.no_grad():
        want = network(x).numpy()
        convert(network, x, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(folder / "m.onnx"), options, providers=["CPUExecutionProvider"])
    feed, times = {"x": x.numpy()}, {"pome": [], "onnxruntime": []}
    with Model(folder / "m.mlpackage", threads=threads) as model, model.predictor() as run:
        engines = {"pome": lambda: run(feed)["y"], "onnxruntime": lambda: session.run(None, feed)[0]}
        errors = {engine: float(np.abs(predict() - want).max()) for engine, predict in engines.items()}
        for i in range(rounds):
            for engine in sorted(engines, reverse=bool(i % 2)):
                time.sleep(0.05)  # onnxruntime's threads go on spinning for a while and would take the next one's core
                begin = time.perf_counter()
                engines[engine]()
                times[engine].append(time.perf_counter() - begin)
    rows = []
    for engine, seconds in times.items():
        rows.append({"network": name, "engine": engine, "threads": threads, "rounds": rounds,
                     "median_ms": round(1e3 * statistics.median(seconds), 2), "best_ms": round(1e3 * min(seconds), 2),
                     "max_error": errors[engine], "largest": float(np.abs(want).max())})
        print("{network:10} {engine:12} median {median_ms:8.2f} ms  best {best_ms:8.2f} ms  max error {max_error:.2g}".format(**rows[-1]))
    ratio = statistics.median(b / a for a, b in zip(times["pome"], times["onnxruntime"]))
    print(f"{name:10} speed of pome to onnxruntime's, median of rounds: {ratio:.2f}")
    return [{**row, "median_speed_ratio": round(ratio, 3)} for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--csv", help="write the table here")
    parser.add_argument("--keep", type=pathlib.Path, help="leave the converted networks in this folder, each in one of its own")
    args = parser.parse_args()
    rows = []
    for name in ("mobilenet", "resnet"):
        with tempfile.TemporaryDirectory() as folder:
            folder = args.keep / name if args.keep else pathlib.Path(folder)
            folder.mkdir(parents=True, exist_ok=True)
            rows += measure(name, folder, args.threads, args.rounds)
    if args.csv:
        with open(args.csv, "w", newline="") as f:
            writer = csv.DictWriter(f, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
