"""The other side: Hugging Face transformers' XLMRobertaForMaskedLM on PyTorch, trained as its users
train it.

Every position is projected onto the vocabulary (labels are -100 where nothing is predicted),
dropout 0.1, PyTorch's fused AdamW, which is what the Trainer class takes by default. bfloat16 is
autocast over float32 weights.
"""

import resource
import time

import numpy as np
import torch
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from benchmarks.shapes import Shape, batch


class Theirs:
    def __init__(self, shape: Shape, platform: str, compiled: bool):
        self.device = "cpu"
        if platform == "gpu":
            self.device = "cuda"
        torch.manual_seed(0)
        config = XLMRobertaConfig(
            vocab_size=shape.vocab,
            hidden_size=shape.dim,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.ffn,
            max_position_embeddings=514,
            type_vocab_size=1,
            pad_token_id=1,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
        )
        self.autocast = torch.autocast(
            self.device, torch.bfloat16, enabled=shape.dtype == "bfloat16"
        )
        self.model = XLMRobertaForMaskedLM(config).to(self.device).train()
        self.forward = self.model
        if compiled:
            self.forward = torch.compile(self.model)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, weight_decay=0.01, fused=True
        )
        self.batches = [self.tensors(batch(shape, seed)) for seed in range(4)]
        started = time.perf_counter()
        self.run(1)
        self.compile_seconds = 0.0
        if compiled:
            self.compile_seconds = time.perf_counter() - started
        self.run(2)

    def tensors(self, rows: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
        labels_BL = np.full_like(rows["input_ids"], -100)
        np.put_along_axis(labels_BL, rows["masked_positions"], rows["masked_targets"], 1)
        named = {
            "input_ids": rows["input_ids"],
            "attention_mask": rows["pack_ids"],
            "labels": labels_BL,
        }
        return {
            name: torch.tensor(array, dtype=torch.long, device=self.device)
            for name, array in named.items()
        }

    def run(self, steps: int) -> float:
        """Seconds of `steps` steps."""
        if self.device == "cuda":
            # Its memory was given back after the last turn.
            self.take(1)
        started = time.perf_counter()
        self.take(steps)
        seconds = time.perf_counter() - started
        if self.device == "cuda":
            torch.cuda.empty_cache()
        return seconds

    def take(self, steps: int) -> None:
        for index in range(steps):
            with self.autocast:
                loss = self.forward(**self.batches[index % len(self.batches)]).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if self.device == "cuda":
            torch.cuda.synchronize()
        loss.item()

    def peak_bytes(self) -> int:
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
