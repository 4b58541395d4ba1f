"""Every version of every operator on random parameter sets, against NumPy, SciPy and PyTorch in double precision: float32 at
1e-4 and relative 1e-5, elementwise operators in fp16 within one unit in the last place; in exact and in fp16 numerics."""
import logging
import pathlib
import re

import numpy as np
import pytest

logging.disable(logging.WARNING)
pytest.importorskip("coremltools")
pytest.importorskip("torch")

import oracle_coded  # noqa: E402, F401
import oracle_control  # noqa: E402, F401
import oracle_draw  # noqa: E402
import oracle_elementwise  # noqa: E402, F401
import oracle_images  # noqa: E402, F401
import oracle_indexing  # noqa: E402, F401
import oracle_layers  # noqa: E402, F401
import oracle_shapes  # noqa: E402, F401
from oracle_program import MIL, Program, complaint, feeds, immediate, value_type  # noqa: E402
from pome_api import Model, PomeError  # noqa: E402

VERSIONS = oracle_draw.versions()


def draw(op, version):
    """[(opset, number, Case)], and the types that were drawn: {(parameter, type)}"""
    row, opsets = VERSIONS[op, version]
    cases, seen = [], set()
    for number in range(oracle_draw.SETS):
        d = oracle_draw.Draw(op, row, opsets[0] if number % 3 else opsets[-1], number)
        cases.append((d.opset, number, oracle_draw.GENERATORS[op](d)))
        seen |= d.seen
    return cases, seen


def run(path, opset, cases):
    """Complaints about the cases, all in one program."""
    program = Program(opset)
    for number, case in cases:
        program.add(case, number)
    program.write(path)
    given = {}
    for number, case in cases:
        given.update(feeds(case, number, program.boundary))
    found = []
    for numerics in ("exact", "fp16"):
        with Model(path, numerics=numerics, threads=1) as model:
            got = model.predict(given)
        for number, case in cases:
            outputs = [got[f"out{number}_{i}"] for i in range(len(case.seen))]
            text = complaint(case, outputs)
            if text:
                found.append(f"{numerics}, opset {opset}, set {number}: {case}: {text}")
    return found


def check(tmp_path, cases):
    found = []
    for opset in sorted({opset for opset, _, _ in cases}):
        mine = [(number, case) for o, number, case in cases if o == opset]
        try:
            found += run(tmp_path / f"all{opset}.mlpackage", opset, mine)
        except PomeError:  # which one is it?
            for number, case in mine:
                try:
                    found += run(tmp_path / f"one{opset}-{number}.mlpackage", opset, [(number, case)])
                except PomeError as error:
                    found.append(f"opset {opset}, set {number}: {case}: {error}")
    assert not found, f"{len(found)} complaints:\n" + "\n".join(found[:12])


@pytest.mark.parametrize("op,version", [key for key in VERSIONS if key[0] in oracle_draw.GENERATORS], ids=lambda v: str(v))
def test_values(op, version, tmp_path):
    cases, seen = draw(op, version)
    assert len(cases) >= 50 and len({str(case) for _, _, case in cases}) > 20
    params = VERSIONS[op, version][0]["params"]
    wanted = {(name, oracle_draw.NUMPY.get(kind, kind)) for name in {name for name, _ in seen} for kind in params[name]["dtypes"]}
    assert not wanted - seen, "types that were never drawn"
    check(tmp_path, cases)


# Operators of the engine's table that have no generator, and what speaks for them.
ELSEWHERE = {
    "const": "every program here has constants; the readers' tests have one of every type",
    "classify": "test_classify",
    "write_state": "the generator of read_state",
    "custom_layer": "test_custom_layer_is_refused",
    **{name: "made by passes alone, no file holds it: tests/ops, and networks with and without fusions" for name in (
        "pome_grouped_attention", "pome_conv", "pome_rms_norm", "pome_add_rms_norm", "pome_rotary", "pome_gated", "pome_transposed",
        "pome_linears", "pome_gated_linear")},
}


def test_no_operator_is_left_out():
    """Of the engine's own table (a check keeps it equal to coremltools' definitions)."""
    text = (pathlib.Path(__file__).resolve().parent.parent.parent / "src" / "mil" / "ops.def").read_text()
    known = set(re.findall(r"^OP\((\w+),", text, re.M))
    assert len(known) > 170 and set(oracle_draw.GENERATORS) | set(ELSEWHERE) == known
    assert not set(oracle_draw.GENERATORS) & set(ELSEWHERE)
    assert {op for op, _ in VERSIONS} - set(oracle_draw.GENERATORS) == {"classify"}


def classifier(program, values, labels):
    """classify at the end: the label, and the probabilities by label."""
    classes = MIL.Value()
    is_text = isinstance(labels[0], str)
    code = MIL.STRING if is_text else MIL.INT64
    classes.type.listType.type.tensorType.dataType = code
    classes.type.listType.length.constant.size = len(labels)
    for label in labels:
        one = classes.immediateValue.list.values.add()
        one.type.tensorType.dataType = code
        (one.immediateValue.tensor.strings if is_text else one.immediateValue.tensor.longInts).values.append(label)
    label, chances = MIL.ValueType(), MIL.ValueType()
    label.tensorType.dataType = code
    chances.dictionaryType.keyType.tensorType.dataType = code
    chances.dictionaryType.valueType.tensorType.dataType = MIL.FLOAT64
    program.operation("classify", {"probabilities": values, "classes": classes}, [("label", label), ("chances", chances)])
    program.block.outputs.extend(["label", "chances"])
    description = program.model.description
    for name in ("label", "chances"):
        description.output.add(name=name)
    getattr(description.output[0].type, "stringType" if is_text else "int64Type").SetInParent()
    getattr(description.output[1].type.dictionaryType, "stringKeyType" if is_text else "int64KeyType").SetInParent()
    description.predictedFeatureName, description.predictedProbabilitiesName = "label", "chances"


def test_classify(tmp_path):
    for number in range(oracle_draw.SETS):
        rng = np.random.default_rng(number)
        n = (1, 2, 1000)[number] if number < 3 else int(rng.integers(1, 9))
        x = rng.uniform(0, 1, [(n,), (1, n), (1, n, 1, 1)][number % 3]).astype(np.float32)
        labels = [f"class {i}" for i in range(n)] if number % 2 else [int(i) for i in rng.permutation(n) * 3 - 5]
        program = Program((15, 17, 18, 26)[number % 4])
        classifier(program, program.enter("x", x), labels)
        program.write(tmp_path / f"{number}.mlpackage")
        with Model(tmp_path / f"{number}.mlpackage", threads=1) as model:
            got = model.predict({"x": x})
        label = got["label"] if number % 2 else int(got["label"].reshape(()))
        assert label == labels[int(x.argmax())]
        np.testing.assert_allclose(got["chances"].ravel(), x.ravel(), rtol=1e-6)


def test_custom_layer_is_refused(tmp_path):
    program = Program(16)
    inner = program.enter("x", np.zeros(3, np.float32))
    program.operation("custom_layer", {"x": inner}, [("y", value_type("float32", (3,)))], {"class_name": immediate("Mine")})
    program.block.outputs.append("y")
    program.model.description.output.add(name="y").type.multiArrayType.dataType = 65568
    program.write(tmp_path / "m.mlpackage")
    with pytest.raises(PomeError, match=r"UNSUPPORTED.* y \(custom_layer\) is of the class Mine"):
        Model(tmp_path / "m.mlpackage")
