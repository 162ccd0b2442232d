"""What a step is said to need before it is compiled. What compilers then say: test_tpu.py."""

import jax
import pytest
from jax.sharding import AbstractMesh

from xlingjax.config.recipe import read_recipe
from xlingjax.errors import UserError
from xlingjax.model.partition import AXES, MeshConfig, make_mesh
from xlingjax.training import step_memory
from xlingjax.training.step_memory import Needs, microbatches_for

READ = ["PARALLEL=pairs/*", "INIT_FROM=run"]
BASE = 278_294_418
"""Parameters of XLM-R base."""
VOCABULARY = 250_112
GIVEN = ["MONO=text/*", "VOCABULARY=vocab", "LANGUAGES=de en", "BATCH=256"]


def needs_of(name, *given, platform="gpu"):
    bound = read_recipe([name], [*GIVEN, *given]).bound
    return Needs(bound["model"], bound["optimizer"], bound["objectives"], platform)


def mesh(data, fsdp=1, tensor=1):
    return AbstractMesh((data, fsdp, tensor), AXES)


def test_of_a_base_model():
    needs = needs_of("xlmr_base", "LOSS_CHUNK=0")
    eight = needs.on(mesh(8), 1)
    # With the rows that fill the table up.
    assert eight["parameters"] == eight["gradients"] == pytest.approx(4 * BASE, rel=1e-3)
    assert eight["moments"] == pytest.approx(2 * 4 * BASE, rel=1e-3)
    # 77 of 512 tokens are predicted, in 32 rows: logits in float32, their gradients in 16 bits,
    # and the table's gradient.
    assert eight["vocabulary"] == (4 + 2) * 32 * 77 * VOCABULARY + 4 * VOCABULARY * 768
    # Each layer keeps of its attention a row of L for each query and head at least, in 16 bits.
    assert eight["activations"] > 12 * 32 * 12 * 512 * 512 * 2
    # By the rows alone.
    four = needs.on(mesh(8), 4)
    assert four["activations"] == pytest.approx(eight["activations"] / 4, rel=0.01)
    assert four["gradients"] == 2 * eight["gradients"]
    assert needs.on(mesh(32), 1)["activations"] == four["activations"]
    # With the compiler of GPUs 15.42 GB (XLM-R base, 256 rows on eight H100s).
    chunked = needs_of("xlmr_base").on(mesh(8), 1)
    assert sum(chunked.values()) == pytest.approx(15.42e9, rel=0.1)
    # TPUs keep gradients of logits in float32 where the table is shared out.
    gpu, tpu = (needs_of("xlmr_base", platform=name) for name in ("cuda", "tpu"))
    more = tpu.on(mesh(1, 8), 1, chunk=0)["vocabulary"]
    more -= gpu.on(mesh(1, 8), 1, chunk=0)["vocabulary"]
    assert more == 2 * 32 * 77 * VOCABULARY


def test_what_is_recomputed_is_not_kept():
    needs = needs_of("xlmr_base")
    none, dots, full = (
        needs.on(mesh(8), 1, remat)["activations"] for remat in ("none", "dots", "full")
    )
    assert full < dots < none / 2
    # The input of each layer, in 16 bits, and all of one; embeddings and the head besides.
    assert full == pytest.approx(12 * 32 * 512 * 768 * 2 + none / 12, rel=0.2)


def logits(needs, each, tokens):
    """What they add to 64 rows of a device."""
    table = 4 * needs.config.padded_vocab_size * needs.config.dim
    found = needs.on(mesh(4), 1, chunk=0)["vocabulary"] - table
    assert found == each * 64 * tokens * needs.config.padded_vocab_size


def test_of_all_terms_logits_are_there_at_once():
    # Each of two streams predicts all 71 words of a target.
    logits(needs_of("xfnp", "DTYPE=bfloat16"), 6, 2 * 71)
    # The masked words of each side by that side alone and by both, of both sides by TLM.
    veco = needs_of("veco_large", *READ)
    *_, pairs = range(len(veco._runs))
    assert veco._predictions(pairs) == [22, 22, 22, 22, 44]
    # A classifier has none.
    clpc = needs_of("unicoder", *READ, "DOCUMENTS=documents/*", "NEGATIVES=wrong/*")
    names = [run.objective.name for run in clpc._runs]
    assert clpc._predictions(names.index("clpc")) == []


def test_what_a_mesh_shares_out():
    needs = needs_of("xlmr_base")
    whole, shared, split = (
        needs.on(mesh(*sizes), 1) for sizes in ((1, 1, 1), (1, 8, 1), (1, 1, 4))
    )
    for part in ("parameters", "moments", "gradients"):
        assert 1 / 8 <= shared[part] / whole[part] < 1.02 / 8
    assert shared["activations"] == pytest.approx(whole["activations"] / 8, rel=0.01)
    # Heads and feed-forward, not the states between layers.
    assert 1 / 4 < split["activations"] / whole["activations"] < 1 / 2


# One head: [1, L, F] of the feed-forward looks like scores. 64 tokens: as many as a head is wide.
@pytest.mark.parametrize(("heads", "length"), [(12, 512), (1, 128), (12, 64)])
def test_a_kernel_keeps_no_square(heads, length):
    given = ["ATTENTION_DROPOUT=0.0", f"model.heads={heads}", f"LENGTH={length}"]
    xla = needs_of("xlmr_base", *given).on(mesh(8), 1)
    cudnn = needs_of("xlmr_base", *given, "ATTENTION=cudnn").on(mesh(8), 1)
    # Of `xla` the weights alone, once, in 16 bits.
    square = 12 * 32 * heads * length * length
    assert xla["activations"] - cudnn["activations"] == pytest.approx(2 * square, rel=0.02)


def test_microbatches_are_as_few_as_fit(monkeypatch):
    needs, devices = needs_of("xlmr_base"), jax.device_count()
    all_rows = make_mesh()
    two_rows = sum(needs.on(all_rows, 16).values())
    monkeypatch.setattr(step_memory, "device_bytes", lambda: int(two_rows / step_memory.SHARE) + 1)
    assert microbatches_for(needs, all_rows, 256) == 16
    monkeypatch.setattr(step_memory, "device_bytes", lambda: 4 * BASE)
    with pytest.raises(UserError, match=r"one row needs about [\d.]+ GB, .* shorten the rows"):
        microbatches_for(needs, all_rows, 256)
    with pytest.raises(UserError, match=f"a batch of 4 rows does not spread over {devices}"):
        microbatches_for(needs, make_mesh(MeshConfig(1, -1)), 4)
