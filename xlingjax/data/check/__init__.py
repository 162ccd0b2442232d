"""What is wrong with a corpus, found before a run."""

from xlingjax.data.check.corpus import check as check
from xlingjax.data.check.findings import Findings as Findings
