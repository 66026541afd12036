"""The user's own inputs: a `.npz` or `.npy` file, an image, or a folder of them.

A broken graph can pass on noise and fail on a photo, so real inputs are the best test there is. Files are only
read as arrays or pixels: nothing in them is executed, and their size is bounded.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.distribution import install
from assay.errors import AssayError
from assay.numerics.inputs import MAX_INPUT_BYTES, numpy_dtype

if TYPE_CHECKING:
    from assay.graph import Signature, Tensor

IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".webp"})
ARRAY_SUFFIXES = frozenset({".npy", ".npz"})

MAX_SETS = 32
"""Files of a folder that are used, the first by name."""

MAX_PIXELS = 100_000_000


@dataclass(frozen=True)
class InputSet:
    """One set of inputs.

    Attributes:
        name: What the set is called in verdicts and records: a seeded kind, or the file's name.
        arrays: One array for each input, by position.
    """

    name: str
    arrays: list[NDArray[Any]]


def load_inputs(
    path: Path,
    signature: Signature,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    image_range: tuple[float, float] = (0.0, 1.0),
) -> list[InputSet]:
    """Load the user's inputs for a signature.

    Args:
        path: A `.npz` (arrays named like the inputs, or `0`, `1`, ... by position), a `.npy` or an image for
            a model with one input, or a folder of such files, each of which is a set.
        signature: The signature to run.
        shapes: Input name -> shape, from `assay.numerics.inputs.resolve_shapes`.
        image_range: What black and white become in a float input; quantized inputs get the same real values,
            plain uint8 ones the pixels as they are.

    Returns:
        At least one set; of a folder, the first `MAX_SETS` files by name.

    Raises:
        AssayError: A file that is missing, unreadable, too large, or does not fit the signature.
    """
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.suffix.lower() in IMAGE_SUFFIXES | ARRAY_SUFFIXES)
        if not files:
            raise AssayError(f"{path} holds no inputs", fix="put .npz, .npy or image files into it")
        return [
            one
            for file in files[:MAX_SETS]
            for one in load_inputs(file, signature, shapes, image_range=image_range)
        ]
    if not path.is_file():
        raise AssayError(f"{path} does not exist", fix="--inputs takes a .npz, .npy or image file, or a folder")
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return [InputSet(path.name, [_image(path, signature, shapes, image_range)])]
    if suffix not in ARRAY_SUFFIXES:
        known = ", ".join(sorted(IMAGE_SUFFIXES | ARRAY_SUFFIXES))
        raise AssayError(f"{path} is not a kind of file that holds inputs", fix=f"known are {known}, and folders")
    return [InputSet(path.name, _matched(path, read_arrays(path), signature, shapes))]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a `.npz` or `.npy` file by name; a `.npy` file's one is named `0`.

    Raises:
        AssayError: The file is no such file, holds Python objects, or is larger than 4 GiB unpacked.
    """
    try:
        if path.suffix.lower() == ".npy":
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if mapped.nbytes > MAX_INPUT_BYTES:
                raise AssayError(f"{path} holds more than 4 GiB")
            return {"0": np.array(mapped)}
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_INPUT_BYTES:
                raise AssayError(f"{path} holds more than 4 GiB")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except AssayError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise AssayError(f"{path} cannot be read as arrays: {error}", fix="write it with numpy.savez") from error


def _matched(
    path: Path, arrays: dict[str, NDArray[Any]], signature: Signature, shapes: Mapping[str, tuple[int, ...]]
) -> list[NDArray[Any]]:
    names = [entry.name for entry in signature.inputs]
    if len(names) == 1 and len(arrays) == 1:
        arrays = {names[0]: next(iter(arrays.values()))}
    elif set(arrays) == {str(i) for i in range(len(names))}:
        arrays = {name: arrays[str(i)] for i, name in enumerate(names)}
    missing = [name for name in names if name not in arrays]
    if missing:
        raise AssayError(
            f"{path} has no array for the input {missing[0]!r}: it has {', '.join(sorted(arrays)) or 'none'}",
            fix=f"name the arrays like the inputs: {', '.join(names)}",
        )
    return [
        _fitted(path, entry.name, entry.tensor, arrays[entry.name], shapes[entry.name])
        for entry in signature.inputs
    ]


