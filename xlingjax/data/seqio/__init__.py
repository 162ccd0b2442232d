"""SeqIO and TensorFlow: imported here and in `tasks/` alone, where a SeqIO mixture is named."""

from xlingjax.runtime.tensorflow import prepare_tensorflow

prepare_tensorflow()


def keep_tensorflow_off_accelerators() -> None:
    """They are JAX's: TensorFlow takes all memory of every GPU it sees with its first tensor."""
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices([], "GPU")


# Before the other files here: upon it `xlingjax.tasks` registers the corpus, which imports them.
import seqio  # noqa: E402, F401
