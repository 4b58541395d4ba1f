"""Every version of every operator on random parameter sets, against NumPy, SciPy and PyTorch in double precision: float32 at
1e-4 and relative 1e-5, elementwise operators in fp16 within one unit in the last place; in exact and in fp16 numerics."""
import logging

import pytest

logging.disable(logging.WARNING)
pytest.importorskip("coremltools")
pytest.importorskip("torch")

import oracle_draw  # noqa: E402
import oracle_elementwise  # noqa: E402, F401
import oracle_indexing  # noqa: E402, F401
import oracle_shapes  # noqa: E402, F401
from oracle_program import Program, complaint, feeds  # noqa: E402
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
            outputs = [got[f"out{number}_{i}"] for i in range(len(case.outs)) if f"out{number}_{i}" in got]
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
    assert len(cases) >= 50
    check(tmp_path, cases)
