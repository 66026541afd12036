"""Each rewrite against the module it came from, on the graph alone: no converter is needed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import AssayError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.convert

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from assay.conversion.rewrites import REWRITES, apply  # noqa: E402
from assay.conversion.rewrites._graph import aten, calls, export, shape  # noqa: E402


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any, **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def rewritten(module: nn.Module, name: str, *inputs: Any, exact: bool = True, places: int | None = None) -> Any:
    """The graph after one rewrite, checked against the module."""
    module.eval()
    graph = export(module, inputs)
    count = apply(graph, [name])[name]
    assert count > 0 if places is None else count == places
    with torch.no_grad():
        wanted, got = module(*inputs), graph(*inputs)
    for first, second in zip(*(x if isinstance(x, tuple) else (x,) for x in (wanted, got)), strict=True):
        assert first.shape == second.shape
        if exact:
            assert torch.equal(first, second)
        else:
            torch.testing.assert_close(second, first, rtol=2e-5, atol=2e-6)
    return graph


def draw(*size: int) -> Any:
    return torch.randn(*size, generator=torch.Generator().manual_seed(0))


def highest_rank(graph: Any) -> int:
    ranks = [
        len(shape(n)) for n in graph.graph.nodes if n.op == "call_function" and hasattr(n.meta["val"], "shape")
    ]
    return max(ranks, default=0)


# --- attention ---------------------------------------------------------------------------------------------


def attend(module: Any, query: Any, key: Any, value: Any) -> Any:
    return F.scaled_dot_product_attention(query, key, value)


def test_attention_rank4_keeps_the_batch_axis() -> None:
    pytest.importorskip("litert_torch")
    graph = rewritten(
        Function(attend), "attention-rank4", draw(1, 4, 6, 8), draw(1, 4, 9, 8), draw(1, 4, 9, 8), exact=False
    )
    products = calls(graph, torch.ops.litert_torch.bmm_4d.default)
    assert [shape(node) for node in products] == [(1, 4, 6, 9), (1, 4, 6, 8)]
    assert not calls(graph, aten.scaled_dot_product_attention.default, aten.matmul.default)


def test_attention_rank3_has_none() -> None:
    graph = rewritten(
        Function(attend), "attention-rank3", draw(1, 4, 6, 8), draw(1, 4, 9, 8), draw(1, 4, 9, 8), exact=False
    )
    assert [shape(node) for node in calls(graph, aten.matmul.default)] == [(4, 6, 9), (4, 6, 8)]
    assert [shape(node) for node in calls(graph, aten.softmax.int)] == [(4, 6, 9)]


def test_attention_rank3_leaves_real_batches() -> None:
    rewritten(Function(attend), "attention-rank3", draw(2, 4, 6, 8), draw(2, 4, 9, 8), draw(2, 4, 9, 8), places=0)


def test_attention_with_a_mask_and_a_scale() -> None:
    pytest.importorskip("litert_torch")

    def masked(_: Any, query: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(query, query, query, attn_mask=mask, scale=0.3)

    rewritten(Function(masked), "attention-rank4", draw(2, 3, 5, 8), draw(2, 3, 5, 5), exact=False)


def test_causal_attention_is_left_alone() -> None:
    def causal(_: Any, query: Any) -> Any:
        return F.scaled_dot_product_attention(query, query, query, is_causal=True)

    rewritten(Function(causal), "attention-rank4", draw(1, 3, 5, 8), places=0)


def test_the_softmax_scale_goes_into_the_projection() -> None:
    pytest.importorskip("litert_torch")

    def project(module: Any, x: Any) -> Any:
        heads = module.q(x).view(1, 5, 2, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, x.view(1, 5, 2, 8).transpose(1, 2), heads * 0 + 1)

    def used_once(module: Any, x: Any) -> Any:
        heads = module.q(x).view(1, 5, 2, 8).transpose(1, 2)
        other = x.view(1, 5, 2, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, other, other)

    graph = rewritten(Function(used_once, q=nn.Linear(16, 16)), "attention-rank4", draw(1, 5, 16), exact=False)
    assert not calls(graph, aten.mul.Tensor)
    # Where the projection has another use, its weights must stay.
    rewritten(Function(project, q=nn.Linear(16, 16)), "attention-rank4", draw(1, 5, 16), exact=False)


def test_rank_3_attention_gets_a_batch_axis() -> None:
    pytest.importorskip("litert_torch")

    def collapsed(_: Any, query: Any, key: Any, value: Any) -> Any:
        weights = torch.softmax(query @ key.transpose(1, 2) * 0.35, dim=-1)
        return torch.bmm(weights, value)

    graph = rewritten(
        Function(collapsed), "attention-rank4", draw(4, 6, 8), draw(4, 9, 8), draw(4, 9, 8), exact=False, places=2
    )
    assert [shape(node) for node in calls(graph, aten.softmax.int)] == [(1, 4, 6, 9)]
    assert not calls(graph, aten.matmul.default, aten.bmm.default)


# --- transposed convolution --------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    size=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    bias=st.booleans(),
)
def test_conv_transpose_zero_stuffed(
    kernel: int, stride: int, padding: int, size: tuple[int, int], bias: bool
) -> None:
    if any((side - 1) * stride - 2 * padding + kernel < 1 for side in size):
        return
    module = nn.ConvTranspose2d(3, 4, kernel, stride, padding, bias=bias)
    graph = rewritten(module, "conv-transpose-zero-stuffed", draw(1, 3, *size), exact=False)
    assert not calls(graph, aten.conv_transpose2d.input)


def test_a_pad_that_moves_the_image_is_no_identity() -> None:
    # Kernel 2 and stride 3 pad by 1 before and -1 after: the same shape, another image.
    rewritten(nn.ConvTranspose2d(3, 4, 2, 3), "conv-transpose-zero-stuffed", draw(1, 3, 2, 2), exact=False)


@pytest.mark.parametrize(("stride", "bias", "batch"), [(2, True, 1), ((3, 2), False, 2), (1, True, 1)])
def test_conv_transpose_subpixel(stride: Any, bias: bool, batch: int) -> None:
    module = nn.ConvTranspose2d(3, 4, stride, stride, bias=bias)
    graph = rewritten(module, "conv-transpose-subpixel", draw(batch, 3, 4, 5), exact=False)
    assert not calls(graph, aten.conv_transpose2d.input)
    assert highest_rank(graph) <= 4


def test_overlapping_conv_transpose_has_no_subpixels() -> None:
    rewritten(nn.ConvTranspose2d(3, 4, 3, 2), "conv-transpose-subpixel", draw(1, 3, 4, 5), places=0)


def test_grouped_conv_transpose_is_left_alone() -> None:
    rewritten(nn.ConvTranspose2d(4, 4, 2, 2, groups=2), "conv-transpose-zero-stuffed", draw(1, 4, 3, 3), places=0)


# --- normalization and means -------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [4, 96, 256])
def test_layer_norm_prescaled(channels: int) -> None:
    module = nn.LayerNorm(channels, eps=1e-6)
    nn.init.normal_(module.weight)
    nn.init.normal_(module.bias)
    rewritten(module, "layer-norm-prescaled", 3 * draw(2, 5, channels) + 1, exact=False)


def test_prescaled_layer_norm_survives_half_precision() -> None:
    values = 100 * draw(1, 3, 256)
    module = nn.LayerNorm(256).eval()
    graph = rewritten(module, "layer-norm-prescaled", values, exact=False)
    half = graph.half()(values.half()).float()
    torch.testing.assert_close(half, module.float()(values), rtol=1e-2, atol=1e-2)
    # Squared as they are, the same values overflow: their sum is over 65504.
    assert torch.isinf((values.half() ** 2).sum(-1)).all()


@pytest.mark.parametrize("keep", [True, False])
def test_mean_cascade(keep: bool) -> None:
    def mean(_: Any, x: Any) -> Any:
        return x.mean((2, 3), keepdim=keep)

    graph = rewritten(Function(mean), "mean-cascade", draw(2, 3, 8, 9), exact=False)
    assert [node.args[1] for node in calls(graph, aten.mean.dim)] == [[3], [2]]
    rewritten(nn.AdaptiveAvgPool2d(1), "mean-cascade", draw(2, 3, 8, 9), exact=False)
    rewritten(Function(lambda _, x: x.mean()), "mean-cascade", draw(2, 3, 8, 9), exact=False)
    rewritten(Function(lambda _, x: x.mean(-1)), "mean-cascade", draw(2, 3, 8, 9), places=0)


# --- constants and slices ----------------------------------------------------------------------------------


def test_constants_baked_keeps_broadcast_values_small() -> None:
    def add(module: Any, x: Any) -> Any:
        grid = torch.arange(4.0).sin().reshape(1, 1, 1, 4).tile(1, 3, 2, 1)
        return x + module.no_mask.weight.reshape(1, -1, 1, 1).expand(1, 3, 2, 4), x * grid

    graph = rewritten(Function(add, no_mask=nn.Embedding(1, 3)), "constants-baked", draw(1, 3, 2, 4))
    sizes = sorted(tuple(buffer.shape) for buffer in graph.buffers())
    assert sizes == [(1, 3, 1, 1), (1, 3, 2, 4)]
    assert not calls(graph, aten.sin.default, aten.tile.default, aten.expand.default)


def test_bicubic_positional_embedding_is_baked() -> None:
    class Position(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Parameter(draw(1, 4, 3, 3))

        def forward(self, x: Any) -> Any:
            return x + F.interpolate(self.embed, size=(8, 8), mode="bicubic")

    graph = rewritten(Position(), "constants-baked", draw(1, 4, 8, 8))
    assert [node.target for node in graph.graph.nodes if node.op == "call_function"] == [aten.add.Tensor]


def test_slice_early_drops_unused_heads() -> None:
    heads = nn.ModuleList(nn.Linear(8, 6) for _ in range(4))

    def multimask(module: Any, tokens: Any, pixels: Any) -> Any:
        stacked = torch.stack([head(tokens[:, :, index]) for index, head in enumerate(module.heads)], dim=2)
        masks = (stacked @ pixels).view(1, 1, 4, 5, 5)
        return masks[:, :, 1:], torch.sigmoid(module.iou(tokens[:, :, 0]))[:, :, 1:]

    module = Function(multimask, heads=heads, iou=nn.Linear(8, 4))
    graph = rewritten(module, "slice-early", draw(1, 1, 4, 8), draw(1, 1, 6, 25), exact=False)
    linears = calls(graph, aten.linear.default)
    assert [shape(node)[-1] for node in linears] == [6, 6, 6, 3]
    assert not calls(graph, aten.slice.Tensor)


def test_slice_of_a_shared_result_stays() -> None:
    def both(module: Any, x: Any) -> Any:
        y = torch.sigmoid(x)
        return y, y[:, 1:]

    rewritten(Function(both), "slice-early", draw(2, 4), places=0)


# --- ranks -------------------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2))
def test_window_partition_in_rank_4(rows: int, columns: int, window: int, channels: int, batch: int) -> None:
    def there_and_back(_: Any, x: Any) -> Any:
        cut = x.view(batch, rows, window, columns, window, channels).permute(0, 1, 3, 2, 4, 5)
        windows = torch.relu(cut.contiguous().view(-1, window, window, channels))
        back = windows.view(batch, rows, columns, window, window, channels).permute(0, 1, 3, 2, 4, 5)
        return back.contiguous().view(batch, rows * window, columns * window, channels)

    x = draw(batch, rows * window, columns * window, channels)
    assert highest_rank(rewritten(Function(there_and_back), "views-rank4", x, places=2)) <= 4


@settings(max_examples=12, deadline=None)
@given(st.permutations(range(6)), st.lists(st.integers(1, 3), min_size=6, max_size=6))
def test_any_order_of_six_axes(order: list[int], sizes: list[int]) -> None:
    def turn(_: Any, x: Any) -> Any:
        return x.view(sizes).permute(order).reshape(-1)

    x = draw(torch.Size(sizes).numel())
    if list(order) != list(range(6)):
        assert highest_rank(rewritten(Function(turn), "views-rank4", x, places=1)) <= 4


@pytest.mark.parametrize("projected", [True, False])
def test_qkv_split(projected: bool) -> None:
    def fused(module: Any, x: Any) -> Any:
        y = module.qkv(x) if projected else torch.relu(x)
        query, key, value = torch.unbind(y.reshape(2, 6, 3, 2, 4), 2)
        return query, key, value

    graph = rewritten(Function(fused, qkv=nn.Linear(24, 24)), "qkv-split", draw(2, 2, 3, 24), exact=not projected)
    assert highest_rank(graph) <= 4
    assert len(calls(graph, aten.linear.default)) == (3 if projected else 0)


def test_unit_axes_dropped() -> None:
    def tail(_: Any, x: Any) -> Any:
        masks = x.view(1, 1, 4, 3, 3)
        return torch.sigmoid(masks[:, :, 1:])[:, 0]

    graph = rewritten(Function(tail), "unit-axes-dropped", draw(1, 1, 4, 9), places=1)
    assert highest_rank(graph) <= 4


def test_unit_axes_of_an_output_stay() -> None:
    rewritten(
        Function(lambda _, x: torch.relu(x.view(1, 1, 4, 3, 3))), "unit-axes-dropped", draw(1, 4, 9), places=0
    )


# --- layout and interpolation ------------------------------------------------------------------------------


def test_channels_last_moves_the_transpose_to_the_pixels() -> None:
    def tokens(_: Any, x: Any) -> Any:
        rows = torch.relu(x.flatten(2).transpose(1, 2).unsqueeze(1))
        return rows.transpose(2, 3).view(1, 6, 4, 5)

    graph = rewritten(Function(tokens), "channels-last", draw(1, 6, 4, 5), places=2)
    assert [node.args[1] for node in calls(graph, aten.permute.default)] == [[0, 2, 3, 1], [0, 3, 1, 2]]


@pytest.mark.parametrize(
    ("mode", "size", "antialias"),
    [
        ("bicubic", (7, 9), False),
        ("bilinear", (3, 10), False),
        ("bilinear", (2, 3), True),
        ("bicubic", (2, 9), True),
        ("nearest", (7, 3), False),
        ("bilinear", (5, 6), False),
    ],
)
def test_interpolate_matmul(mode: str, size: tuple[int, int], antialias: bool) -> None:
    def resize(_: Any, x: Any) -> Any:
        return F.interpolate(x, size=size, mode=mode, antialias=antialias)

    graph = rewritten(Function(resize), "interpolate-matmul", draw(2, 3, 5, 6), exact=False)
    assert not [node for node in graph.graph.nodes if "upsample" in str(node.target)]


def test_nearest_by_a_whole_factor_is_left_alone() -> None:
    rewritten(
        Function(lambda _, x: F.interpolate(x, scale_factor=2.0)), "interpolate-matmul", draw(1, 2, 3, 4), places=0
    )


# --- the registry ------------------------------------------------------------------------------------------


def test_unknown_and_contrary_rewrites_are_refused() -> None:
    graph = export(nn.Linear(2, 2), (draw(1, 2),))
    with pytest.raises(AssayError, match="no rewrite is called 'x'"):
        apply(graph, ["x"])
    with pytest.raises(AssayError, match="exclude each other"):
        apply(graph, ["attention-rank3", "attention-rank4"])


@pytest.mark.parametrize("name", list(REWRITES))
def test_every_rewrite_leaves_a_graph_without_its_pattern_alone(name: str) -> None:
    rewritten(nn.Linear(4, 3), name, draw(2, 4), places=0)


def test_all_rewrites_together_on_a_small_sam2(small_sam2: Any) -> None:
    pytest.importorskip("litert_torch")
    from assay.conversion.pipeline import rewritten as rewrite_plan
    from assay.conversion.recipes.sam2_image_encoder import encoder_plan
    from assay.conversion.recipes.sam2_mask_decoder import decoder_plan
    from assay.conversion.verify import run_module

    for plan in (decoder_plan(small_sam2, "v2"), decoder_plan(small_sam2, "v1"), encoder_plan(small_sam2, "full")):
        graph, counts = rewrite_plan(plan, plan.rewrites)
        wanted = run_module(plan, plan.inputs)
        with torch.no_grad():
            got = graph(*plan.inputs.values())
        for name, tensor in zip(plan.outputs, got, strict=True):
            torch.testing.assert_close(tensor, torch.from_numpy(wanted[name]), rtol=1e-4, atol=1e-5)
        assert highest_rank(graph) <= 4
        # `interpolate-matmul` has nothing to do once the positional embedding is baked.
        assert not [name for name, count in counts.items() if count == 0 and name != "interpolate-matmul"]
