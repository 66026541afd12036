"""Images in and masks out, pixel for pixel as transformers' Sam2ImageProcessor does it, in NumPy."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.distribution import need
from assay.errors import AssayError
from assay.records.files import write_atomic

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

#: ImageNet's mean and standard deviation, red, green, blue, in units of the full range.
_MEAN = np.array([0.485, 0.456, 0.406], np.float32) * np.float32(255)
_STD = np.array([0.229, 0.224, 0.225], np.float32) * np.float32(255)
_MOST_PIXELS = 100_000_000


def read_image(path: Path) -> Pixels:
    """An image file as `[height, width, 3]` RGB.

    Raises:
        AssayError: The file is missing, no image, or over 100 megapixels.
    """
    need("PIL", extra="images")
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise AssayError(f"{path} has {image.width} x {image.height} pixels", fix="100 megapixels at most")
            return np.asarray(image.convert("RGB"))
    except FileNotFoundError as error:
        raise AssayError(f"{path} does not exist", fix="name an image file") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise AssayError(f"{path} cannot be read as an image: {error}") from error


def preprocess(image: Pixels, size: int) -> Floats:
    """The image encoder's input.

    Args:
        image: `[height, width, 3]` uint8 RGB.
        size: Side of the square that the image is stretched to.

    Returns:
        `[1, 3, size, size]` float32, normalized.
    """
    square = resize(image, size, size).astype(np.float32)
    return np.ascontiguousarray(((square - _MEAN) / _STD).transpose(2, 0, 1)[None], np.float32)


def resize(image: Pixels, height: int, width: int) -> Pixels:
    """Bilinear resizing of 8-bit pixels, bit for bit as PyTorch's `antialias=True`, which smooths when it shrinks.

    PyTorch works on each axis in turn, width first, with weights as 16-bit integers of the highest precision that
    the largest one allows, and rounds to 8 bits after each axis. Pillow's own filter has more bits, and its pixels
    differ by 1 here and there.
    """
    narrowed = _resize_rows(image, width)
    return np.ascontiguousarray(_resize_rows(narrowed.transpose(1, 0, 2), height).transpose(1, 0, 2))


def _resize_rows(image: Pixels, width: int) -> Pixels:
    size = image.shape[1]
    if size == width:
        return image
    first, weights, bits = _integer_weights(size, width)
    total = np.full((image.shape[0], width, image.shape[2]), 1 << (bits - 1), np.int32)
    for tap in range(weights.shape[1]):
        column = np.minimum(first + tap, size - 1)
        total += image[:, column].astype(np.int32) * weights[None, :, tap, None]
    return np.clip(total >> bits, 0, 255).astype(np.uint8)


def _integer_weights(size: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
    """For each output pixel: the first input pixel, the weights from there on, and the bits after their point."""
    scale = size / width
    support = max(scale, 1.0)
    centre = scale * (np.arange(width) + 0.5)
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    count = np.minimum((centre + support + 0.5).astype(np.int64), size) - first
    taps = np.arange(math.ceil(support) * 2 + 1)[None]
    weights = np.maximum(1 - np.abs((taps + first[:, None] - centre[:, None] + 0.5) / support), 0)
    weights[taps >= count[:, None]] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    bits = 0
    while bits < 22 and int(0.5 + weights.max() * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    return first, (weights * (1 << bits) + 0.5).astype(np.int32), bits


def upscale_logits(logits: Floats, height: int, width: int) -> Floats:
    """Mask logits at the image's own size, bilinear, pixel corners aligned to nothing (PyTorch's default).

    Args:
        logits: `[..., h, w]` float32.
        height: Rows of the result.
        width: Columns of the result.

    Returns:
        `[..., height, width]` float32.
    """
    rows = _linear_taps(logits.shape[-2], height)
    columns = _linear_taps(logits.shape[-1], width)
    (top, bottom, down), (left, right, across) = rows, columns
    upper, lower = logits[..., top, :], logits[..., bottom, :]
    down, one = down[:, None], np.float32(1)

    def along(line: Floats) -> Floats:
        return np.asarray((one - across) * line[..., left] + across * line[..., right], np.float32)

    return np.asarray((one - down) * along(upper) + down * along(lower), np.float32)


def _linear_taps(size: int, length: int) -> tuple[NDArray[Any], NDArray[Any], Floats]:
    scale = np.float32(size) / np.float32(length)
    position = np.maximum(scale * (np.arange(length, dtype=np.float32) + np.float32(0.5)) - np.float32(0.5), 0)
    low = position.astype(np.int64)
    return low, np.minimum(low + 1, size - 1), (position - low).astype(np.float32)


def overlay(
    image: Pixels,
    mask: NDArray[np.bool_],
    points: Sequence[tuple[float, float]],
    labels: Sequence[int],
    box: tuple[float, float, float, float] | None,
) -> Pixels:
    """The image with the mask tinted blue, foreground points green, background points red, the box yellow."""
    from PIL import Image, ImageDraw

    tinted = image.astype(np.float32)
    tinted[mask] = 0.5 * tinted[mask] + 0.5 * np.array([30, 110, 255], np.float32)
    picture = Image.fromarray(tinted.astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    radius = max(3, max(image.shape[:2]) // 120)
    for (x, y), label in zip(points, labels, strict=True):
        colour = (40, 220, 80) if label == 1 else (240, 50, 50)
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline=(255, 255, 255))
    if box is not None:
        # Pillow wants the corners in order; the model does not.
        corners = (min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3]))
        draw.rectangle(corners, outline=(255, 215, 0), width=max(2, radius // 2))
    return np.asarray(picture)


def write_result(
    out: Path,
    image: Pixels,
    masks: NDArray[np.bool_],
    best: int,
    points: Sequence[tuple[float, float]],
    labels: Sequence[int],
    box: tuple[float, float, float, float] | None,
) -> list[Path]:
    """Write the overlay of the best mask to `out`, and every mask beside it; the paths, the overlay first."""
    pictures = {out: overlay(image, masks[best], points, labels, box)}
    for index, mask in enumerate(masks):
        pictures[out.with_suffix(f".mask-{index + 1}.png")] = mask.astype(np.uint8) * 255
    for path, picture in pictures.items():
        write_atomic(path, _png(picture))
    return list(pictures)


def _png(picture: Pixels) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG")
    return file.getvalue()
