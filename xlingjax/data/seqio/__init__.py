"""SeqIO and TensorFlow: imported here and in `tasks/` alone, where a SeqIO mixture is named."""

import contextlib
import os
import sys

_UNUSED = ("matplotlib", "pandas", "scipy", "sklearn")
"""What Keras imports where it is installed, for plots and wrappers that nothing here has a use for:
together as long as half of TensorFlow."""


def _import_tensorflow() -> None:
    """As `import tensorflow`, without `_UNUSED`, which can be imported again afterwards."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    hidden = [name for name in _UNUSED if name not in sys.modules]
    with contextlib.ExitStack() as stack:
        for name in hidden:
            # Python's own mark of a module that cannot be imported.
            sys.modules[name] = None
            stack.callback(sys.modules.pop, name)
        import tensorflow  # noqa: F401

        # Its Keras comes lazily, as soon as this has a layer.
        import tensorflow_text  # noqa: F401


def keep_tensorflow_off_accelerators() -> None:
    """They are JAX's: TensorFlow takes all memory of every GPU that it sees, as soon as it makes a
    tensor."""
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices([], "GPU")


if "tensorflow" not in sys.modules:
    _import_tensorflow()
# Before any file of this folder: behind SeqIO's import `xlingjax.tasks` registers the embedded
# corpus, which imports these files.
import seqio  # noqa: E402, F401