def _fitted(path: Path, name: str, tensor: Tensor, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array in the input's dtype, if nothing is lost that a model could see."""
    dtype = numpy_dtype(name, tensor.dtype)
    if array.shape != shape:
        given, wanted = "x".join(map(str, array.shape)) or "(scalar)", "x".join(map(str, shape))
        raise AssayError(
            f"{path}: the array for {name!r} has shape {given}, the model takes {wanted}",
            fix=f"reshape it; for a dynamic input, --shape {name}={','.join(map(str, array.shape))}",
        )
    if array.dtype == dtype:
        return np.ascontiguousarray(array)
    same_kind = array.dtype.kind == dtype.kind or (array.dtype.kind in "iu" and dtype.kind in "iu")
    widened = array.dtype.kind in "biu" and dtype.kind == "f"
    if not (same_kind or widened):
        raise AssayError(f"{path}: the array for {name!r} is {array.dtype}, the model takes {dtype}")
    if dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise AssayError(f"{path}: values of {name!r} do not fit into {dtype}")
    return np.ascontiguousarray(array.astype(dtype))


def _image(
    path: Path, signature: Signature, shapes: Mapping[str, tuple[int, ...]], image_range: tuple[float, float]
) -> NDArray[Any]:
    if len(signature.inputs) != 1:
        raise AssayError(
            f"{path} is an image, and the model has {len(signature.inputs)} inputs",
            fix="give all inputs in one .npz file",
        )
    entry = signature.inputs[0]
    shape = shapes[entry.name]
    layout = _layout(shape)
    if layout is None:
        raise AssayError(
            f"{path} is an image, and input {entry.name!r} has shape {'x'.join(map(str, shape))}",
            fix="images go into inputs of shape 1xHxWxC or 1xCxHxW with C 1, 3 or 4; give a .npz file",
        )
    height, width, channels = layout
    pixels = _pixels(path, height, width, channels)
    if shape[-1] != channels or shape[1:] != (height, width, channels):
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(_valued(pixels, entry.name, entry.tensor, image_range).reshape(shape))


def _layout(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Height, width and channels of an image input; channels last is preferred where both would do."""
    if len(shape) != 4 or shape[0] != 1:
        return None
    if shape[3] in (1, 3, 4):
        return shape[1], shape[2], shape[3]
    if shape[1] in (1, 3, 4):
        return shape[2], shape[3], shape[1]
    return None


def _pixels(path: Path, height: int, width: int, channels: int) -> NDArray[np.uint8]:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise AssayError("images need pillow", fix=install("images")) from error
    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise AssayError(f"{path} has more than {MAX_PIXELS:,} pixels")
            upright = ImageOps.exif_transpose(image)
            coloured = upright.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
            resized = coloured.resize((width, height), Image.Resampling.BILINEAR)
            return np.asarray(resized, dtype=np.uint8).reshape(height, width, channels)
    except AssayError:
        raise
    except Exception as error:  # Pillow's decoders raise what they like on a broken file.
        raise AssayError(f"{path} cannot be read as an image: {error}") from error


def _valued(
    pixels: NDArray[np.uint8], name: str, tensor: Tensor, image_range: tuple[float, float]
) -> NDArray[Any]:
    dtype = numpy_dtype(name, tensor.dtype)
    low, high = image_range
    if dtype == np.uint8 and tensor.quantization is None:
        return pixels
    real = low + pixels.astype(np.float64) * ((high - low) / 255.0)
    if dtype.kind == "f":
        return real.astype(dtype)
    if dtype.kind in "iu" and tensor.quantization is not None and len(tensor.quantization.scales):
        zero = int(tensor.quantization.zero_points[0]) if len(tensor.quantization.zero_points) else 0
        limits = np.iinfo(dtype)
        steps = np.rint(real / float(tensor.quantization.scales[0])) + zero
        return np.clip(steps, limits.min, limits.max).astype(dtype)
    if dtype.kind in "iu":
        return pixels.astype(dtype)
    raise AssayError(f"an image cannot be given to input {name!r} of type {tensor.dtype}")
