"""SAM 2.1 Hiera-tiny: an image to the three feature maps that the mask decoder takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.conversion.recipe import ModelFacts, Plan, Recipe, Request

if TYPE_CHECKING:
    import torch
    from transformers import Sam2Model

_REWRITES = (
    "constants-baked",
    "qkv-split",
    "views-rank4",
    "attention-rank4",
    "layer-norm-prescaled",
    "interpolate-matmul",
    "channels-last",
)
_SIZES = {"full": 1024, "half": 512, "quarter": 256}


def _plan(request: Request) -> Plan:
    from assay.conversion.sam2.weights import load

    model = load(request.checkpoint, request.seed, _SIZES[request.variant])
    return encoder_plan(model, request.variant, example=request.checkpoint is None)


def encoder_plan(model: Sam2Model, variant: str, *, example: bool = False) -> Plan:
    """The plan for a model that is there already.

    Args:
        model: In evaluation mode; its configuration gives the sizes.
        variant: For the name.
        example: True if its weights are random.
    """
    import torch

    encoder: Any = model.prompt_encoder
    size = int(encoder.input_image_size)
    return Plan(
        module=_encoder(model),
        inputs={"pixel_values": torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))},
        outputs=("image_embeddings", "feat_s1", "feat_s0"),
        rewrites=_REWRITES,
        facts=ModelFacts(
            family="sam2",
            id=f"sam2.1-hiera-tiny-image-encoder__{variant}",
            license="apache-2.0",
            source_url="https://huggingface.co/facebook/sam2.1-hiera-tiny",
            task="image-feature-extraction",
        ),
        pitfalls=["Run once per image; the mask decoder then takes the three feature maps for every tap."],
        example=example,
    )


def _encoder(model: Sam2Model) -> torch.nn.Module:
    import torch

    class Encoder(torch.nn.Module):
        """transformers' vision encoder, with the decoder's projections that need no prompt done once."""

        def __init__(self) -> None:
            super().__init__()
            self.vision = model.vision_encoder
            self.project_s0, self.project_s1 = model.mask_decoder.conv_s0, model.mask_decoder.conv_s1
            self.no_memory = model.no_memory_embedding

        def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            high, middle, low = self.vision(pixel_values).fpn_hidden_states
            return low + self.no_memory.reshape(1, -1, 1, 1), self.project_s1(middle), self.project_s0(high)

    return Encoder().eval()


RECIPE = Recipe(
    name="sam2.1-hiera-tiny-image-encoder",
    summary="SAM 2.1 Hiera-tiny image encoder: an image to the three feature maps of the mask decoder",
    variants={"full": "1024 x 1024 images", "half": "512 x 512 images", "quarter": "256 x 256 images"},
    options={},
    plan=_plan,
)
