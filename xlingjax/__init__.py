"""xlingjax: cross-lingual pretraining in JAX."""

__version__ = "0.1.0"
