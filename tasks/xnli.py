"""XNLI alone (Conneau et al. 2018, arXiv:1809.05053), with MultiNLI translated for translate-train
and the test sets translated for translate-test.

Read from the authors' archives (XNLI-1.0, XNLI-MT-1.0), or from XTREME's download folder.
"""

from __future__ import annotations

import dataclasses

from xlingjax.tasks.xtreme import RAW_XNLI, multinli, places, raw_xnli
from xlingjax.tasks.xtreme import TASKS as XTREME

_xtreme = next(task for task in XTREME if task.name == "xnli")
_own = {
    "train": multinli(("en",)),
    "dev": raw_xnli("dev"),
    "test": raw_xnli("test"),
    "translate_train": multinli(),
    # XNLI-MT has all languages' test sets, translated into English, in one file.
    "translate_test": places(
        "XNLI-MT-1.0/xnli/xnli.test.en.tsv", read=dataclasses.replace(RAW_XNLI, translated=True)
    ),
}

TASKS = (
    dataclasses.replace(
        _xtreme,
        suite="xnli",
        files={
            # The authors' archives come first here, XTREME's folder in `xtreme/xnli`.
            split: _own[split] + places
            for split, places in _xtreme.files.items()
        },
    ),
)
