"""What the import of TensorFlow leaves behind."""

import subprocess
import sys


def test_without_a_home_no_folder_is_made(tmp_path):
    """In a process of its own, which imports Keras anew, as a user without HOME or passwd entry."""
    code = "import os; os.path.expanduser = lambda path: path; import xlingjax.data.seqio"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert not [*tmp_path.iterdir()]
