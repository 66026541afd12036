"""Rewrites: exact changes to an exported PyTorch graph that keep it on an accelerator.

Each is a function of its own, `rewrite(graph) -> int`, which changes the graph in place and says how often it
found something to change. `apply` runs them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from assay.errors import AssayError

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True)
class Rewrite:
    """One rewrite of an exported graph.

    Attributes:
        name: Its name on the command line and in lint findings.
        summary: What it does, in one line.
        error: `exact` where it only moves or bakes numbers, else what it may change.
        module: The module under `assay.conversion.rewrites` that holds the function.
        auto: False where it is there to be measured, never to be applied by `--auto`.
    """

    name: str
    summary: str
    error: str
    module: str
    auto: bool = True

    def function(self) -> Callable[[fx.GraphModule], int]:
        """The rewrite itself; imports PyTorch."""
        return getattr(import_module(f"{__name__}.{self.module}"), self.name.replace("-", "_"))


_ROUNDING = "exact up to the order of summation"

#: In the order in which they are applied.
REWRITES: dict[str, Rewrite] = {
    rewrite.name: rewrite
    for rewrite in (
        Rewrite(
            "constants-baked",
            "bake what depends on weights alone (positional embeddings, dense prompt)",
            "exact",
            "constants",
        ),
        Rewrite("slice-early", "take static slices before the work, or from the weights", "exact", "slicing"),
        Rewrite("unit-axes-dropped", "leave out axes of size 1 that push a tensor over rank 4", "exact", "views"),
        Rewrite("qkv-split", "cut a fused QKV projection into three", "exact", "views"),
        Rewrite(
            "views-rank4",
            "window partition and other transposes over rank 4 as transposes of rank 4",
            "exact",
            "views",
        ),
        Rewrite(
            "attention-rank4", "attention and matrix products keep the batch axis (rank 4)", _ROUNDING, "attention"
        ),
        Rewrite(
            "attention-rank3",
            "attention without the batch axis (rank 3): the known-bad twin",
            _ROUNDING,
            "attention",
            auto=False,
        ),
        Rewrite(
            "conv-transpose-zero-stuffed",
            "ConvTranspose2d as a Conv2d over zero-stuffed input",
            _ROUNDING,
            "conv_transpose",
        ),
        Rewrite(
            "conv-transpose-subpixel",
            "ConvTranspose2d with kernel = stride as a projection and a transpose (less work, for CPUs)",
            _ROUNDING,
            "conv_transpose",
            auto=False,
        ),
        Rewrite(
            "layer-norm-prescaled",
            "LayerNorm scaled by a power of two before squaring (safe in fp16)",
            _ROUNDING,
            "layer_norm",
        ),
        Rewrite("mean-cascade", "a mean over several axes as one mean after the other", _ROUNDING, "reductions"),
        Rewrite(
            "interpolate-matmul",
            "bicubic and other resizes as products with constant matrices",
            _ROUNDING,
            "interpolation",
        ),
        Rewrite("channels-last", "merge pixels after a transpose and split them before it", "exact", "layout"),
    )
}


_EXCLUSIVE = (
    {"attention-rank3", "attention-rank4"},
    {"conv-transpose-subpixel", "conv-transpose-zero-stuffed"},
)


def apply(graph: fx.GraphModule, names: Sequence[str]) -> dict[str, int]:
    """Apply rewrites by name, in the registry's order whatever the order given.

    Args:
        graph: From `export`; changed in place.
        names: Names of rewrites.

    Returns:
        For each name, how many places it changed.

    Raises:
        AssayError: A name is unknown, or two of them exclude each other.
    """
    unknown = sorted(set(names) - set(REWRITES))
    if unknown:
        raise AssayError(f"no rewrite is called {unknown[0]!r}", fix=f"choose from: {', '.join(REWRITES)}")
    for pair in _EXCLUSIVE:
        if pair <= set(names):
            raise AssayError(f"{' and '.join(sorted(pair))} exclude each other", fix="name one of them")
    return {name: rewrite.function()(graph) for name, rewrite in REWRITES.items() if name in names}
