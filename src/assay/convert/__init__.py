"""Recipes from PyTorch to .tflite, with the rewrites that keep a graph on the accelerator.

    from pathlib import Path
    from assay.convert import convert

    weights = Path("sam2.1_hiera_tiny.pt")
    made = convert("sam2.1-hiera-tiny-mask-decoder", Path("decoder.tflite"), checkpoint=weights)
    print(made.nodes, made.checks[0].scores)

PyTorch and the converter come with the `convert` extra and are imported only when something is converted.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.convert.pipeline import Conversion, convert
    from assay.convert.recipe import ModelFacts, Plan, Recipe, Request
    from assay.convert.sam2.segment import Segmenter
    from assay.convert.verify import ConversionDiffers

_HOMES = {
    "Conversion": "pipeline",
    "ConversionDiffers": "verify",
    "ModelFacts": "recipe",
    "Plan": "recipe",
    "Recipe": "recipe",
    "Request": "recipe",
    "Segmenter": "sam2.segment",
    "convert": "pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "Conversion",
    "ConversionDiffers",
    "ModelFacts",
    "Plan",
    "Recipe",
    "Request",
    "Segmenter",
    "convert",
]
