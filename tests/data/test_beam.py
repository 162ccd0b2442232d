import pytest

from xlingjax.data.beam import RUNNERS, pipeline_options
from xlingjax.errors import UserError


def test_an_unknown_runner_and_words_that_are_no_options():
    with pytest.raises(UserError, match="no runner 'Storm'; there are none, Direct"):
        pipeline_options("Storm")
    pytest.importorskip("apache_beam")
    with pytest.raises(UserError, match="'parallelism=8' is no option of Beam"):
        pipeline_options("Flink", more=["parallelism=8"])


@pytest.mark.parametrize("runner", RUNNERS)
def test_beam_knows_the_runners_and_gets_its_options(runner):
    pytest.importorskip("apache_beam")
    from apache_beam.options.pipeline_options import DirectOptions, StandardOptions
    from apache_beam.runners.runner import create_runner

    options = pipeline_options(runner, 2, ["--job_name=mine"])
    name = options.view_as(StandardOptions).runner
    try:
        assert type(create_runner(name)).__name__ == RUNNERS[runner]
    except ImportError as error:
        # Dataflow's needs Google's client, which is an extra of Beam's.
        assert runner == "Dataflow", error
    assert options.get_all_options()["job_name"] == "mine"
    if runner == "Direct":
        assert options.view_as(DirectOptions).direct_num_workers == 2
