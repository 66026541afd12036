"""Findings: what the answers mean for the user, what to change, and what runs but may be wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from assay.linting.report import Finding, NodeReport
from assay.linting.traits import pattern

if TYPE_CHECKING:
    from assay.graph.outline import Outline

#: Elements that an fp16 sum of values around 1 can hold before it passes 65504, the largest fp16 number, with
#: headroom for values around 8.
_FP16_SUM = 8192
#: Squares that were scaled down sum up to at most so many times the variance.
_PRESCALED = 4


@dataclass(frozen=True)
class RewriteHint:
    """A change that makes a refused node acceptable.

    Attributes:
        name: Short name of the rule.
        applies: Whether a refused node is one of its kind: `(op, reason, signature text)`.
        hint: What to write instead, and why it is the same.
        rewrite: Name of the rewrite of `assay convert` that does it, if there is one.
    """

    name: str
    applies: Callable[[str, str, str], bool]
    hint: str
    rewrite: str | None = None


def _op(*ops: str) -> Callable[[str, str, str], bool]:
    return lambda op, reason, signature: op in ops


_REWRITES = (
    RewriteHint(
        "int64",
        lambda op, reason, signature: (
            "INT64" in reason or (" int64" in f" {signature}" and "int64" in reason.lower())
        ),
        "Keep index arithmetic in int32 (`tensor.to(torch.int32)`), or fold it into constants: indices and "
        "shapes that "
        "do not depend on the input can be buffers.",
    ),
    RewriteHint(
        "dynamic_shape",
        lambda op, reason, signature: "dynamic-sized" in reason,
        "Give every shape as a constant: export with fixed input sizes, and write reshape, slice and range "
        "with numbers "
        "instead of sizes read from tensors. One tensor of open size keeps the whole graph off the accelerator.",
    ),
    RewriteHint(
        "broadcast_to",
        _op("BROADCAST_TO", "BROADCAST_ARGS"),
        "Drop the `expand`: arithmetic ops broadcast by themselves. Where the full size is needed, multiply by a "
        "constant of ones that has it, or store the expanded constant as a buffer.",
        "constants-baked",
    ),
    RewriteHint(
        "fused_qkv",
        lambda op, reason, signature: op in ("SLICE", "STRIDED_SLICE", "UNPACK", "SPLIT") and "[5]" in signature,
        "Split a fused query-key-value projection into three linear layers: no rank-5 tensor is left to cut up.",
        "qkv-split",
    ),
    RewriteHint(
        "rank_over_4",
        lambda op, reason, signature: (
            "less than 5" in reason or "rank > 4" in reason or bool(re.search(r"\[[5-9]\]", signature))
        ),
        "Keep tensors at rank 4 or below: merge axes that stay together (batch and heads, windows and batch) "
        "before the "
        "op and split them after it, with RESHAPE and TRANSPOSE at rank 4. A rank-6 window partition is two "
        "rank-4 steps.",
        "views-rank4",
    ),
    RewriteHint(
        "gather_nd",
        _op("GATHER_ND", "SCATTER_ND"),
        "Where the indices are constants, use GATHER along one axis (`index_select`), slices and a "
        "concatenation, or "
        "for a resampling a matrix product with a constant 0/1 matrix; otherwise leave this step outside of "
        "the model.",
        "constants-baked",
    ),
    RewriteHint(
        "gather",
        _op("GATHER"),
        "The accelerator takes GATHER with one-dimensional int32 indices: flatten the indices, gather along "
        "one axis "
        "with `index_select`, and reshape the result.",
    ),
    RewriteHint(
        "strided_slice",
        _op("STRIDED_SLICE", "SLICE"),
        "Write slices with constant bounds that keep the rank: `x[:, 0:1]` and a reshape instead of `x[:, "
        "0]` (shrinking "
        "axes), no ellipsis or new axes, positive steps, rank 4 or below.",
        "slice-early",
    ),
    RewriteHint(
        "transposed_convolution",
        _op("TRANSPOSE_CONV"),
        "Versions above 3 have a fused activation: convert with the activation as an op of its own, or write the "
        "transposed convolution as zero-stuffing (nearest upsampling times a constant mask), PAD and CONV_2D "
        "with the "
        "flipped kernel, which gives the same numbers.",
        "conv-transpose-zero-stuffed",
    ),
    RewriteHint(
        "op_version",
        lambda op, reason, signature: "Max version supported" in reason,
        "The op's version is too new for this accelerator. Versions rise with features: drop the feature (fused "
        "activation, int4 or per-channel weights, 5-dimensional operands) or convert without it.",
    ),
    RewriteHint(
        "batch_collapsed_attention",
        lambda op, reason, signature: op == "BATCH_MATMUL",
        "Use matrix products of rank 4 at most, [batch, heads, rows, columns]; litert_torch's `bmm_4d` keeps "
        "attention "
        "there.",
        "attention-rank4",
    ),
    RewriteHint(
        "resize",
        _op("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
        "Resize by a constant factor as two matrix products with constant interpolation matrices.",
        "interpolate-matmul",
    ),
    RewriteHint(
        "softmax_beta",
        lambda op, reason, signature: "beta" in reason,
        "Multiply the input by beta, and use beta = 1.",
    ),
    RewriteHint("cast", _op("CAST"), "Avoid the cast: keep masks as float 0/1 and indices as constants."),
    RewriteHint(
        "densify",
        _op("DENSIFY"),
        "Store the weights dense (fold each DENSIFY and its DEQUANTIZE into a float16 or float32 constant): "
        "the file "
        "grows, the graph becomes whole, and the numbers stay the same.",
    ),
    RewriteHint(
        "densify",
        lambda op, reason, signature: "Densify" in reason,
        "Store the weights dense (fold each DENSIFY and its DEQUANTIZE into a float16 or float32 constant).",
    ),
    RewriteHint(
        "state",
        _op("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"),
        "Pass the state in and out as inputs and outputs instead of variables.",
    ),
    RewriteHint(
        "control_flow",
        _op("IF", "WHILE"),
        "Unroll the loop, compute both branches and select, or split the model here.",
    ),
    RewriteHint(
        "select",
        _op("SELECT", "SELECT_V2", "WHERE"),
        "Write the choice as arithmetic: `mask * a + (1 - mask) * b` with a float mask of 0 and 1.",
    ),
    RewriteHint(
        "pad",
        _op("PAD", "PADV2", "MIRROR_PAD"),
        "Pad a rank-3 or rank-4 tensor (reshape around it); mirror padding only by reflection, or as slices and a "
        "concatenation.",
    ),
)


def rewrite_for(op: str, reason: str | None, signature: str) -> RewriteHint | None:
    """The rewrite rule for a refused node, if there is one."""
    return next((rule for rule in _REWRITES if rule.applies(op, reason or "", signature)), None)


@dataclass(frozen=True)
class Risk:
    """A pattern that accelerators take and that was seen to give wrong numbers.

    Attributes:
        name: Short name of the rule.
        message: What is so.
        hint: What to do.
        evidence: Public source of the claim.
        rewrite: Name of the rewrite of `assay convert` that avoids it, if there is one.
    """

    name: str
    message: str
    hint: str
    evidence: tuple[str, ...]
    rewrite: str | None = None


_COLLAPSED = Risk(
    "batch_collapsed_sdpa",
    "attention with the batch axis collapsed (rank-3 BATCH_MATMUL, SOFTMAX, BATCH_MATMUL): phone GPUs have "
    "taken such a "
    "graph whole and returned wrong numbers without an error",
    "Keep attention at rank 4, [batch, heads, rows, columns] (litert_torch's `bmm_4d` does), and compare "
    "with the CPU on "
    "the device itself.",
    (
        "model card of huggingface.co/litert-community/SAM2.1-Hiera-Tiny-Mask-Decoder: correlation 0.265 "
        "with the CPU on a "
        "Pixel 8a GPU, 0.473 in fp32; 0.9998 once the batch axis was kept",
    ),
    "attention-rank4",
)
_BROADCAST_ADD = Risk(
    "broadcast_add_on_batch_matmul",
    "an ADD that broadcasts onto the result of a BATCH_MATMUL (an attention mask or bias): GPU runtimes "
    "before 2.1.6 "
    "computed it wrong without an error, and with operands of different ranks later ones do too",
    "Store the operand at the full size of the product, so that nothing broadcasts, or use runtime 2.1.6 or "
    "later and "
    "operands of equal rank; compare with the CPU on the device.",
    (
        "github.com/google-ai-edge/LiteRT/issues/8593: correlation 0.613 with the CPU on a Pixel 8a with "
        "2.1.3 and 2.1.5, "
        "1.000 with 2.1.6",
        "github.com/google-ai-edge/LiteRT/issues/8980: operands of mixed rank",
    ),
)
_ADD_OUTPUT = Risk(
    "add_output_and_consumed",
    "an ADD whose result is an output of the graph and is read by another node: GPU runtimes have returned "
    "one of its "
    "operands instead of the sum",
    "Return a copy: add a RESHAPE (or any other op) between the ADD and the output.",
    ("github.com/google-ai-edge/LiteRT/issues/8599: 2.1.3, 2.1.5 and 2.1.6 on a Pixel 8a",),
)
_LAYER_NORM = Risk(
    "layer_norm_fp16",
    "a LayerNorm or variance written as MEAN of squares: in fp16 the squares pass 65504, the largest number, once "
    "values pass 256",
    "Scale the input down before the square and back after it, or ask for fp32 arithmetic on GPUs that "
    "compute in fp16.",
    ("IEEE 754 binary16: largest finite value 65504",),
    "layer-norm-prescaled",
)
_GLOBAL_MEAN = Risk(
    "global_mean_fp16",
    "a MEAN or SUM over many elements: an fp16 sum of them can pass 65504, the largest number",
    "Average in two steps (over rows, then over columns), or use AVERAGE_POOL_2D steps, which divide on the way.",
    ("IEEE 754 binary16: largest finite value 65504",),
    "mean-cascade",
)


def risks(outline: Outline) -> Iterator[tuple[Risk, int]]:
    """Patterns in a graph that run and may be wrong on GPUs: the risk and the node it is at."""
    subjects = outline.nodes_of("BATCH_MATMUL", "ADD", "MEAN", "SUM")
    if not subjects:
        return
    graph = _Wiring(outline)
    returned = set(outline.outputs)
    consumed = set(outline.reads.flat.tolist())
    for node in subjects:
        if not outline.written[node] or min(outline.written[node][0], *outline.read[node], 0) < 0:
            continue
        op, reads, out = outline.op[node], outline.read[node], outline.written[node][0]
        if op == "BATCH_MATMUL":
            if graph.rank3(node) and outline.shape[out][0] > 1:
                softmax = graph.before(node, 0, ("RESHAPE", "TRANSPOSE", "CAST"))
                if softmax is not None and outline.op[softmax] == "SOFTMAX":
                    product = graph.before(softmax, 0, ("RESHAPE", "ADD", "MUL", "DIV", "TRANSPOSE"))
                    if product is not None and outline.op[product] == "BATCH_MATMUL" and graph.rank3(product):
                        yield _COLLAPSED, node
        elif op == "ADD" and len(reads) == 2:
            constant = any(index >= 0 and outline.is_constant[index] for index in reads)
            if out in returned and out in consumed and not constant:
                yield _ADD_OUTPUT, node
            for position in (0, 1):
                source = graph.before(node, position, ("RESHAPE",))
                other = reads[1 - position]
                if source is not None and outline.op[source] == "BATCH_MATMUL" and other >= 0:
                    if pattern(outline.shape[other], outline.shape[out]) not in ("same", "scalar"):
                        yield _BROADCAST_ADD, node
                    break
        elif op in ("MEAN", "SUM") and len(reads) == 2:
            source = graph.before(node)
            summed = prod(outline.shape[reads[0]]) // max(prod(outline.shape[out]), 1)
            if source is not None and graph.squares(source):
                scale = graph.scale(source)
                # Scaled by about one over the root of the count, the sum of squares is about the variance.
                if scale is None or scale * scale * summed > _PRESCALED:
                    yield _LAYER_NORM, node
            if summed >= _FP16_SUM:
                yield _GLOBAL_MEAN, node


class _Wiring:
    """Who computes what a node reads."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._producers = outline.producers()

    def before(self, node: int, position: int = 0, through: tuple[str, ...] = ()) -> int | None:
        """The node that computes an input, looked for past some ops."""
        for _ in range(8):
            reads = self._outline.read[node]
            found = self._producers.get(reads[position]) if position < len(reads) else None
            if found is None:
                return None
            node, position = found, 0
            if self._outline.op[node] not in through:
                return node
        return None

    def rank3(self, node: int) -> bool:
        """True if the node's output has three dimensions."""
        return len(self._outline.shape[self._outline.written[node][0]]) == 3

    def squares(self, node: int) -> bool:
        """True if the node squares something."""
        op, reads = self._outline.op[node], self._outline.read[node]
        return op in ("SQUARE", "SQUARED_DIFFERENCE") or (op == "MUL" and len(reads) == 2 and reads[0] == reads[1])

    def scale(self, node: int) -> float | None:
        """The constant that a node's input was multiplied by just before, or None."""
        source = self.before(node)
        if source is None or self._outline.op[source] != "MUL":
            return None
        for operand in self._outline.read[source]:
            maker = self._producers.get(operand)
            half = maker is not None and self._outline.op[maker] == "DEQUANTIZE"
            tensor = max(self._outline.read[maker], default=-1) if maker is not None and half else operand
            if tensor < 0:
                continue
            dtype = self._outline.dtypes[tensor]
            single = self._outline.is_constant[tensor] and prod(self._outline.shape[tensor]) == 1
            if single and dtype in ("float16", "float32"):
                return float(np.frombuffer(self._outline.constant_bytes(tensor), dtype, 1)[0])
        return None


