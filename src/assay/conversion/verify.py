"""Is the converted model the model it came from? Asked before a byte is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError
from assay.numerics.compare import Comparison, compare

if TYPE_CHECKING:
    import torch

    from assay.conversion.recipe import Plan

Array = NDArray[Any]

#: Seeds of the input sets that every conversion is verified on.
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be from PyTorch's.

    Attributes:
        absolute: Largest absolute difference, in units of the larger of 1 and the output's largest value.
        correlation: Lowest Pearson correlation.
    """

    absolute: float
    correlation: float


#: Why these: float32 differs by the order of summation only; a float16 weight has a relative error of up to
#: 2**-11, which adds up over some tens of layers; int8 weights and activations have 2**-8 of each channel's range.
TOLERANCES: dict[str, Tolerance] = {
    "fp32": Tolerance(absolute=1e-4, correlation=0.999999),
    "fp16": Tolerance(absolute=2e-2, correlation=0.9999),
    "int8": Tolerance(absolute=2e-1, correlation=0.99),
}


class ConversionDiffers(AssayError):
    """The converted model gives other numbers than PyTorch: nothing is written.

    Attributes:
        checks: All comparisons, those that failed among them.
    """

    def __init__(self, message: str, checks: Sequence[Checked]) -> None:
        super().__init__(message, fix="leave out a rewrite, or choose a higher precision")
        self.checks = list(checks)


@dataclass(frozen=True)
class Checked:
    """All outputs on one set of inputs.

    Attributes:
        seed: Seed of the inputs.
        outputs: Each output beside PyTorch's.
        scores: The recipe's own figures.
        failures: What is beyond its limit, in words.
    """

    seed: int
    outputs: Sequence[Comparison]
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    failures: Sequence[str] = ()


def verify(plan: Plan, model: bytes, precision: str, threads: int = 2) -> list[Checked]:
    """Run the source module and the converted model on several inputs, and compare every output.

    Args:
        plan: The module as it was before any rewrite, with its samples and floors.
        model: The converted `.tflite`.
        precision: `fp32`, `fp16` or `int8`; chooses the tolerance.
        threads: CPU threads for the converted model.

    Returns:
        One entry for each set of inputs.

    Raises:
        ConversionDiffers: An output or a score is beyond its limit.
        AssayError: The converted model does not run, or its inputs or outputs are not the plan's.
    """
    runner = _Runner(model, threads)
    runner.check_names(list(plan.inputs), list(plan.outputs))
    checks: list[Checked] = []
    for seed in SEEDS:
        inputs = dict(plan.samples(seed) if plan.samples else draw_like(plan.inputs, seed))
        reference = run_module(plan, inputs)
        outputs = runner.run({name: tensor.numpy() for name, tensor in inputs.items()})
        names = list(plan.outputs)
        compared = compare([reference[n] for n in names], [outputs[n] for n in names], names)
        scores = dict(plan.scores(reference, outputs)) if plan.scores else {}
        failures = [text for one in compared for text in _failures(one, TOLERANCES[precision])]
        failures += [
            f"{name} is {scores[name]:.6f}, below {floor}"
            for name, floor in plan.floors.get(precision, {}).items()
            if not scores[name] >= floor
        ]
        checks.append(Checked(seed, compared, scores, failures))
    if failed := [f"inputs {check.seed}: {text}" for check in checks for text in check.failures]:
        raise ConversionDiffers(f"the converted model differs from PyTorch: {'; '.join(failed[:4])}", checks)
    return checks


def run_module(plan: Plan, inputs: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """The source module's outputs by name."""
    import torch

    with torch.no_grad():
        result = plan.module(*inputs.values())
    tensors = (result,) if isinstance(result, torch.Tensor) else tuple(result)
    return {name: tensor.numpy() for name, tensor in zip(plan.outputs, tensors, strict=True)}


def draw_like(example: Mapping[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Inputs like the example: floats drawn from a normal of its mean and spread, others shuffled."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    drawn: dict[str, torch.Tensor] = {}
    for name, tensor in example.items():
        if tensor.dtype.is_floating_point:
            spread = tensor.float().std(correction=0).item() or 1.0
            noise = torch.randn(tensor.shape, generator=generator) * spread + tensor.float().mean()
            drawn[name] = noise.to(tensor.dtype)
        else:
            order = torch.randperm(tensor.numel(), generator=generator)
            drawn[name] = tensor.reshape(-1)[order].reshape(tensor.shape)
    return drawn


def _failures(one: Comparison, tolerance: Tolerance) -> list[str]:
    if one.problem:
        return [f"{one.name}: {one.problem}"]
    found: list[str] = []
    allowed = tolerance.absolute * max(1.0, one.reference_max_abs or 0.0)
    if one.nonfinite_mismatch:
        found.append(f"{one.name}: {one.nonfinite_mismatch} values are NaN or infinite on one side only")
    if one.max_abs_diff is None or not one.max_abs_diff <= allowed:
        found.append(f"{one.name}: max abs diff {one.max_abs_diff} is over {allowed:.3g}")
    # Correlation says nothing of a few numbers that are almost equal to each other.
    varies = (one.reference_std or 0.0) > 1e-3 * (one.reference_max_abs or 0.0) and one.elements >= 64
    if varies and not (one.correlation is not None and one.correlation >= tolerance.correlation):
        found.append(f"{one.name}: correlation {one.correlation} is under {tolerance.correlation}")
    return found


class _Runner:
    """The converted model on the CPU, from memory."""

    def __init__(self, model: bytes, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        try:
            self.interpreter: Any = Interpreter(model_content=model, num_threads=threads)
            self.interpreter.allocate_tensors()
            self.signature: Any = self.interpreter.get_signature_runner()
        except (RuntimeError, ValueError) as error:
            raise AssayError(f"the converted model does not load: {error}") from error

    def check_names(self, inputs: list[str], outputs: list[str]) -> None:
        found = (sorted(self.signature.get_input_details()), sorted(self.signature.get_output_details()))
        if found != (sorted(inputs), sorted(outputs)):
            raise AssayError(
                f"the converted model has inputs {found[0]} and outputs {found[1]}, not {inputs} and {outputs}",
                fix="an input that the module does not use is dropped: leave it out of the recipe",
            )

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {name: np.array(value) for name, value in self.signature(**inputs).items()}
