"""Conversion as a user calls it, on small models."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from assay.errors import AssayError

torch = pytest.importorskip("torch")
pytest.importorskip("litert_torch")
pytestmark = pytest.mark.convert

import yaml  # noqa: E402

from assay import graph  # noqa: E402
from assay.conversion import ConversionDiffers, ModelFacts, Plan, Recipe, convert  # noqa: E402
from assay.conversion.find import find  # noqa: E402
from assay.conversion.pipeline import rewritten, to_tflite  # noqa: E402
from assay.conversion.verify import verify  # noqa: E402

USERS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm = nn.ConvTranspose2d(3, 4, 2, 2), nn.LayerNorm(4)
    def forward(self, x):
        return torch.relu(self.norm(self.up(x).permute(0, 2, 3, 1)))

def net():
    torch.manual_seed(0)
    return Net(), {"image": torch.randn(1, 3, 6, 6)}

def wrong():
    return 7
"""


def small_recipe(plan: Plan) -> Recipe:
    return Recipe(name="small", summary="", variants={"only": ""}, options={}, plan=lambda request: plan)


def linear_plan(**changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "module": torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 80)).eval(),
        "inputs": {"x": torch.randn(2, 64, generator=torch.Generator().manual_seed(0))},
        "outputs": ("y",),
        "rewrites": (),
        "facts": ModelFacts(family="test", id="linear"),
    }
    return Plan(**(settings | changes))


def run_cli(*arguments: str) -> Any:
    """In this process where nothing is to be measured: PyTorch is imported once."""
    from assay.cli import convert as verb

    return CliRunner().invoke(verb.app, list(arguments))


