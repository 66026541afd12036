"""The CPU's answer to a case: shapes of the outputs, and the numbers to compare with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay.probe.cases import ON_CONSTANTS, Array, Case, Operand, build, file_of, storage, values

_NAMES = {"complex64": "complex64"}


@dataclass
class Reference:
    """What the runtime's own kernels make of a case.

    Attributes:
        shapes: Shapes of the outputs.
        dynamic: True if the shapes are known only after a run.
        outputs: Their values, or None where the kernel could not run.
        error: Why the kernel refused the case or its run, or None.
    """

    shapes: list[tuple[int, ...]]
    dynamic: bool
    outputs: list[Array] | None
    error: str | None
    second: Callable[[], list[Array] | None] = lambda: None

    def trusted(self, case: Case) -> list[Array] | None:
        """Values to compare with, or None where the CPU's kernel is known not to compute the op as the file "
        "says."""
        if case.options.get("fused_activation_function") in ("TANH", "SIGN_BIT"):
            return None
        return self.outputs

    def confirmed(self, case: Case, limit: float) -> bool:
        """Whether a second CPU implementation gives the same numbers."""
        other = self.second()
        return self.outputs is not None and other is not None and difference(self.outputs, other) <= limit


def inputs_of(case: Case, seed: int = 11) -> list[Array]:
    """Seeded values for the runtime inputs of a case, in the order of the model's inputs."""
    rng = np.random.default_rng(seed)
    given = [
        values(operand, rng)
        for operand in case.inputs
        if operand.constant is None and not operand.half and not operand.absent and operand.dtype != "resource"
    ]
    if not given and case.inputs and case.op in ON_CONSTANTS:
        given.append(values(Operand(case.inputs[0].shape), rng))
    return given


def resolve(
    model_bytes: bytes, inputs: list[Array], resolver: str = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
) -> Reference:
    """Load a model on the CPU and run it once.

    Args:
        model_bytes: The `.tflite` file.
        inputs: Values for its inputs, in order.
        resolver: Which of the runtime's kernels: plain ones by default; `BUILTIN` adds XNNPACK.

    Returns:
        The reference. `error` is set, and nothing else, where the kernel cannot prepare the case.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        interpreter = Interpreter(
            model_content=model_bytes,
            num_threads=1,
            experimental_op_resolver_type=OpResolverType[resolver],
        )
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        return Reference([], False, None, " ".join(str(error).split()))
    details: list[dict[str, Any]] = interpreter.get_output_details()
    shapes = [tuple(int(dim) for dim in detail["shape"]) for detail in details]
    try:
        for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        outputs = [np.array(interpreter.get_tensor(detail["index"])) for detail in details]
    except (RuntimeError, ValueError) as error:
        return Reference(shapes, False, None, " ".join(str(error).split()))
    found = [tuple(array.shape) for array in outputs]
    return Reference(found, found != shapes, outputs, None)


def complete(case: Case) -> tuple[Case, bytes | None, Reference]:
    """Fill in the shapes of a case's outputs with the help of the CPU kernel, and make its file.

    Returns:
        The case with shapes, its file (None if no kernel can prepare it), and the CPU's reference.
    """
    inputs = inputs_of(case)
    known = all(result.shape is not None for result in case.outputs)
    data = file_of(case)
    reference = resolve(data, inputs)
    if not reference.shapes and reference.error is not None:
        # A custom op that only delegates know has no plain kernel: its shapes are given with the case.
        return case, data if known and case.custom is not None else None, reference
    finished = case if known else case.with_shapes(reference.shapes)
    if finished is not case:
        data = file_of(finished)
    if weight_only(case):
        # The CPU quantizes the inputs of such ops on the way, an accelerator does not: what both mean is the op
        # on the weights' real values.
        plain = file_of(plain_weights(finished))
        reference = resolve(plain, inputs)
        reference.second = lambda: resolve(plain, inputs, "BUILTIN").outputs
    else:
        reference.second = lambda: resolve(data, inputs, "BUILTIN").outputs
    return finished, data, reference


def weight_only(case: Case) -> bool:
    """True for float ops with integer weights."""
    return (
        case.op in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL", "TRANSPOSE_CONV")
        and case.outputs[0].dtype == "float32"
        and any(operand.constant is not None and operand.quantization for operand in case.inputs)
    )


def plain_weights(case: Case) -> Case:
    """The same op with its integer weights as the real numbers that they stand for."""
    model = build(case)
    subgraph = model.subgraphs[0]
    node = subgraph.nodes[-1]
    operands: list[Operand] = []
    for operand, index in zip(case.inputs, node.inputs, strict=True):
        if index < 0 or operand.constant is None or not operand.quantization:
            fixed = operand.constant is not None and not operand.absent
            data = model.data(subgraph.tensors[index]).tolist() if fixed else operand.constant
            operands.append(replace(operand, constant=data))
            continue
        tensor = subgraph.tensors[index]
        assert tensor.quantization is not None
        shape = [1] * len(operand.shape)
        if len(tensor.quantization.scales) > 1:
            shape[operand.axis] = -1
        scales = np.asarray(tensor.quantization.scales, np.float32).reshape(shape)
        zeros = np.asarray(tensor.quantization.zero_points, np.float32).reshape(shape)
        real = (model.data(tensor).astype(np.float32) - zeros) * scales
        operands.append(Operand(operand.shape, "float32", constant=real.tolist()))
    options = {name: value for name, value in case.options.items() if name != "asymmetric_quantize_inputs"}
    return replace(case, inputs=tuple(operands), options=options)


def difference(reference: list[Array], outputs: list[Array]) -> float:
    """Largest absolute difference; infinite where one has NaN or infinity and the other does not."""
    largest = 0.0
    for expected, found in zip(reference, outputs, strict=True):
        a, b = expected.astype(np.float64), found.astype(np.float64).reshape(expected.shape)
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            gap = np.where(same, 0.0, np.abs(a - b))
        gap = np.where(np.isnan(gap), np.inf, gap)
        largest = max(largest, float(gap.max(initial=0.0)))
    return largest


def tolerance(case: Case, reference: list[Array]) -> float:
    """The largest difference that still counts as the same numbers, in the unit of the outputs.

    Quantized outputs may differ by 2 steps (rounding, once on each side), other integers and booleans by
    nothing, floats by 1e-2 of the output's largest value: far above rounding (1e-5) and, in fp16, above its
    noise on ops this small, far below what a wrong index or a wrong axis does.
    """
    if all(array.dtype.kind in "iu" for array in reference) and any(
        result.quantization for result in case.outputs
    ):
        return 2.0
    if all(array.dtype.kind in "iub" for array in reference):
        return 0.0
    peak = max(
        (
            float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
            for array in reference
            if array.dtype.kind == "f"
        ),
        default=0.0,
    )
    return 1e-2 * max(peak, 1e-3)


def spec_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of an output's values."""
    return np.dtype(_NAMES.get(name, storage(name)))
