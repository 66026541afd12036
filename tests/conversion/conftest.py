"""A SAM 2.1 with few and narrow layers: every kind of block of the real one, in a fraction of a second."""

from typing import Any

import pytest


@pytest.fixture(scope="session")
def small_sam2() -> Any:
    """A random model for 128 x 128 images: 5 blocks (windowed, pooled, global, padded), 32 channels."""
    torch = pytest.importorskip("torch")
    from transformers import Sam2Config

    from assay.conversion.sam2.weights import random_model

    torch.set_num_threads(1)
    backbone = {
        "model_type": "sam2_hiera_det_model",
        "hidden_size": 8,
        "image_size": [128, 128],
        "blocks_per_stage": [1, 1, 2, 1],
        "embed_dim_per_stage": [8, 16, 32, 64],
        "num_attention_heads_per_stage": [1, 2, 2, 2],
        "window_size_per_stage": [8, 4, 6, 4],
        "global_attention_blocks": [3],
    }
    vision = {
        "model_type": "sam2_vision_model",
        "backbone_config": backbone,
        "backbone_channel_list": [64, 32, 16, 8],
        "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
        "fpn_hidden_size": 32,
    }
    config = Sam2Config(
        vision_config=vision,
        prompt_encoder_config={"image_size": 128, "hidden_size": 32},
        mask_decoder_config={
            "hidden_size": 32,
            "mlp_dim": 64,
            "num_attention_heads": 4,
            "iou_head_hidden_dim": 32,
        },
    )
    return random_model(config, 0)
