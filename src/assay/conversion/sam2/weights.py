"""SAM 2.1 Hiera-tiny in PyTorch, from a transformers folder, Meta's `.pt`, or random numbers.

The model code is transformers'. No code comes from a checkpoint: folders are read as safetensors only, and a
`.pt` with PyTorch's weights-only unpickler.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.distribution import need
from assay.errors import AssayError

if TYPE_CHECKING:
    import torch
    from transformers import Sam2Config, Sam2Model

_TINY_BLOCKS = [1, 2, 7, 2]
_LARGEST_CHECKPOINT = 4 << 30

#: Parts of Meta's checkpoint that only video needs.
_VIDEO = re.compile(r"memory_|maskmem_tpos_enc|no_mem_pos_enc|no_obj_|obj_ptr_|mask_downsample\.")

#: Meta's names to transformers', applied in order to each key.
_RENAMES: tuple[tuple[str, str], ...] = (
    (r"^image_encoder\.trunk\.", "vision_encoder.backbone."),
    (r"^image_encoder\.neck\.convs\.(\d+)\.conv\.", r"vision_encoder.neck.convs.\1."),
    (r"^sam_prompt_encoder\.", "prompt_encoder."),
    (r"^sam_mask_decoder\.", "mask_decoder."),
    (r"^no_mem_embed$", "no_memory_embedding"),
    (r"\.patch_embed\.proj\.", ".patch_embed.projection."),
    (r"(\.blocks\.\d+)\.norm(\d)\.", r"\1.layer_norm\2."),
    (r"(\.transformer\.layers\.\d+)\.norm(\d)\.", r"\1.layer_norm\2."),
    (r"\.norm_final_attn\.", ".layer_norm_final_attn."),
    (r"(attn\w*)\.out_proj\.", r"\1.o_proj."),
    (r"\.mlp\.layers\.0\.", ".mlp.proj_in."),
    (r"\.mlp\.layers\.1\.", ".mlp.proj_out."),
    (r"\.output_upscaling\.0\.", ".upscale_conv1."),
    (r"\.output_upscaling\.1\.", ".upscale_layer_norm."),
    (r"\.output_upscaling\.3\.", ".upscale_conv2."),
    (r"\.mask_downscaling\.0\.", ".mask_embed.conv1."),
    (r"\.mask_downscaling\.1\.", ".mask_embed.layer_norm1."),
    (r"\.mask_downscaling\.3\.", ".mask_embed.conv2."),
    (r"\.mask_downscaling\.4\.", ".mask_embed.layer_norm2."),
    (r"\.mask_downscaling\.6\.", ".mask_embed.conv3."),
    (r"\.pe_layer\.positional_encoding_gaussian_matrix$", ".shared_embedding.positional_embedding"),
)

#: The three-layer heads: Meta counts their layers, transformers names the first and the last.
_HEAD = re.compile(r"(hypernetworks_mlps\.\d+|iou_prediction_head|pred_obj_score_head)\.layers\.(\d)\.")
_HEAD_LAYERS = {"0": "proj_in", "1": "layers.0", "2": "proj_out"}


def load(checkpoint: Path | None, seed: int | None, image_size: int = 1024) -> Sam2Model:
    """The model with a checkpoint's weights, or with random ones.

    Args:
        checkpoint: A transformers folder, or Meta's `.pt`; None for random weights.
        seed: Seed of random weights; used without a checkpoint.
        image_size: Side of the square image in pixels, a multiple of 32; weights do not depend on it.

    Returns:
        The model in evaluation mode.

    Raises:
        AssayError: The checkpoint cannot be read, or is not of SAM 2.1 Hiera-tiny.
    """
    need("torch", "transformers", "safetensors", extra="convert")
    config = configuration(image_size)
    if checkpoint is None:
        return random_model(config, 0 if seed is None else seed)
    from transformers import Sam2Model

    if not checkpoint.exists():
        raise AssayError(f"{checkpoint} does not exist", fix="name a transformers folder or Meta's .pt file")
    state = _folder_state(checkpoint) if checkpoint.is_dir() else _file_state(checkpoint)
    model = Sam2Model(config)
    _load_state(model, state, checkpoint)
    return model.eval()


def configuration(image_size: int = 1024) -> Sam2Config:
    """transformers' configuration of SAM 2.1 Hiera-tiny for a square image."""
    from transformers import Sam2Config

    if image_size % 32 or not 64 <= image_size <= 4096:
        raise AssayError(f"image size {image_size} is not a multiple of 32 from 64 to 4096")
    sides = [image_size // 4, image_size // 8, image_size // 16]
    vision = {
        "model_type": "sam2_vision_model",
        "backbone_config": {"model_type": "sam2_hiera_det_model", "image_size": [image_size, image_size]},
        "backbone_feature_sizes": [[side, side] for side in sides],
    }
    return Sam2Config(vision_config=vision, prompt_encoder_config={"image_size": image_size})


def random_model(config: Sam2Config, seed: int) -> Sam2Model:
    """A model whose every parameter is random, the same for the same seed and PyTorch version.

    Unlike transformers' own initialisation it leaves no bias, embedding or norm at a neutral value, which would
    hide a mistake, and the masks have a useful spread.
    """
    import torch
    from transformers import Sam2Model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Sam2Model(config)
        layers = (torch.nn.Linear, torch.nn.Conv2d, torch.nn.ConvTranspose2d)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, layers):
                    module.reset_parameters()
                elif isinstance(module, torch.nn.LayerNorm):
                    module.weight.normal_(1.0, 0.1)
                    module.bias.normal_(0.0, 0.1)
                elif isinstance(module, torch.nn.Embedding):
                    module.weight.normal_()
            backbone: Any = model.vision_encoder.backbone
            for parameter in (backbone.pos_embed, backbone.pos_embed_window, model.no_memory_embedding):
                parameter.normal_(0.0, 0.5)
            gaussian = torch.randn_like(model.shared_image_embedding.positional_embedding)
            model.shared_image_embedding.positional_embedding.copy_(gaussian)
            model.prompt_encoder.shared_embedding.positional_embedding.copy_(gaussian)
    return model.eval()


