"""Apache Beam, where one process is outgrown: the runners by their short names, and their options.

Only this and what builds a pipeline imports Beam, so that one may do without the extra `beam`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from xlingjax.errors import UserError, meant
from xlingjax.runtime.quiet import quiet_stderr

NO_RUNNER = "none"  # one process, without Beam
RUNNERS = {
    "Direct": "FnApiRunner",
    "Flink": "FlinkRunner",
    "Spark": "SparkRunner",
    "Dataflow": "DataflowRunner",
}
# Of the three that Beam's DirectRunner picks from, the one in the package with processes.
_DIRECT = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


def pipeline_options(runner: str, workers: int = 1, more: Sequence[str] = ()) -> Any:
    """Beam's PipelineOptions of one of `RUNNERS`. workers: processes of `Direct`, which other
    runners take among `more`, Beam's own options ("--parallelism=8"), the last word on each.

    Raises UserError: an unknown runner, the extra `beam` missing, words that are not options.
    """
    if runner not in RUNNERS:
        raise UserError(f"no runner {runner!r}{meant(runner, [NO_RUNNER, *RUNNERS])}")
    if importlib.util.find_spec("apache_beam") is None:
        raise UserError(
            f"--runner {runner} needs Apache Beam: `pip install 'xlingjax[beam]'`, or --runner"
            f" {NO_RUNNER} for one process"
        )
    for word in more:
        if not word.startswith("--"):
            raise UserError(
                f"{word!r} is no option of Beam: write them behind `--`, like -- --parallelism=8"
            )
    # Its import warns of clients of Google's that nothing here needs.
    with quiet_stderr():
        from apache_beam.options.pipeline_options import PipelineOptions

    if runner != "Direct":
        return PipelineOptions([f"--runner={RUNNERS[runner]}", *more])
    own = [f"--runner={_DIRECT}", f"--direct_num_workers={workers}"]
    if workers > 1:
        own.append("--direct_running_mode=multi_processing")
    return PipelineOptions([*own, *more])
