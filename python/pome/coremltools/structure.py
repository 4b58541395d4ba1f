"""A program's functions, blocks and operators as coremltools' compute_plan module describes them, read from the description that
compiled folders of this package keep."""
from __future__ import annotations

import os
from typing import Any

from . import native

# Arithmetic per element of the result, by the size of what is summed; everything else counts its results.
_SUMMING = {"linear": "weight", "conv": "weight", "conv_transpose": "weight", "matmul": "y", "einsum": "values"}


def _read_spec(path: str) -> Any:
    from coremltools.proto import Model_pb2

    path = os.path.expanduser(path)
    file = os.path.join(path, native.DESCRIPTION if path.rstrip("/").endswith(".mlmodelc") else native.MODEL_FILE)
    if not os.path.exists(file):
        raise RuntimeError(f"{path}: the structure is known of packages, and of folders that compile_model made here")
    spec = Model_pb2.Model()
    with open(file, "rb") as source:
        spec.ParseFromString(source.read())
    return spec


def _elements(value_type: Any) -> int:
    count = 1
    for dimension in value_type.tensorType.dimensions:
        count *= max(1, dimension.constant.size)
    return count


class _Reader:
    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.total = 0.0

    def named(self, value: Any) -> Any:
        from coremltools.models import compute_plan as plan

        self.sizes[value.name] = _elements(value.type)
        return plan.MLModelStructureProgramNamedValueType(value.name, plan.MLModelStructureProgramValueType())

    def argument(self, argument: Any) -> Any:
        from coremltools.models import compute_plan as plan

        bindings = []
        for binding in argument.arguments:
            is_name = binding.WhichOneof("binding") == "name"
            bindings.append(
                plan.MLModelStructureProgramBinding(
                    binding.name if is_name else None, None if is_name else plan.MLModelStructureProgramValue()
                )
            )
        return plan.MLModelStructureProgramArgument(bindings)

    def cost(self, operation: Any) -> float:
        results = float(sum(_elements(output.type) for output in operation.outputs))
        if operation.type == "const" or operation.type.startswith("constexpr_"):
            return 0.0
        argument = operation.inputs.get(_SUMMING.get(operation.type, ""))
        if argument is not None and argument.arguments:
            results *= max(1.0, self.sizes.get(argument.arguments[-1].name, 1) ** 0.5)
        return results

    def operation(self, operation: Any) -> Any:
        from coremltools.models import compute_plan as plan

        inputs = {name: self.argument(operation.inputs[name]) for name in operation.inputs}
        cost = self.cost(operation)
        self.total += cost
        blocks = [self.block(block) for block in operation.blocks]
        return plan.MLModelStructureProgramOperation(
            inputs,
            operation.type,
            [self.named(output) for output in operation.outputs],
            blocks,
            native._MLModelStructureProgramOperationProxy(cost),
        )

    def block(self, block: Any) -> Any:
        from coremltools.models import compute_plan as plan

        inputs = [self.named(value) for value in block.inputs]
        return plan.MLModelStructureProgramBlock(inputs, [self.operation(o) for o in block.operations], list(block.outputs))

    def function(self, function: Any) -> Any:
        from coremltools.models import compute_plan as plan

        inputs = [self.named(value) for value in function.inputs]
        return plan.MLModelStructureProgramFunction(inputs, self.block(function.block_specializations[function.opset]))


def read(path: str) -> tuple[Any, float]:
    """The structure, and the cost of all its operators together."""
    from coremltools.models import compute_plan as plan

    spec = _read_spec(path)
    if spec.WhichOneof("Type") != "mlProgram":
        raise RuntimeError(f"{path}: a model of kind {spec.WhichOneof('Type')}, not an ML Program")
    reader = _Reader()
    functions = {name: reader.function(function) for name, function in sorted(spec.mlProgram.functions.items())}
    return plan.MLModelStructure(None, plan.MLModelStructureProgram(functions), None), reader.total
