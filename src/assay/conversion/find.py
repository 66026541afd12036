"""Recipes by name: those that are here, and a function of the user's."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.conversion.recipe import ModelFacts, Plan, Recipe, Request
from assay.conversion.recipes import RECIPES
from assay.errors import AssayError


def find(name: str) -> Recipe:
    """The recipe of that name, or the user's own function where the name is `file.py:function`.

    Raises:
        AssayError: There is no such recipe, file or function.
    """
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
