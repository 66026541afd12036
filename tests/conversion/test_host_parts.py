"""The prompt encoder, and images in and masks out, against transformers and PyTorch."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.conversion.sam2.prompt import PromptEncoder
from assay.errors import AssayError
from assay.segment import images

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.convert

from torch.nn import functional as F  # noqa: E402


def pixels(height: int, width: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


# --- prompts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("points", "box"), [(1, False), (3, False), (0, True), (2, True)])
def test_prompts_are_transformers_own(points: int, box: bool, small_sam2: Any) -> None:
    random = np.random.default_rng(points)
    xy = random.uniform(0, 128, (points, 2)).astype(np.float32)
    labels = random.integers(0, 2, points)
    corners = random.uniform(0, 128, 4).astype(np.float32) if box else None
    with torch.no_grad():
        wanted, _ = small_sam2.prompt_encoder(
            input_points=torch.from_numpy(xy)[None, None] if points else None,
            input_labels=torch.from_numpy(labels)[None, None] if points else None,
            input_boxes=torch.from_numpy(corners)[None, None] if corners is not None else None,
            input_masks=None,
        )
    got = PromptEncoder.from_model(small_sam2).encode(xy, labels, corners)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted[:, 0].numpy(), rtol=0, atol=2e-5)


def test_prompt_encoder_file(small_sam2: Any, tmp_path: Path) -> None:
    encoder = PromptEncoder.from_model(small_sam2)
    assert encoder.to_bytes() == encoder.to_bytes()
    path = tmp_path / "model.prompt.npz"
    path.write_bytes(encoder.to_bytes())
    read = PromptEncoder.read(path)
    assert read.image_size == 128
    np.testing.assert_array_equal(read.points, encoder.points)


@pytest.mark.parametrize("content", [None, b"", b"junk", b"object", b"shapes"])
def test_bad_prompt_encoder_files_are_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "model.prompt.npz"
    if content == b"object":
        file = io.BytesIO()
        np.savez(file, gaussian=np.array([{}], dtype=object))
        content = file.getvalue()
    elif content == b"shapes":
        file = io.BytesIO()
        np.savez(file, gaussian=np.zeros((2, 4)), points=np.zeros((4, 3)), not_a_point=np.zeros(8), image_size=8)
        content = file.getvalue()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AssayError, match=r"prompt\.npz"):
        PromptEncoder.read(path)


# --- images ------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
# From 2 up: PyTorch's own kernel fails on images one pixel wide or high.
@given(st.integers(2, 90), st.integers(2, 90), st.integers(2, 70), st.integers(2, 70))
def test_resize_is_pytorchs_bit_for_bit(height: int, width: int, rows: int, columns: int) -> None:
    image = pixels(height, width, height * width)
    wanted = F.interpolate(
        torch.from_numpy(image).permute(2, 0, 1)[None].contiguous(),
        size=(rows, columns),
        mode="bilinear",
        antialias=True,
    )
    np.testing.assert_array_equal(images.resize(image, rows, columns), wanted[0].permute(1, 2, 0).numpy())


def test_preprocess_normalizes_as_the_processor_does() -> None:
    image = pixels(60, 90)
    got = images.preprocess(image, 128)
    mean = torch.tensor([0.485, 0.456, 0.406]) * 255
    std = torch.tensor([0.229, 0.224, 0.225]) * 255
    resized = torch.from_numpy(images.resize(image, 128, 128)).float()
    assert got.shape == (1, 3, 128, 128)
    np.testing.assert_array_equal(got[0], ((resized - mean) / std).permute(2, 0, 1).numpy())


def test_preprocess_is_the_image_processors_own() -> None:
    pytest.importorskip("torchvision")
    from PIL import Image
    from transformers import Sam2ImageProcessor

    image = pixels(300, 451)
    wanted = Sam2ImageProcessor()(Image.fromarray(image), return_tensors="np")["pixel_values"]
    np.testing.assert_array_equal(images.preprocess(image, 1024), wanted)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 70), st.integers(1, 70))
def test_upscaled_logits(height: int, width: int, rows: int, columns: int) -> None:
    logits = np.random.default_rng(height).standard_normal((3, height, width)).astype(np.float32)
    wanted = F.interpolate(torch.from_numpy(logits)[None], (rows, columns), mode="bilinear", align_corners=False)[
        0
    ]
    got = images.upscale_logits(logits, rows, columns)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted.numpy(), rtol=0, atol=2e-5)
    # Pixel for pixel, but for logits that are 0 within rounding.
    clear = np.abs(wanted.numpy()) > 2e-5
    np.testing.assert_array_equal((got > 0)[clear], (wanted.numpy() > 0)[clear])


def test_images_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    for name in ("text.png", "missing.png"):
        with pytest.raises(AssayError, match=name):
            images.read_image(tmp_path / name)


def test_overlay_and_masks(tmp_path: Path) -> None:
    from PIL import Image

    image = np.zeros((20, 30, 3), np.uint8)
    masks = np.zeros((3, 20, 30), bool)
    masks[1, :10] = True
    paths = images.write_result(tmp_path / "o.png", image, masks, 1, [(25.0, 15.0)], [1], (20.0, 18.0, 5.0, 12.0))
    assert [path.name for path in paths] == ["o.png", "o.mask-1.png", "o.mask-2.png", "o.mask-3.png"]
    drawn = np.asarray(Image.open(paths[0]))
    assert drawn[5, 5].tolist() == [15, 55, 127]
    assert drawn[15, 25].tolist() == [40, 220, 80]
    assert drawn[18, 10].tolist() == [255, 215, 0]
    assert (np.asarray(Image.open(paths[2])) == masks[1] * 255).all()
