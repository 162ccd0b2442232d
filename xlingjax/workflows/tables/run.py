"""A table's jobs, done by one command or by several that share them."""

from collections.abc import Sequence
from pathlib import Path

from xlingjax.workflows.jobs.many import Say, Stop, run_all
from xlingjax.workflows.tables.jobs import command_of
from xlingjax.workflows.tables.table import Table


def run(
    table: Table,
    data: str | Path,
    output: str | Path,
    arguments: Sequence[str] = (),
    say: Say = print,
) -> None:
    """Run the jobs, but for those that another command on `output` is at. data: folder of the
    benchmarks' files. output: of the folders of the sweeps. arguments: given to every command
    (`--platform cpu`). Raises UserError naming the row that failed; Stopped after SIGTERM, SIGINT
    or SIGHUP.
    """
    for name, why in table.left_out().items():
        say(f"left out, since {why}: {name}")
    stop = Stop("table")
    with stop.listen():
        jobs = table.jobs(data, output)
        run_all([command_of(job, arguments, stop, say) for job in jobs], say=say, stop=stop)
        # A signal that found the last sweep at its end is a request to stop all the same.
        stop.leave_if_requested()
