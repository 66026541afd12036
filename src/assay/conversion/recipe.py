"""What a recipe is: where the model comes from, how it is wrapped, what is rewritten, and how it is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Samples = Callable[[int], Mapping[str, torch.Tensor]]
    Check = Callable[[Mapping[str, NDArray[Any]], Mapping[str, NDArray[Any]]], Mapping[str, float]]


@dataclass(frozen=True)
class ModelFacts:
    """What a card says about the model itself.

    Attributes:
        family: For example `sam2`.
        id: The model's name; records and cards are filed under it.
        license: SPDX-like, in lower case, or None.
        source_url: Where the original is published, or None.
        task: For example `mask-generation`, or None.
    """

    family: str
    id: str
    license: str | None = None
    source_url: str | None = None
    task: str | None = None


@dataclass
class Plan:
    """One conversion, ready to be carried out.

    Attributes:
        module: The source model in evaluation mode; takes the inputs by position, gives a tensor or a tuple.
        inputs: Example inputs by name, in order; their shapes and dtypes become the model's.
        outputs: Names of the outputs, in order.
        rewrites: Names of rewrites to apply.
        facts: For the card.
        samples: `samples(seed)` gives inputs for verification; None draws from the example's distribution.
        scores: Further figures of agreement, from the reference's and the model's outputs; each must reach the
            floor of the same name in `floors`.
        floors: Lowest value allowed for each score, by precision.
        pitfalls: What a user of the model must know.
        sidecars: Files to write beside the model: suffix (`.prompt.npz`) to bytes.
        example: True if the weights are random, so that nothing measured with them is of a real model.
    """

    module: torch.nn.Module
    inputs: Mapping[str, torch.Tensor]
    outputs: Sequence[str]
    rewrites: Sequence[str]
    facts: ModelFacts
    samples: Samples | None = None
    scores: Check | None = None
    floors: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    pitfalls: Sequence[str] = ()
    sidecars: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    example: bool = False


@dataclass(frozen=True)
class Request:
    """What the user asked for, as a recipe sees it.

    Attributes:
        checkpoint: The file or folder with the weights, or None.
        seed: The seed of random weights, or None.
        variant: One of the recipe's variants.
        options: `--set` options, with their defaults filled in.
    """

    checkpoint: Path | None
    seed: int | None
    variant: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """A conversion by name.

    Attributes:
        name: Its name on the command line.
        summary: One line.
        variants: Variant to one line about it; the first is the default.
        options: `--set` option to its default and one line about it.
        plan: Builds the plan; imports PyTorch.
    """

    name: str
    summary: str
    variants: Mapping[str, str]
    options: Mapping[str, tuple[str, str]]
    plan: Callable[[Request], Plan]

    def request(
        self, checkpoint: Path | None, seed: int | None, variant: str | None, options: Mapping[str, str]
    ) -> Request:
        """The request, checked against what the recipe knows.

        Raises:
            AssayError: Neither or both of checkpoint and seed; an unknown variant or option.
        """
        if (checkpoint is None) == (seed is None):
            what = "no weights are given" if checkpoint is None else "weights are given twice"
            raise AssayError(what, fix="give either --checkpoint FILE_OR_FOLDER or --random-weights SEED")
        chosen = next(iter(self.variants)) if variant is None else variant
        if chosen not in self.variants:
            raise AssayError(
                f"{self.name} has no variant {chosen!r}", fix=f"choose from: {', '.join(self.variants)}"
            )
        for option in options:
            if option not in self.options:
                known = ", ".join(self.options) or "it has none"
                raise AssayError(f"{self.name} has no option {option!r}", fix=f"options: {known}")
        defaults = {name: default for name, (default, _) in self.options.items()}
        return Request(checkpoint, seed, chosen, {**defaults, **options})