def test_a_function_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS)
    out = tmp_path / "net.tflite"
    result = run_cli(
        f"{tmp_path}/mine.py:net", "--out", str(out), "--json", "--rewrite", "conv-transpose-zero-stuffed",
        "--rewrite", "layer-norm-prescaled",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["rewrites"] == {"conv-transpose-zero-stuffed": 1, "layer-norm-prescaled": 1}
    assert document["ops"].get("TRANSPOSE_CONV") is None
    assert document["nodes"] == sum(document["ops"].values())
    assert document["provenance"] is None
    model = graph.read(out)
    assert [entry.name for entry in model.signatures[0].inputs] == ["image"]
    meta = yaml.safe_load((tmp_path / "net.meta.yaml").read_text())
    assert meta["artifact"]["sha256"] == document["sha256"]
    assert meta["artifact"]["size_bytes"] == out.stat().st_size
    assert meta["provenance"] is None
    assert re.search(r"litert-torch \d", meta["conversion"]["tool_version"])


def test_auto_applies_what_lint_names(tmp_path: Path) -> None:
    from assay.linting import lint

    (tmp_path / "mine.py").write_text(USERS)
    made = convert(f"{tmp_path}/mine.py:net", tmp_path / "net.tflite", auto=True)
    plain = convert(f"{tmp_path}/mine.py:net", tmp_path / "plain.tflite")
    named = {finding.rewrite for finding in lint(graph.read(plain.path)) if finding.rewrite}
    assert set(made.findings) == set(made.rewrites) == named


def test_random_weights_are_an_example_everywhere(tmp_path: Path) -> None:
    plan = linear_plan(example=True, pitfalls=["known"])
    made = convert(small_recipe(plan), tmp_path / "m.tflite", seed=3, precision="fp16")
    assert made.example
    model = graph.read(made.path)
    entry = next(entry for entry in model.metadata if entry.name == "assay.provenance")
    assert bytes(model.buffers[entry.buffer].data) == b"example"
    meta = yaml.safe_load(made.meta.read_text())
    assert meta["provenance"] == "example"
    assert "random" in meta["pitfalls"][0]
    assert meta["conversion"]["command"].endswith("--random-weights 3 --out m.tflite")
    assert made.ops["DEQUANTIZE"] == 2


def test_same_inputs_same_bytes(tmp_path: Path) -> None:
    plan = linear_plan(example=True)
    for precision in ("fp32", "fp16", "int8"):
        made = [convert(small_recipe(plan), tmp_path / f"{i}.tflite", seed=0, precision=precision) for i in (0, 1)]
        assert made[0].sha256 == made[1].sha256
        assert (tmp_path / "0.tflite").read_bytes() == (tmp_path / "1.tflite").read_bytes()


def test_a_model_that_differs_is_not_written(tmp_path: Path) -> None:
    class Changing(torch.nn.Module):
        """Traced with one factor, run with another: a stand-in for any wrong conversion."""

        factor = 1.0

        def forward(self, x: Any) -> Any:
            return x * self.factor

    module = Changing().eval()
    plan = linear_plan(module=module, inputs={"x": torch.randn(2, 64)})
    data = to_tflite(rewritten(plan, ())[0], plan)
    assert len(verify(plan, data, "fp32")) == 3
    module.factor = 1.001
    with pytest.raises(ConversionDiffers, match="y: max abs diff") as caught:
        verify(plan, data, "fp32")
    assert len(caught.value.checks) == 3
    # The same factor is within what float16 weights may do.
    assert verify(plan, data, "fp16")
    module.factor = float("nan")
    with pytest.raises(ConversionDiffers, match="NaN"):
        verify(plan, data, "int8")

    plan = linear_plan(scores=lambda reference, outputs: {"score": 0.5}, floors={"fp32": {"score": 0.6}})
    with pytest.raises(ConversionDiffers, match=r"score is 0\.5"):
        convert(small_recipe(plan), tmp_path / "m.tflite", seed=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "--random-weights", "0"], "no recipe is called 'nothing'"),
        (["sam2.1-hiera-tiny-mask-decoder"], "no weights are given"),
        (
            ["sam2.1-hiera-tiny-mask-decoder", "--random-weights", "0", "--checkpoint", "x"],
            "weights are given twice",
        ),
        (["sam2.1-hiera-tiny-mask-decoder", "--random-weights", "0", "--variant", "v9"], "no variant 'v9'"),
        (["sam2.1-hiera-tiny-mask-decoder", "--random-weights", "0", "--set", "points"], "not understood"),
        (["sam2.1-hiera-tiny-mask-decoder", "--random-weights", "0", "--set", "x=1"], "no option 'x'"),
        (["sam2.1-hiera-tiny-mask-decoder", "--random-weights", "0", "--set", "tokens=1"], "tokens=1"),
        (["sam2.1-hiera-tiny-mask-decoder", "--checkpoint", "/nonexistent"], "does not exist"),
        (["sam2.1-hiera-tiny-mask-decoder", "--random-weights", "0", "--precision", "fp8"], "precision 'fp8'"),
        (["missing.py:fn"], "missing.py does not exist"),
    ],
)
def test_misuse_is_explained(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run_cli(*arguments, "--out", str(tmp_path / "m.tflite"))
    assert isinstance(result.exception, AssayError)
    assert message in str(result.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"), [("nope", "no function 'nope'"), ("wrong", "gave int"), ("", "names no function")]
)
def test_users_functions_that_cannot_be_used(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS)
    with pytest.raises(AssayError, match=message):
        convert(f"{tmp_path}/mine.py:{name}", tmp_path / "m.tflite")


def test_a_users_file_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("1 / 0")
    with pytest.raises(AssayError, match=r"mine\.py cannot be imported: ZeroDivisionError"):
        convert(f"{tmp_path}/mine.py:net", tmp_path / "m.tflite")


def test_recipes_are_listed_without_pytorch() -> None:
    script = (
        "import sys; from assay.conversion.recipes import RECIPES; print(list(RECIPES), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert find("sam2.1-hiera-tiny-image-encoder").variants["half"]


def test_tap_to_segment_is_transformers_own_pipeline(small_sam2: Any, tmp_path: Path) -> None:
    """Encoder, prompt, decoder and both ends, on a lane, beside Sam2Model on the same image."""
    from assay.conversion.recipes.sam2_image_encoder import encoder_plan
    from assay.conversion.recipes.sam2_mask_decoder import decoder_plan
    from assay.segment import images
    from assay.segment.segmenter import Prompt, Segmenter

    encoder, decoder = tmp_path / "encoder.tflite", tmp_path / "decoder.tflite"
    made = [
        convert(small_recipe(encoder_plan(small_sam2, "full", example=True)), encoder, seed=0),
        convert(small_recipe(decoder_plan(small_sam2, "v2", example=True)), decoder, seed=0),
    ]
    for one in made:
        assert all(len(tensor.shape) <= 4 for tensor in graph.read(one.path).subgraphs[0].tensors)
        assert not {"GATHER_ND", "BROADCAST_TO", "TRANSPOSE_CONV"} & set(one.ops)

    image = np.random.default_rng(0).integers(0, 256, (90, 140, 3), dtype=np.uint8)
    segmenter = Segmenter(encoder, decoder, threads=1, cache=tmp_path / "cache")
    result = segmenter.segment(image, Prompt([(70.0, 30.0)], [1]))
    with torch.no_grad():
        scaled = torch.tensor([[[[70.0 * 128 / 140, 30.0 * 128 / 90]]]])
        wanted = small_sam2(
            pixel_values=torch.from_numpy(images.preprocess(image, 128)),
            input_points=scaled,
            input_labels=torch.ones(1, 1, 1, dtype=torch.int64),
            multimask_output=True,
        )
        logits = torch.nn.functional.interpolate(wanted.pred_masks[:, 0], (90, 140), mode="bilinear")[0].numpy()
    np.testing.assert_allclose(result.logits, logits, rtol=0, atol=1e-4)
    np.testing.assert_allclose(result.iou, wanted.iou_scores[0, 0].numpy(), rtol=0, atol=1e-5)
    assert ((result.masks & (logits > 0)).sum() / (result.masks | (logits > 0)).sum()) >= 0.999
    assert not result.cached and result.times_ms["encoder"] > 0

    again = segmenter.segment(image, Prompt([(70.0, 30.0)], [1]))
    assert again.cached and "encoder" not in again.times_ms
    np.testing.assert_array_equal(again.logits, result.logits)
    # A cache that was tampered with is not used.
    next((tmp_path / "cache").iterdir()).write_bytes(b"junk")
    assert not segmenter.segment(image, Prompt([(70.0, 30.0)], [1])).cached

    for prompt, message in (
        (Prompt([(70.0, 30.0), (1.0, 1.0)], [1, 0]), "tokens=3"),
        (Prompt([], [], (1, 2, 3, 4)), "tokens=3"),
        (Prompt([(141.0, 3.0)], [1]), "outside of the image"),
        (Prompt([], []), "neither a point nor a box"),
        (Prompt([(1.0, 3.0)], []), "1 points and 0 labels"),
    ):
        with pytest.raises(AssayError, match=message):
            segmenter.segment(image, prompt)
    with pytest.raises(AssayError, match="image encoder"):
        Segmenter(decoder, decoder)
    decoder.with_suffix(".prompt.npz").unlink()
    with pytest.raises(AssayError, match="holds the prompt encoder"):
        Segmenter(encoder, decoder)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_real_decoder_meets_its_bars(tmp_path: Path) -> None:
    made = convert("sam2.1-hiera-tiny-mask-decoder", tmp_path / "v2.tflite", seed=0, precision="fp16")
    assert made.nodes <= 383
    assert made.size_bytes <= 12.6e6
    assert made.peak_mb < 4096
    assert all(check.scores["mask_iou"] >= 0.999 for check in made.checks)
    exact = convert("sam2.1-hiera-tiny-mask-decoder", tmp_path / "v2-fp32.tflite", seed=0)
    assert max(one.max_abs_diff or 0 for check in exact.checks for one in check.outputs) <= 1e-4
    model = graph.read(made.path).signatures[0]
    assert {entry.name: entry.tensor.shape for entry in (*model.inputs, *model.outputs)} == {
        "image_embeddings": (1, 256, 64, 64),
        "sparse_prompt": (1, 2, 256),
        "feat_s1": (1, 64, 128, 128),
        "feat_s0": (1, 32, 256, 256),
        "masks": (1, 3, 256, 256),
        "iou": (1, 3),
    }


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("recipe", "variant"),
    [("sam2.1-hiera-tiny-mask-decoder", "v2-half"), ("sam2.1-hiera-tiny-image-encoder", "quarter")],
)
def test_fully_delegated_and_right_on_the_gpu(recipe: str, variant: str, tmp_path: Path) -> None:
    from assay.lanes.registry import find as find_lane
    from assay.measure.run import run_models
    from assay.measure.settings import Settings

    if not find_lane("gpu_mldrift").available().available:
        pytest.skip("no Vulkan driver")
    made = convert(recipe, tmp_path / "m.tflite", seed=0, variant=variant)
    settings = Settings(lanes=("cpu_xnnpack", "gpu_mldrift"), runs=0, out=tmp_path / "out", meta=made.meta)
    report = run_models([made.path], settings)
    gpu = next(result for result in report.results if result.lane == "gpu_mldrift").entry
    assert gpu.run.full_delegation is True
    assert not gpu.refused_ops
    assert gpu.run.output_match is True
    assert gpu.run.provenance == "example"
