"""The prompt encoder on the host: points and boxes to the decoder's sparse prompt, in NumPy.

The formula is SAM's: coordinates, shifted to pixel centres and scaled to [-1, 1], times a Gaussian matrix, times
2 pi; the sine and cosine of that are the position's embedding, to which a learned one for its kind is added
(Tancik et al., "Fourier features let networks learn high frequency functions in low dimensional domains", 2020).
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError

if TYPE_CHECKING:
    from transformers import Sam2Model

Floats = NDArray[np.float32]

_LARGEST_FILE = 1 << 20
PADDING = -1
"""Label of a point that is none: the encoder ends points with one where no box is given."""


@dataclass(frozen=True)
class PromptEncoder:
    """The few constants of the prompt encoder, about 7 KB.

    Attributes:
        gaussian: `[2, C/2]`, the random Fourier matrix.
        points: `[4, C]`, added for labels 0 (background), 1 (foreground), 2 and 3 (corners of a box).
        not_a_point: `[C]`, in place of the position for label -1.
        image_size: Side in pixels of the square image that coordinates refer to.
    """

    gaussian: Floats
    points: Floats
    not_a_point: Floats
    image_size: int

    @classmethod
    def from_model(cls, model: Sam2Model) -> PromptEncoder:
        """The constants of a transformers model."""
        encoder: Any = model.prompt_encoder
        arrays = (
            encoder.shared_embedding.positional_embedding,
            encoder.point_embed.weight,
            encoder.not_a_point_embed.weight[0],
        )
        gaussian, points, not_a_point = (tensor.detach().float().numpy().copy() for tensor in arrays)
        return cls(gaussian, points, not_a_point, int(encoder.input_image_size))

    def to_bytes(self) -> bytes:
        """As a `.npz`; the same bytes for the same constants."""
        file = io.BytesIO()
        np.savez(
            file,
            gaussian=self.gaussian,
            points=self.points,
            not_a_point=self.not_a_point,
            image_size=np.array(self.image_size),
        )
        return file.getvalue()

    @classmethod
    def read(cls, path: Path) -> PromptEncoder:
        """The constants that `to_bytes` wrote to a file.

        Raises:
            AssayError: The file is missing or is not such a file.
        """
        if not path.is_file():
            raise AssayError(
                f"{path} is missing: it holds the prompt encoder",
                fix="`assay convert sam2.1-hiera-tiny-mask-decoder` writes it beside the decoder",
            )
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise ValueError("larger than 1 MiB")
            with np.load(path, allow_pickle=False) as file:
                gaussian, points, not_a_point = (
                    np.asarray(file[name], np.float32) for name in ("gaussian", "points", "not_a_point")
                )
                size = int(file["image_size"])
            width = 2 * gaussian.shape[1]
            if gaussian.shape[0] != 2 or points.shape != (4, width) or not_a_point.shape != (width,):
                raise ValueError("shapes do not fit together")
        except (ValueError, KeyError, IndexError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise AssayError(f"{path} is not a prompt encoder: {error}") from error
        return cls(gaussian, points, not_a_point, size)

    def encode(self, points: Floats, labels: NDArray[np.integer[Any]], box: Floats | None = None) -> Floats:
        """The sparse prompt.

        Args:
            points: `[N, 2]`, x and y in pixels of the square image.
            labels: `[N]`: 1 foreground, 0 background, 2 and 3 corners of a box, -1 none.
            box: `[4]`, x1, y1, x2, y2 in the same pixels, or None.

        Returns:
            `[1, tokens, C]` float32: N + 1 tokens for points, 3 for a box, N + 3 for both, N and box as in
            transformers' Sam2PromptEncoder.
        """
        if box is None:
            points = np.concatenate([points, np.zeros((1, 2), np.float32)])
            labels = np.concatenate([labels, [PADDING]])
        else:
            points = np.concatenate([points, box.reshape(2, 2), np.zeros((1, 2), np.float32)])
            labels = np.concatenate([labels, [2, 3, PADDING]])
        tokens = self._position(points.astype(np.float32))
        tokens[labels == PADDING] = self.not_a_point
        known = labels >= 0
        tokens[known] += self.points[labels[known]]
        return tokens[None]

    def _position(self, points: Floats) -> Floats:
        unit = (points + np.float32(0.5)) / np.float32(self.image_size)
        angles = np.float32(2 * np.pi) * ((2 * unit - 1) @ self.gaussian)
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32)
