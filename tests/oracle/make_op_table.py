#!/usr/bin/env python3
"""Writes tests/unit/data/op_table.json: every operator of coremltools' core set as each opset has it.

    python3 tests/oracle/make_op_table.py > tests/unit/data/op_table.json

Needs coremltools 9 (which files operators of the first opset under iOS 13). A row is operator, opset and, per parameter, its kind (tensor, tuple, list, state, any), whether
it is optional and constant, and the dtypes it takes. Only opsets that define an operator anew have a row.
"""
import json

import coremltools as ct
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

OPSETS = {ct.target.iOS13: 15, ct.target.iOS14: 15, ct.target.iOS15: 15, ct.target.iOS16: 16, ct.target.iOS17: 17, ct.target.iOS18: 18}
KINDS = {"TensorInputType": "tensor", "TupleInputType": "tuple", "ListInputType": "list", "StateInputType": "state",
         "ListOrTensorOrDictInputType": "any"}
NOT_SERIALIZED = {"const", "_const_symbolic"}


def parameter(cls, value):
    letter = getattr(value, "type_domain_id", None)
    domain = cls.type_domains[letter] if letter else getattr(value, "type_domain", ())
    dtypes = sorted(types.builtin_to_string(t) for t in domain)
    return {"kind": KINDS[type(value).__name__], "optional": value.optional, "const": value.const, "dtypes": dtypes}


rows = []
for name, variants in sorted(SSAOpRegistry.core_ops.items()):
    if name in NOT_SERIALIZED:
        continue
    seen = set()
    for target, cls in sorted(variants.items(), key=lambda kv: OPSETS[kv[0]]):
        if cls in seen:
            continue
        seen.add(cls)
        spec = cls.input_spec.input_types
        rows.append({"op": name, "opset": OPSETS[target],
                     "params": {k: parameter(cls, v) for k, v in spec.items() if type(v).__name__ in KINDS}})
print("[")
print(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows))
print("]")
