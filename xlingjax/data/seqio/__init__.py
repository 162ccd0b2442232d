"""SeqIO and TensorFlow: imported here and in `tasks/` alone, where a SeqIO mixture is named."""

from xlingjax.data.seqio.imports import import_tensorflow

import_tensorflow()
# Before any file of this folder: behind SeqIO's import `xlingjax.tasks` registers the embedded
# corpus, which imports these files.
import seqio  # noqa: E402, F401
