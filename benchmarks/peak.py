"""The matrix-product peak of this machine, measured: the denominator of utilisation."""

import time

import jax
import jax.numpy as jnp


def matmul_flops_per_second(dtype: str, size: int = 0, seconds: float = 1.0) -> float:
    """Best rate over square products of a few sizes (a multiply-add is 2)."""
    on_cpu = jax.default_backend() == "cpu"
    sizes = (4096, 8192)
    if on_cpu:
        sizes = (1024, 2048)
    if size:
        sizes = (size,)
    best = 0.0
    for n in sizes:
        a, b = (
            jax.random.normal(jax.random.key(i), (n, n), jnp.float32).astype(dtype)
            for i in range(2)
        )
        product = jax.jit(jnp.matmul)
        product(a, b).block_until_ready()
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            started = time.perf_counter()
            for _ in range(4):
                c = product(a, b)
            c.block_until_ready()
            best = max(best, 4 * 2 * n**3 / (time.perf_counter() - started))
    return best
