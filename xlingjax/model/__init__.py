"""The network and its masks, meshes and searches; the only room that imports Flax."""
