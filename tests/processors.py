"""What ``preprocessor_config.json`` says on the hub for networks that people use, written by hand from there."""

from __future__ import annotations

from typing import Any

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}

PROCESSORS: dict[str, dict[str, Any]] = {
    "vit": {
        **HALF,
        "do_normalize": True, "do_rescale": True, "do_resize": True, "image_processor_type": "ViTImageProcessor",
        "resample": 2, "rescale_factor": 0.00392156862745098, "size": {"height": 224, "width": 224},
    },
    "dinov2": {
        **IMAGENET,
        "crop_size": {"height": 224, "width": 224}, "do_center_crop": True, "do_convert_rgb": True,
        "do_normalize": True, "do_rescale": True, "do_resize": True, "image_processor_type": "BitImageProcessor",
        "resample": 3, "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": 256},
    },
    "clip": {  # the old form: sizes are numbers
        **CLIP,
        "crop_size": 224, "do_center_crop": True, "do_normalize": True, "do_resize": True,
        "feature_extractor_type": "CLIPFeatureExtractor", "resample": 3, "size": 224,
    },
    "siglip": {
        **HALF,
        "do_normalize": True, "do_rescale": True, "do_resize": True,
        "image_processor_type": "SiglipImageProcessor", "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": 224, "width": 224},
    },
    "dinov3": {
        **IMAGENET,
        "crop_size": None, "do_center_crop": None, "do_normalize": True, "do_rescale": True, "do_resize": True,
        "image_processor_type": "DINOv3ViTImageProcessorFast", "resample": 2,
        "rescale_factor": 0.00392156862745098, "size": {"height": 224, "width": 224},
    },
    "swin": {
        **IMAGENET,
        "do_normalize": True, "do_rescale": True, "do_resize": True, "image_processor_type": "ViTImageProcessor",
        "resample": 3, "rescale_factor": 0.00392156862745098, "size": {"height": 224, "width": 224},
    },
    "convnext": {
        **IMAGENET,
        "crop_pct": 0.875, "do_normalize": True, "do_resize": True,
        "feature_extractor_type": "ConvNextFeatureExtractor", "resample": 3, "size": 224,
    },
}  # fmt: skip