def group(
    rule: str,
    severity: str,
    message: str,
    hint: str,
    nodes: Sequence[tuple[int, NodeReport]],
    evidence: Sequence[str],
    rewrite: str | None = None,
) -> Finding:
    """One finding for several nodes of the same kind."""
    modules = tuple(dict.fromkeys(node.module for _, node in nodes if node.module))
    pairs = tuple((subgraph, node.index) for subgraph, node in nodes)
    return Finding(rule, severity, message, hint, pairs, modules, tuple(dict.fromkeys(evidence)), rewrite)


#: Public reports of what the probe measured too: (op, what the signature has to contain) -> where.
_REPORTS: tuple[tuple[str, str, str], ...] = (
    ("BATCH_MATMUL", "adj_", "github.com/google-ai-edge/LiteRT/issues/8913"),
    ("PAD", "float32[3]", "github.com/google-ai-edge/LiteRT/issues/9272"),
    ("BROADCAST_TO", "", "github.com/google-ai-edge/LiteRT/issues/9191"),
    *((op, "operands=", "github.com/google-ai-edge/LiteRT/issues/8980") for op in ("ADD", "MUL", "SUB", "DIV")),
)


def reports(op: str, signature: str) -> list[str]:
    """Public reports that may be of the same fault."""
    return [where for name, part, where in _REPORTS if name == op and part in signature]
