"""What a recipe is: where the model comes from, how it is wrapped, what is rewritten, and how it is checked."""

from __future__ import annotations

import importlib.util
import inspect
import sys
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


def find(name: str) -> Recipe:
    """The recipe of that name, or the user's own function where the name is `file.py:function`.

    Raises:
        AssayError: There is no such recipe, file or function.
    """
    from assay.conversion.recipes import RECIPES

    if name in RECIPES:
        return RECIPES[name]
    if ".py:" in name or name.endswith(".py"):
        return _users_own(name)
    raise AssayError(
        f"no recipe is called {name!r}",
        fix=f"choose from: {', '.join(RECIPES)}; or name a function of yours as file.py:function",
    )


def _users_own(name: str) -> Recipe:
    """A recipe round a function of the user's; the file is run, as the user asked by naming it."""
    text, _, function_name = name.partition(".py:")
    path = Path(f"{text}.py")
    if not function_name:
        raise AssayError(f"{name} names no function", fix=f"write {path}:function")
    if not path.is_file():
        raise AssayError(f"{path} does not exist", fix="name a Python file and a function: file.py:function")

    def plan(request: Request) -> Plan:
        function = _load(path, function_name)
        accepted = inspect.signature(function).parameters
        offered: dict[str, Any] = {"checkpoint": request.checkpoint, "seed": request.seed}
        made = function(**{key: value for key, value in offered.items() if key in accepted})
        return made if isinstance(made, Plan) else _simple_plan(made, name, function_name, request)

    return Recipe(name=name, summary="a function of the user's", variants={"default": ""}, options={}, plan=plan)


def _load(path: Path, function_name: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(f"assay_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The file may import its neighbours, as it could when run by itself.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except Exception as error:
        raise AssayError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise AssayError(f"{path} has no function {function_name!r}")
    return function


def _simple_plan(made: Any, name: str, function_name: str, request: Request) -> Plan:
    import torch

    shape = "a Plan, or (module, example inputs), the inputs as a tuple of tensors or a dict of them"
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], torch.nn.Module):
        raise AssayError(f"{name} gave {type(made).__name__}", fix=f"let it return {shape}")
    module, inputs = made
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, Mapping):
        inputs = {f"input_{index}": tensor for index, tensor in enumerate(inputs)}
    if not inputs or not all(isinstance(tensor, torch.Tensor) for tensor in inputs.values()):
        raise AssayError(f"{name} gave inputs that are no tensors", fix=f"let it return {shape}")
    with torch.no_grad():
        result = module.eval()(*inputs.values())
    count = 1 if isinstance(result, torch.Tensor) else len(result)
    return Plan(
        module=module,
        inputs=inputs,
        outputs=[f"output_{index}" for index in range(count)],
        rewrites=(),
        facts=ModelFacts(family=function_name, id=function_name.replace("_", "-")),
        example=request.seed is not None,
    )
