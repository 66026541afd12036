"""Checkpoints: Meta's names, transformers folders, and what is refused."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AssayError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.convert

from assay.conversion.sam2 import weights  # noqa: E402

#: transformers' names to Meta's, written down apart from the table under test.
_TO_META = (
    (r"^vision_encoder\.backbone\.", "image_encoder.trunk."),
    (r"^vision_encoder\.neck\.convs\.(\d)\.", r"image_encoder.neck.convs.\1.conv."),
    (r"\.shared_embedding\.positional_embedding", ".pe_layer.positional_encoding_gaussian_matrix"),
    (r"^prompt_encoder\.mask_embed\.conv1", "sam_prompt_encoder.mask_downscaling.0"),
    (r"^prompt_encoder\.mask_embed\.layer_norm1", "sam_prompt_encoder.mask_downscaling.1"),
    (r"^prompt_encoder\.mask_embed\.conv2", "sam_prompt_encoder.mask_downscaling.3"),
    (r"^prompt_encoder\.mask_embed\.layer_norm2", "sam_prompt_encoder.mask_downscaling.4"),
    (r"^prompt_encoder\.mask_embed\.conv3", "sam_prompt_encoder.mask_downscaling.6"),
    (r"^prompt_encoder\.", "sam_prompt_encoder."),
    (r"^mask_decoder\.upscale_conv1", "sam_mask_decoder.output_upscaling.0"),
    (r"^mask_decoder\.upscale_layer_norm", "sam_mask_decoder.output_upscaling.1"),
    (r"^mask_decoder\.upscale_conv2", "sam_mask_decoder.output_upscaling.3"),
    (r"^mask_decoder\.", "sam_mask_decoder."),
    (r"(mlps\.\d|head)\.layers\.0\.", r"\1.layers.1."),
    (r"(mlps\.\d|head)\.proj_in\.", r"\1.layers.0."),
    (r"(mlps\.\d|head)\.proj_out\.", r"\1.layers.2."),
    (r"\.mlp\.proj_in\.", ".mlp.layers.0."),
    (r"\.mlp\.proj_out\.", ".mlp.layers.1."),
    (r"\.o_proj\.", ".out_proj."),
    (r"\.layer_norm_final_attn\.", ".norm_final_attn."),
    (r"\.layer_norm(\d)\.", r".norm\1."),
    (r"patch_embed\.projection", "patch_embed.proj"),
    (r"^no_memory_embedding$", "no_mem_embed"),
)  # fmt: skip


def meta_state(model: Any) -> dict[str, Any]:
    """The model's weights as Meta publishes them, with some of what only video needs."""
    state: dict[str, Any] = {
        "maskmem_tpos_enc": torch.zeros(7, 1, 1, 4),
        "memory_encoder.out_proj.weight": torch.zeros(2),
    }
    for name, tensor in model.state_dict().items():
        if name == "shared_image_embedding.positional_embedding":
            continue
        if name == "prompt_encoder.point_embed.weight":
            state |= {f"sam_prompt_encoder.point_embeddings.{i}.weight": tensor[i : i + 1] for i in range(4)}
            continue
        for pattern, replacement in _TO_META:
            name = re.sub(pattern, replacement, name)  # noqa: PLW2901
        state[name] = tensor
    return state


