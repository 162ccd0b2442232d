"""TensorFlow's first import, which is most of what a command waits for before its work begins."""

import contextlib
import os
import sys

UNUSED = ("matplotlib", "pandas", "scipy", "sklearn")
"""What Keras imports where it is installed, for plots and wrappers that nothing here has a use for:
together as long as half of TensorFlow."""


def import_tensorflow() -> None:
    """As `import tensorflow`, without `UNUSED`, which are there again afterwards. To be called
    before anything else imports it, SeqIO too; elsewhere the import only takes longer."""
    if "tensorflow" in sys.modules:
        return
    hidden = [name for name in UNUSED if name not in sys.modules]
    with contextlib.ExitStack() as stack:
        for name in hidden:
            # Python's own mark of a module that cannot be imported.
            sys.modules[name] = None
            stack.callback(sys.modules.pop, name)
        import tensorflow  # noqa: F401

        # Its Keras comes lazily, as soon as this has a layer.
        import tensorflow_text  # noqa: F401


def keep_tensorflow_off_accelerators() -> None:
    """They are JAX's."""
    # Read when TensorFlow is imported, so it stands before that.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import_tensorflow()
    import tensorflow as tf

    # TensorFlow takes all memory of every GPU that it sees, as soon as it makes a tensor.
    if tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices([], "GPU")
