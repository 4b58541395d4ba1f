"""Seeds for fuzz_run: one model of every operator that coremltools' builder can make, all constants immediate.

    python tests/fuzz/make_run_corpus.py tests/fuzz/corpus/run
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

from coremltools.converters.mil.backend.mil import load as backend
import op_cases
from mlpackage_writer import build, write_package

MOST = 2500


def main(out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    backend.should_use_weight_file = lambda *a, **k: False
    done = {}
    for case in op_cases.CASES:
        key = (case.op, len(case.inputs) + len(case.consts))
        if done.get(key, 0) >= 1:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                write_package(build(case.op, case.opset, case.inputs, case.consts), pathlib.Path(folder) / "m", case.opset)
            except Exception as e:
                print(case.name, e)
                continue
            model = (pathlib.Path(folder) / "m/Data/com.apple.CoreML/model.mlmodel").read_bytes()
        if len(model) <= MOST:
            (out / case.name.replace("/", "_")).write_bytes(model)
            done[key] = done.get(key, 0) + 1
    print(len(list(out.iterdir())), "seeds")


if __name__ == "__main__":
    main(sys.argv[1])
