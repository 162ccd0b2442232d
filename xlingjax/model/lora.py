"""Low-rank additions to the products of the layers (LoRA, Hu et al. 2021), as one product again."""

from typing import Any

import numpy as np

from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened, nested

IN, OUT = "lora_in", "lora_out"


def merged(config: ModelConfig, params: Any) -> tuple[ModelConfig, Any]:
    """The same model without them: each is part of the kernel that it is added to."""
    if not config.lora:
        return config, params
    flat = {name: np.asarray(value) for name, value in flattened(params).items()}
    for name in [name for name in flat if name.endswith(f"/{IN}")]:
        module = name.removesuffix(IN)
        kernel, inwards = flat[f"{module}kernel"], flat.pop(name)
        outwards = flat.pop(f"{module}{OUT}")
        # Those of all layers are one array.
        layers, rank = len(kernel), config.lora
        added = inwards.reshape(layers, -1, rank) @ outwards.reshape(layers, rank, -1)
        flat[f"{module}kernel"] = kernel + added.reshape(kernel.shape) * config.lora_scale
    return config.replace(lora=0, lora_scale=ModelConfig.lora_scale), nested(flat)
