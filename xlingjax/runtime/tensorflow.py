"""What TensorFlow and Keras read from the environment when they are imported."""

import os


def prepare_tensorflow() -> None:
    """Before they are imported: TensorFlow logs errors only; Keras, which keeps its settings in the
    home folder, keeps none where there is no home, instead of making a folder named "~"."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if os.path.expanduser("~") == "~":
        os.environ.setdefault("KERAS_HOME", os.devnull)