def from_meta_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Meta's parameter names and layout to transformers'; what only video needs is left out."""
    import torch

    renamed: dict[str, torch.Tensor] = {}
    points: dict[int, torch.Tensor] = {}
    for key, tensor in state.items():
        if _VIDEO.match(key):
            continue
        if match := re.fullmatch(r"sam_prompt_encoder\.point_embeddings\.(\d+)\.weight", key):
            points[int(match[1])] = tensor
            continue
        name = key
        for pattern, replacement in _RENAMES:
            name = re.sub(pattern, replacement, name)
        renamed[_HEAD.sub(lambda match: f"{match[1]}.{_HEAD_LAYERS[match[2]]}.", name)] = tensor
    if points:
        renamed["prompt_encoder.point_embed.weight"] = torch.cat([points[index] for index in sorted(points)])
    gaussian = "prompt_encoder.shared_embedding.positional_embedding"
    if gaussian in renamed:
        renamed["shared_image_embedding.positional_embedding"] = renamed[gaussian]
    return renamed


def _folder_state(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    _check_config(folder / "config.json")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = any(folder.glob("*.bin"))
        why = "it has only pickled weights (.bin), which are not read" if pickled else "it has no *.safetensors"
        raise AssayError(f"{folder} cannot be used: {why}", fix="save the model with safe_serialization=True")
    state: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            state |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise AssayError(f"{file} cannot be read as safetensors: {error}") from error
    return state


def _check_config(path: Path) -> None:
    if not path.is_file():
        raise AssayError(f"{path} is missing", fix="name a folder that save_pretrained wrote")
    try:
        config: Any = json.loads(path.read_text()) if path.stat().st_size < 1 << 20 else None
    except (ValueError, RecursionError) as error:
        raise AssayError(f"{path} is not JSON: {error}") from error
    kind = _inside(config, "model_type")
    if kind not in ("sam2", "sam2_video"):
        raise AssayError(f"{path} describes {kind!r}, not sam2", fix="name a SAM 2.1 Hiera-tiny checkpoint")
    blocks = _inside(config, "vision_config", "backbone_config", "blocks_per_stage") or _TINY_BLOCKS
    if blocks != _TINY_BLOCKS:
        raise AssayError(f"{path} describes a backbone with blocks {blocks}: not Hiera-tiny {_TINY_BLOCKS}")


def _inside(config: Any, *names: str) -> Any:
    """The value under a path of names; None where the document is of another form."""
    for name in names:
        config = config.get(name) if isinstance(config, dict) else None
    return config


def _file_state(path: Path) -> dict[str, torch.Tensor]:
    import torch

    if path.stat().st_size > _LARGEST_CHECKPOINT:
        raise AssayError(f"{path} is larger than 4 GiB: not a SAM 2.1 Hiera-tiny checkpoint")
    if path.suffix == ".safetensors":
        raise AssayError(f"{path} is one file of a folder", fix=f"name the folder: {path.parent}")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise AssayError(
            f"{path} cannot be read as a checkpoint of tensors only: {first}",
            fix="use Meta's sam2.1_hiera_tiny.pt as published; a file that needs its own code is never run",
        ) from error
    state = loaded.get("model", loaded) if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise AssayError(f"{path} holds no state dict", fix="use Meta's sam2.1_hiera_tiny.pt as published")
    return from_meta_names(state)


def _load_state(model: Sam2Model, state: Mapping[str, torch.Tensor], path: Path) -> None:
    wanted = model.state_dict()
    missing = sorted(set(wanted) - set(state))
    if missing:
        raise AssayError(
            f"{path} lacks {len(missing)} of {len(wanted)} tensors, {missing[0]} first",
            fix="use a SAM 2.1 Hiera-tiny checkpoint (2.1, not 2.0)",
        )
    for name, tensor in wanted.items():
        if tuple(state[name].shape) != tuple(tensor.shape):
            found, expected = tuple(state[name].shape), tuple(tensor.shape)
            raise AssayError(f"{path}: {name} is {found}, Hiera-tiny has {expected}")
    model.load_state_dict({name: state[name].float() for name in wanted})
