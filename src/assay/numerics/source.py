"""What the model should have computed, from where it came: to tell a bad conversion from a bad lane.

Lanes are compared with a CPU lane that runs the same file, so a conversion that went wrong is wrong on all of
them alike. Only the source shows it: the PyTorch module, the ONNX file, or outputs that were saved from it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.distribution import install
from assay.errors import AssayError
from assay.numerics.user_inputs import InputSet, read_arrays

if TYPE_CHECKING:
    from assay.graph import Signature


def source_outputs(source: str, signature: Signature, sets: Sequence[InputSet]) -> list[list[NDArray[Any]]]:
    """The source's outputs for each set of inputs, in the signature's order.

    Args:
        source: One of: a `.npz` with the outputs, named like them or `0`, `1`, ... by position, after the
            set's name and a slash where there are several sets (`photo.png/masks`); an `.onnx` file, run with
            onnxruntime; `module.py:function` or `package.module:function`, which is imported and called
            without arguments and returns a callable that takes the inputs by position as torch tensors, such as a
            PyTorch module. Importing runs that code: give only your own.
        signature: The signature to run; inputs and outputs are matched by name where the source has names for
            all, else by position.
        sets: The inputs.

    Raises:
        AssayError: The source cannot be loaded or run, needs a package that is missing, or its outputs do not
            have the model's shapes.
    """
    if source.endswith(".npz"):
        results = _from_npz(Path(source), signature, sets)
    elif source.endswith(".onnx"):
        results = _from_onnx(Path(source), signature, sets)
    elif ":" in source:
        results = _from_torch(source, sets)
    else:
        raise AssayError(
            f"--source {source!r} is not understood", fix="give outputs.npz, model.onnx or module.py:function"
        )
    return [_checked(source, signature, outputs) for outputs in results]


def _checked(source: str, signature: Signature, outputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    if len(outputs) != len(signature.outputs):
        raise AssayError(f"{source} gives {len(outputs)} outputs, the model has {len(signature.outputs)}")
    checked: list[NDArray[Any]] = []
    for entry, output in zip(signature.outputs, outputs, strict=True):
        expected = entry.tensor.shape_signature or entry.tensor.shape
        fits = len(expected) == output.ndim and all(
            size in (-1, given) for size, given in zip(expected, output.shape, strict=True)
        )
        unknown_rank = not expected and not entry.tensor.has_rank
        if not fits and not unknown_rank:
            raise AssayError(
                f"{source} gives output {entry.name!r} the shape {list(output.shape)}, "
                f"the model has {list(expected)}",
                fix="bring it into the model's layout and order in the source",
            )
        checked.append(output)
    return checked


def _from_npz(path: Path, signature: Signature, sets: Sequence[InputSet]) -> list[list[NDArray[Any]]]:
    arrays = read_arrays(path)
    results: list[list[NDArray[Any]]] = []
    for one in sets:
        prefix = f"{one.name}/"
        own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        if not own and len(sets) == 1:
            own = arrays
        outputs: list[NDArray[Any]] = []
        for position, entry in enumerate(signature.outputs):
            found = own.get(entry.name, own.get(str(position)))
            if found is None:
                key = entry.name if len(sets) == 1 else prefix + entry.name
                raise AssayError(
                    f"{path} has no array {key!r}", fix=f"it has {', '.join(sorted(arrays)) or 'none'}"
                )
            outputs.append(found)
        results.append(outputs)
    return results


def _from_onnx(path: Path, signature: Signature, sets: Sequence[InputSet]) -> list[list[NDArray[Any]]]:
    if not path.is_file():
        raise AssayError(f"{path} does not exist", fix="check the path")
    try:
        import onnxruntime  # type: ignore[import-not-found]
    except ImportError as error:
        raise AssayError("an ONNX source needs onnxruntime", fix="pip install onnxruntime") from error
    try:
        session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        inputs, outputs = [i.name for i in session.get_inputs()], [o.name for o in session.get_outputs()]
        order = _order([entry.name for entry in signature.inputs], inputs)
        taken = _order(outputs, [entry.name for entry in signature.outputs])
        results: list[list[NDArray[Any]]] = []
        for one in sets:
            if len(inputs) != len(one.arrays):
                raise AssayError(f"{path} takes {len(inputs)} inputs, the model {len(one.arrays)}")
            given = {name: one.arrays[position] for name, position in zip(inputs, order, strict=True)}
            values = session.run(None, given)
            results.append([np.asarray(values[i]) for i in taken])
        return results
    except AssayError:
        raise
    except Exception as error:  # onnxruntime has no exception type of its own for a bad model or input.
        raise AssayError(f"{path} cannot be run: {error}") from error


def _order(available: list[str], wanted: list[str]) -> list[int]:
    """Positions in `available` of the wanted names; where the names are others, by number, else by position.

    TensorFlow's exporters call the outputs `StatefulPartitionedCall:0`, `:1`, ..., numbered by the names that
    the other file has, and list them in any order.
    """
    if set(wanted) <= set(available):
        return [available.index(name) for name in wanted]
    numbers = [name.rpartition(":")[2] for name in available]
    if sorted(numbers) == sorted(map(str, range(len(wanted)))):
        by_name = sorted(range(len(wanted)), key=lambda position: wanted[position])
        return [numbers.index(str(by_name.index(position))) for position in range(len(wanted))]
    return list(range(len(wanted)))


def _from_torch(source: str, sets: Sequence[InputSet]) -> list[list[NDArray[Any]]]:
    try:
        import torch
    except ImportError as error:
        raise AssayError("a PyTorch source needs torch", fix=install("convert")) from error
    function = _load_function(source)
    try:
        model: Any = function()
    except Exception as error:  # The user's own code: whatever it raises is its answer.
        raise AssayError(f"{source} cannot be called: {error!r}") from error
    if isinstance(model, torch.nn.Module):
        model = model.eval()
    results: list[list[NDArray[Any]]] = []
    with torch.inference_mode():
        for one in sets:
            try:
                value = model(*[torch.from_numpy(np.array(array)) for array in one.arrays])
            except Exception as error:  # The user's own code: whatever it raises is its answer.
                raise AssayError(f"{source} cannot be run on the set {one.name!r}: {error}") from error
            results.append([_to_array(source, tensor) for tensor in _flat(value)])
    return results


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _flat(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]


def _to_array(source: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    except (TypeError, ValueError) as error:
        raise AssayError(f"{source} returned something that is no tensor: {error}") from error


def _load_function(source: str) -> Any:
    where, _, name = source.rpartition(":")
    try:
        if where.endswith(".py"):
            path = Path(where)
            if not path.is_file():
                raise AssayError(f"{path} does not exist")
            spec = importlib.util.spec_from_file_location(f"assay_source_{path.stem}", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(where)
        return getattr(module, name)
    except AssayError:
        raise
    except AttributeError as error:
        raise AssayError(f"{where} has no function {name!r}") from error
    except Exception as error:  # The user's own code: whatever it raises is its answer.
        raise AssayError(f"{where} cannot be imported: {error}") from error
