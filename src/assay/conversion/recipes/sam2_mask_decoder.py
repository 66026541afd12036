"""SAM 2.1 Hiera-tiny: image features and a sparse prompt to three masks and their predicted IoU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.conversion.recipe import ModelFacts, Plan, Recipe, Request
from assay.errors import AssayError

if TYPE_CHECKING:
    import torch
    from transformers import Sam2Model

_REWRITES = (
    "constants-baked",
    "slice-early",
    "unit-axes-dropped",
    "layer-norm-prescaled",
    "channels-last",
)
_V1_PITFALL = (
    "The attention of this build has no batch axis (rank 3): it compiles, fully delegates and is right on desktop "
    "CPUs, and gives silently wrong masks on some phone GPUs. Kept as the known-bad twin of v2."
)
_HOST_PITFALL = (
    "The prompt encoder runs on the host: encode points with the .prompt.npz file beside the model "
    "(assay.conversion.sam2.prompt), and run the image encoder once per image."
)
_MASK_THRESHOLD = 0.0


def _plan(request: Request) -> Plan:
    from assay.conversion.sam2.weights import load

    try:
        tokens = int(request.options["tokens"])
    except ValueError as error:
        raise AssayError(f"tokens={request.options['tokens']} is no number") from error
    if not 2 <= tokens <= 64:
        raise AssayError(f"tokens={tokens} is not from 2 to 64", fix="N points need N + 1 tokens, a box 3")
    half = request.variant.endswith("-half")
    model = load(request.checkpoint, request.seed, 512 if half else 1024)
    return decoder_plan(model, request.variant, tokens, example=request.checkpoint is None)


def decoder_plan(model: Sam2Model, variant: str, tokens: int = 2, *, example: bool = False) -> Plan:
    """The plan for a model that is there already.

    Args:
        model: In evaluation mode; its configuration gives the sizes.
        variant: `v1`, `v2`, with `-half` for the name only.
        tokens: Tokens of the sparse prompt: 2 for one point.
        example: True if its weights are random.
    """
    import torch

    from assay.conversion.sam2.prompt import PromptEncoder

    prompt = PromptEncoder.from_model(model)
    side = int(model.prompt_encoder.image_embedding_size[0])
    width = int(model.mask_decoder.hidden_size)
    shapes = {
        "image_embeddings": (1, width, side, side),
        "sparse_prompt": (1, tokens, width),
        "feat_s1": (1, width // 4, 2 * side, 2 * side),
        "feat_s0": (1, width // 8, 4 * side, 4 * side),
    }

    def samples(seed: int) -> Mapping[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        random = np.random.default_rng(seed)
        points = random.uniform(0, prompt.image_size, (tokens - 1, 2)).astype(np.float32)
        labels = random.integers(0, 2, tokens - 1)
        return {**drawn, "sparse_prompt": torch.from_numpy(prompt.encode(points, labels))}

    upscale = "conv-transpose-subpixel" if variant.startswith("v2-cpu") else "conv-transpose-zero-stuffed"
    attention = "attention-rank3" if variant.startswith("v1") else "attention-rank4"
    return Plan(
        module=_decoder(model),
        inputs=samples(0),
        outputs=("masks", "iou"),
        rewrites=(*_REWRITES, attention, upscale),
        facts=ModelFacts(
            family="sam2",
            id=f"sam2.1-hiera-tiny-mask-decoder__{variant}",
            license="apache-2.0",
            source_url="https://huggingface.co/facebook/sam2.1-hiera-tiny",
            task="mask-generation",
        ),
        samples=samples,
        scores=mask_iou,
        # Random weights give masks that are all edge: one of them may lose more than real ones do.
        floors={
            "fp32": {"mask_iou": 0.9999, "lowest_mask_iou": 0.999},
            "fp16": {"mask_iou": 0.999, "lowest_mask_iou": 0.995},
            "int8": {"mask_iou": 0.95, "lowest_mask_iou": 0.9},
        },
        pitfalls=([_V1_PITFALL] if variant.startswith("v1") else []) + [_HOST_PITFALL],
        sidecars={".prompt.npz": prompt.to_bytes()},
        example=example,
    )


def mask_iou(reference: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Intersection over union of the masks, cut at logit 0: of all masks together, and the lowest of one mask."""
    first, second = (part["masks"] > _MASK_THRESHOLD for part in (reference, outputs))
    both = (first & second).sum(axis=(-2, -1))
    either = (first | second).sum(axis=(-2, -1))
    single = np.where(either == 0, 1.0, both / np.maximum(either, 1))
    return {
        "mask_iou": float(both.sum() / either.sum()) if either.any() else 1.0,
        "lowest_mask_iou": float(single.min()),
    }


def _decoder(model: Sam2Model) -> torch.nn.Module:
    import torch

    class Decoder(torch.nn.Module):
        """transformers' mask decoder for one prompt, always with the three multi-mask outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.sam = model

        def forward(
            self,
            image_embeddings: torch.Tensor,
            sparse_prompt: torch.Tensor,
            feat_s1: torch.Tensor,
            feat_s0: torch.Tensor,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            _, no_mask = self.sam.prompt_encoder(
                input_points=None, input_labels=None, input_boxes=None, input_masks=None
            )
            masks, iou, _, _ = self.sam.mask_decoder(
                image_embeddings=image_embeddings,
                image_positional_embeddings=self.sam.get_image_wide_positional_embeddings(),
                sparse_prompt_embeddings=sparse_prompt.unsqueeze(1),
                dense_prompt_embeddings=no_mask,
                # A static slice of the outputs; the other setting compares stabilities and gathers.
                multimask_output=True,
                high_resolution_features=[feat_s0, feat_s1],
            )
            return masks[:, 0], iou[:, 0]

    return Decoder().eval()


RECIPE = Recipe(
    name="sam2.1-hiera-tiny-mask-decoder",
    summary="SAM 2.1 Hiera-tiny mask decoder: image features and a prompt to 3 masks and their IoU",
    variants={
        "v2": "attention keeps the batch axis (rank 4)",
        "v1": "attention without the batch axis (rank 3): the known-bad twin",
        "v2-cpu": "v2 with sub-pixel upscaling: less work, for CPUs",
        "v2-half": "v2 for 512 x 512 images",
        "v1-half": "v1 for 512 x 512 images",
    },
    options={"tokens": ("2", "tokens of the sparse prompt: N + 1 for N points, 3 for a box, N + 3 for both")},
    plan=_plan,
)
