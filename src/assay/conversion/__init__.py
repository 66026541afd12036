"""Recipes from PyTorch to .tflite, with the rewrites that keep a graph on the accelerator.

    import assay

    weights = "sam2.1_hiera_tiny.pt"
    made = assay.convert("sam2.1-hiera-tiny-mask-decoder", "decoder.tflite", checkpoint=weights)
    print(made.nodes, made.checks[0].scores)

PyTorch and the converter come with the `convert` extra and are imported only when something is converted.
"""

from typing import TYPE_CHECKING

from assay.lazy import lazy

if TYPE_CHECKING:
    from assay.conversion.pipeline import ConvertedModel, convert
    from assay.conversion.recipe import ModelFacts, Plan, Recipe, Request
    from assay.conversion.verify import ConversionDiffers
else:
    # Not for type checkers, which would take any misspelt name for one that loads later.
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "pipeline": ("ConvertedModel", "convert"),
            "recipe": ("ModelFacts", "Plan", "Recipe", "Request"),
            "verify": ("ConversionDiffers",),
        },
    )

__all__ = [
    "ConversionDiffers",
    "ConvertedModel",
    "ModelFacts",
    "Plan",
    "Recipe",
    "Request",
    "convert",
]