@pytest.fixture
def small(small_sam2: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`load` works on the small configuration: the names are those of the real one."""
    monkeypatch.setattr(weights, "configuration", lambda image_size=1024: small_sam2.config)
    return small_sam2


def same(first: Any, second: Any) -> bool:
    ours, theirs = first.state_dict(), second.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_meta_names_of_published_tensors() -> None:
    published = [
        "image_encoder.trunk.blocks.3.norm1.weight",
        "image_encoder.trunk.blocks.3.mlp.layers.1.bias",
        "image_encoder.neck.convs.2.conv.weight",
        "sam_mask_decoder.transformer.layers.1.cross_attn_image_to_token.out_proj.weight",
        "sam_mask_decoder.output_hypernetworks_mlps.2.layers.1.weight",
        "sam_mask_decoder.iou_prediction_head.layers.2.bias",
        "no_mem_embed",
    ]
    assert list(weights.from_meta_names(dict.fromkeys(published, torch.zeros(1)))) == [
        "vision_encoder.backbone.blocks.3.layer_norm1.weight",
        "vision_encoder.backbone.blocks.3.mlp.proj_out.bias",
        "vision_encoder.neck.convs.2.weight",
        "mask_decoder.transformer.layers.1.cross_attn_image_to_token.o_proj.weight",
        "mask_decoder.output_hypernetworks_mlps.2.layers.0.weight",
        "mask_decoder.iou_prediction_head.proj_out.bias",
        "no_memory_embedding",
    ]


def test_meta_checkpoint(small: Any, tmp_path: Path) -> None:
    path = tmp_path / "sam2.pt"
    torch.save({"model": meta_state(small)}, path)
    assert same(weights.load(path, None), small)


def test_transformers_folder(small: Any, tmp_path: Path) -> None:
    small.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["vision_config"]["backbone_config"]["blocks_per_stage"] = [1, 2, 7, 2]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert same(weights.load(tmp_path, None), small)


def test_random_weights_are_the_same_for_a_seed(small_sam2: Any) -> None:
    before = torch.random.get_rng_state()
    assert same(weights.random_model(small_sam2.config, 0), small_sam2)
    assert not same(weights.random_model(small_sam2.config, 1), small_sam2)
    assert torch.equal(torch.random.get_rng_state(), before)


LARGE = {"model_type": "sam2", "vision_config": {"backbone_config": {"blocks_per_stage": [2, 6, 36, 4]}}}


class Evil:
    def __reduce__(self) -> Any:
        return (open, ("/nonexistent/pwned", "w"))


@pytest.mark.parametrize("make", ["code", "text", "empty", "tensor", "missing"])
def test_unusable_files_are_refused(make: str, small: Any, tmp_path: Path) -> None:
    path = tmp_path / "sam2.pt"
    if make == "code":
        torch.save({"model": Evil()}, path)
    elif make == "text":
        path.write_text("no checkpoint")
    elif make == "empty":
        path.write_bytes(b"")
    elif make == "tensor":
        torch.save(torch.zeros(3), path)
    with pytest.raises(AssayError, match=r"sam2\.pt"):
        weights.load(path, None)


def test_plain_pickle_is_not_run(small: Any, tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(AssayError, match="tensors only"):
        weights.load(path, None)


def test_a_checkpoint_that_lacks_a_tensor_names_it(small: Any, tmp_path: Path) -> None:
    state = meta_state(small)
    del state["sam_mask_decoder.conv_s0.bias"]
    torch.save({"model": state}, tmp_path / "sam2.pt")
    with pytest.raises(AssayError, match=r"mask_decoder\.conv_s0\.bias"):
        weights.load(tmp_path / "sam2.pt", None)


def test_a_tensor_of_another_shape_is_named(small: Any, tmp_path: Path) -> None:
    state = meta_state(small)
    state["no_mem_embed"] = torch.zeros(1, 1, 7)
    torch.save({"model": state}, tmp_path / "sam2.pt")
    with pytest.raises(AssayError, match=r"no_memory_embedding is \(1, 1, 7\)"):
        weights.load(tmp_path / "sam2.pt", None)


@pytest.mark.parametrize(
    ("config", "files", "match"),
    [
        (None, [], "config.json is missing"),
        ("{", [], "not JSON"),
        ('{"model_type": "bert"}', [], "describes 'bert'"),
        (json.dumps(LARGE), [], "not Hiera-tiny"),
        ('{"model_type": "sam2"}', ["pytorch_model.bin"], "only pickled weights"),
        ('{"model_type": "sam2", "vision_config": 3}', ["model.safetensors"], "cannot be read as safetensors"),
    ],
)  # fmt: skip
def test_unusable_folders_are_refused(
    config: str | None, files: list[str], match: str, small: Any, tmp_path: Path
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    for name in files:
        (tmp_path / name).write_bytes(b"junk")
    with pytest.raises(AssayError, match=match):
        weights.load(tmp_path, None)


@pytest.mark.parametrize("size", [0, 100, 8192])
def test_image_sizes_that_do_not_fit(size: int) -> None:
    with pytest.raises(AssayError, match="multiple of 32"):
        weights.configuration(size)


def test_half_size_configuration() -> None:
    config = weights.configuration(512)
    assert config.vision_config.backbone_feature_sizes == [[128, 128], [64, 64], [32, 32]]
    assert config.vision_config.backbone_config.blocks_per_stage == [1, 2, 7, 2]
