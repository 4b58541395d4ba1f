"""Every operator for which coremltools can compute a value: the value it infers from constant inputs is what the engine
must give for the same inputs at run time, and when it folds the same constants itself."""
import logging
import re
import warnings

import numpy as np
import pytest

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
writer = pytest.importorskip("mlpackage_writer", reason="needs coremltools")

from conftest import ROOT  # noqa: E402
from op_cases import CASES  # noqa: E402
from pome_api import Model, PomeError  # noqa: E402

TOLERANCE = {"float32": (2e-5, 2e-6), "float16": (4e-3, 2e-3)}  # fp16: coremltools rounds every step, exact mode the last
# Operators that docs/operators.md (which a check keeps current) says do not run: a program with one must be refused.
REFUSED = set(re.findall(r"^\| `(\w+)` .*\| - \|$", (ROOT / "docs" / "operators.md").read_text(), re.M))


@pytest.mark.parametrize("folded", [False, True], ids=["run", "folded"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_value_inference(case, folded, tmp_path):
    if case.skip:
        pytest.skip(case.skip)
    wanted = writer.evaluate(case.op, case.opset, case.inputs, case.consts)
    assert all(value is not None for value in wanted), "coremltools infers no value for this case"
    path = tmp_path / "one.mlpackage"
    writer.write_package(writer.build(case.op, case.opset, case.inputs, case.consts, folded), path, case.opset)
    if case.op in REFUSED:
        with pytest.raises(PomeError, match=f"UNSUPPORTED.*{case.op}"):
            Model(path)
        return
    with Model(path, threads=1) as model:
        got = model.predict({writer.UNUSED: np.zeros(1, np.float32)} if folded else writer.feeds(case.inputs))
    assert len(got) == len(wanted)
    for i, want in enumerate(wanted):
        value = got[f"out_{i}"]
        assert value.shape == (want.shape or (1,))
        value = value.reshape(want.shape)
        if want.dtype.kind == "f":
            assert value.dtype == want.dtype
            relative, absolute = case.tolerance or TOLERANCE[want.dtype.name]
            np.testing.assert_allclose(value, want, rtol=relative, atol=absolute, err_msg=f"output {i}")
        else:
            np.testing.assert_array_equal(value, want.astype(np.int32), err_msg=f"output {i}")
