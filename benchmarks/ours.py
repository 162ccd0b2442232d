"""Our side: the training step that `xlingjax pretrain` runs."""

import time
from typing import Any

import jax

from benchmarks.shapes import Shape, batch
from xlingjax.data.batches.loader import to_global
from xlingjax.model.config import preset
from xlingjax.model.encoder import Encoder
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh
from xlingjax.objectives.xlm import MLM
from xlingjax.runtime.machine import keep_freed_memory
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.progress import peak_memory_bytes
from xlingjax.training.step import abstract_state, lower_state, make_train_step, run_key


class Ours:
    def __init__(self, shape: Shape, platform: str, variant: str = ""):
        # Compile seconds are part of the result.
        jax.config.update("jax_enable_compilation_cache", False)
        attention: dict[str, Any] = {}
        if variant == "flash":
            attention = {"attention_backend": "flash"}
        generator = "rbg"
        if variant == "threefry":
            generator = "threefry2x32"
        unroll = 1
        # A chunk of 2048 predictions keeps the logits of a large vocabulary near 2 GB.
        chunk = 2048
        if platform == "cpu":
            unroll = 0
            chunk = 0
        keep_freed_memory()
        mesh = make_mesh(MeshConfig(), jax.devices()[:1])
        config = preset(
            "xlmr_base",
            layers=shape.layers,
            dim=shape.dim,
            heads=shape.heads,
            ffn=shape.ffn,
            vocab_size=shape.vocab,
            dtype=shape.dtype,
            unroll=unroll,
            **attention,
        )
        objective = MLM(chunk=chunk)
        settings = OptimizerConfig(
            learning_rate=1e-4, schedule="constant", warmup_steps=0, weight_decay=0.01
        )
        encoder = Encoder(config)
        rule = make_optimizer(settings, 1000, encoder.abstract())
        shardings = jax.tree.map(
            lambda leaf: leaf.sharding, abstract_state(mesh, encoder, rule, settings)
        )
        self.state = lower_state(encoder, rule, settings, shardings).compile()(jax.random.key(0))
        rows = [batch(shape, seed) for seed in range(4)]
        shapes = {name: array.shape for name, array in rows[0].items()}
        self.batches = [to_global(one, batch_sharding(mesh), shapes) for one in rows]
        step = make_train_step(
            shardings=shardings,
            model=encoder,
            objective=objective,
            languages=1,
            optimizer=rule,
            config=settings,
            microbatches=1,
        )
        self.key = run_key(0, generator, mesh)
        started = time.perf_counter()
        self.step = step.lower(self.state, self.batches[0], self.key).compile()
        self.compile_seconds = time.perf_counter() - started
        self.run(2)

    def run(self, steps: int) -> float:
        """Seconds of `steps` steps."""
        started = time.perf_counter()
        for index in range(steps):
            self.state, sums = self.step(
                self.state, self.batches[index % len(self.batches)], self.key
            )
        jax.block_until_ready((self.state, sums))
        return time.perf_counter() - started

    def peak_bytes(self) -> int:
        return peak_memory_bytes()
