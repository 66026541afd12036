"""The real runtime, as the judge of what is read and written."""

from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

Array = np.ndarray[Any, Any]


def load(model: bytes, *, xnnpack: bool = False, keep_inner: bool = False) -> Interpreter:
    """An interpreter that is ready to be given inputs; plain kernels unless XNNPACK is asked for."""
    resolver = OpResolverType.AUTO if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(
        model_content=model,
        experimental_op_resolver_type=resolver,
        experimental_preserve_all_tensors=keep_inner,
    )
    interpreter.allocate_tensors()
    return interpreter


def feed(interpreter: Interpreter, seed: int = 0) -> list[Array]:
    """Set seeded inputs, run, and give the outputs."""
    rng = np.random.default_rng(seed)
    inputs = [
        rng.random(d["shape"], np.float32)
        if d["dtype"] == np.float32
        else rng.integers(0, 4, d["shape"], d["dtype"])
        for d in interpreter.get_input_details()
    ]
    return run(interpreter, inputs)


def run(interpreter: Interpreter, inputs: list[Array]) -> list[Array]:
    """Run with these inputs, by position, and give the outputs."""
    for details, values in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], np.asarray(values, details["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]


def same(first: list[Array], second: list[Array]) -> bool:
    """Whether two lists of outputs are equal, bit for bit but for the sign of NaN."""
    return len(first) == len(second) and all(
        a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in zip(first, second, strict=True)
    )
