"""Recipes: conversions by name. A recipe is a short module that holds one `Recipe`."""

from assay.conversion.recipe import Recipe
from assay.conversion.recipes import sam2_image_encoder, sam2_mask_decoder

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for recipe in (sam2_mask_decoder.RECIPE, sam2_image_encoder.RECIPE)
}
