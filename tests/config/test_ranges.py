"""Where the settings of a recipe end: the first value that is refused, in one line that says where
it is bound and what is needed, before a file is read."""

import pytest

from xlingjax.config import recipe as recipes
from xlingjax.errors import SettingError, UserError
from xlingjax.model.config import preset
from xlingjax.training.checkpoint import CheckpointConfig
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.workflows.bakeoff.runs import Bakeoff
from xlingjax.workflows.tables.table import Table

OWN_TEXT = """include "recipes/xlm_text.gin"
MONO = "text"
PARALLEL = "pairs"
VOCABULARY = "vocab"
VOCABULARY_SIZE = 400
LANGUAGES = "de en"
"""
# What the recipe does not bind of the parts that it does not read.
TEXT = """btmlm camlm cl_mlm clm clpc clwr back_translation denoising generation span_corruption
translation veco xfnp hardest_negative""".split()  # noqa: SIM905
CORPUS = """classification merged_tasks task task_score
pseudo_perplexity generation_score"""
NEEDED = {name: [f"{name}.text = @text()"] for name in TEXT}
NEEDED |= {name: [f"{name}.corpus = @corpus()"] for name in CORPUS.split()}
NEEDED["merged_tasks"] += [
    "merged_tasks.tasks = 'xglue/xnli xglue/pawsx'",
    "merged_tasks.data = 'd'",
]
NEEDED["task"] += ["task.name = 'xtreme/xnli'", "task.data = 'data'"]
NEEDED["task_score"] += ["task_score.task = 'xtreme/xnli'", "task_score.data = 'data'"]
NEEDED["bakeoff"] = ["bakeoff.base = ['xlm_tiny']", "bakeoff.mixes = {'mlm': []}"]
NEEDED["table"] = [
    "table.rows = {'nli': {'task': 'xtreme/xnli'}}",
    "table.encoders = {'base': 'run'}",
]
NEEDED["swept"] = [
    "swept.epochs = 1",
    "swept.evaluations = 1",
    "swept.select = 'mean'",
    "swept.test_split = 'test'",
    "swept.test_languages = 'all'",
    "swept.test_beams = 1",
]
RANGES = """
mlm.batch = 0                           | a number from 1 to 16777216
mlm.batch = 2.5                         | a whole number
classification.batch = 0                | a number from 1 to 16777216
merged_tasks.batch = 0                  | a number from 1 to 16777216
task.batch = 0                          | a number from 1 to 16777216
perplexity.length = 1048577             | a number from 1 to 1048576
reading.length = 1048577                | a number from 1 to 1048576
tlm.max_pieces = 0                      | a number of 1 or more
mlm.chunk = -1                          | a number of 0 or more
clm.context_size = -1                   | a number of 0 or more
train.microbatches = 0                  | a number of 1 or more
text.data_shards = 0                    | a number of 1 or more
text.prefetch = -1                      | a number of 0 or more
masking.rate = 0                        | a number above 0 and below 1
masking.rate = True                     | a number
masking.mask = 1.1                      | a number from 0 to 1
masking.count = 'exakt'                 | 'exact' or 'bernoulli' (did you mean 'exact'?)
masking.subsampling = -0.5              | a number of 0 or more
span_corruption.density = 0             | a number above 0 and below 1
span_corruption.mean_span = 0.9         | a number of 1 or more
xfnp.block = 0                          | a number of 1 or more
noise.infill = 1                        | a number from 0 to below 1
noise.shuffle = -1                      | a number of 0 or more
noise.unit = 'word'                     | 'words'
btmlm.proportion = 1                    | a number above 0 and below 1
pseudo_perplexity.most = 1              | a number from 0 to below 1
text.holdout = 1                        | a number from 0 to below 1
clpc.negatives = 0                      | a number of 1 or more
sampling.alpha = -0.1                   | a number of 0 or more
sampling.counts = 'bytes'               | 'sentences', 'tokens' or 'mixture'
merged_tasks.weights = {'xnli': -1}     | a number of 0 or more
train.seed = -1                         | a number of 0 or more
classification.seed = -1                | a number of 0 or more
bakeoff.seeds = [0, -1]                 | a number of 0 or more
cl_mlm.parity = 'both'                  | 'even', 'odd' or 'coin'
camlm.layout = 'beside'                 | 'in_place' or 'slots'
pseudo_perplexity.own_masks = 'none'    | 'self' or 'all'
btmlm.decode = 'beam'                   | 'argmax' or 'sample'
denoising.unit = 'words'                | 'sentences' or 'blocks'
reading.pieces = 'last'                 | 'first' or 'all'
translation.factor = -1                 | a number of 0 or more
xfnp.alphas = [1, -1]                   | a number of 0 or more
veco.factors = {'plug_in': -1}          | a number of 0 or more
translation.smoothing = 1               | a number from 0 to below 1
hardest_negative.scale = 0              | a number above 0
hardest_negative.layer = -1             | a number of 0 or more
veco.query = 'output'                   | 'self_attention' or 'input'
model.norm_order = 'middle'             | 'post' or 'pre'
classification.classifier = 'bert'      | 'xlm', 'xlmr', 'pooler'
merged_tasks.classifier = 'bert'        | 'xlm', 'xlmr', 'pooler'
task.classifier = 'bert'                | 'xlm', 'xlmr', 'pooler'
table.dtype = 'float31'                 | 'bfloat16' or 'float16'
model.dim = 0                           | a number from 1 to 1048576
model.heads = 0                         | a number of 1 or more
model.layers = 1.5                      | a whole number
initialisation.encoder_layers = [0, -1] | a number of 0 or more
xfnp.streams = 0                        | a number from 1 to 64
generation.streams = 2147483647         | a number from 0 to 64
model.position_offset = -1              | a number of 0 or more
model.norm_eps = 0                      | a number above 0
optimizer.learning_rate = 0             | a number above 0
optimizer.warmup_steps = -1             | a number of 0 or more
optimizer.decay_steps = 10.5            | a whole number
optimizer.schedule = 'alternate'        | 'constant'
train.schedule = 'linear'               | 'alternate'
train.steps = True                      | a whole number
checkpoint.every = -1                   | a number of 0 or more
checkpoint.keep_last = 0                | a number of 1 or more
checkpoint.best_mode = 'low'            | 'min' or 'max'
stopping.mode = 'low'                   | 'min' or 'max'
stopping.patience = -1                  | a number of 0 or more
mesh.data = 0                           | a number of 1 or more
retrieval.poolings = ['mean', 'median'] | 'mean', 'mean_no_special' or 'first'
retrieval.limit = -1                    | a number of 0 or more
task_score.limit = -1                   | a number of 0 or more
samples.per_language = -1               | a number of 0 or more
generation_score.samples = -1           | a number of 0 or more
generation_score.beams = 0              | a number of 1 or more
reading.beams = 0                       | a number of 1 or more
swept.test_beams = 0                    | a number of 1 or more
reading.no_repeat_ngram = -1            | a number of 0 or more
generation_score.max_length = [1.3]     | a list of 2: a number, a whole number
swept.epochs = 0                        | a number above 0
bakeoff.jobs = 0                        | a number of 1 or more
table.seeds = 0                         | a number of 1 or more
xfnp.skip = 'words'                     | 'target', 'runs' or 'none'
"""
ALLOWED = """
mlm.weight = {0: 1, 10: 0} | mlm.chunk = 0 | masking.mask = 0.9 | masking.rate = {0: 0.1, 9: 0.3}
text.prefetch = 0 | mesh.data = -1 | train.steps = 0 | optimizer.weight_decay = 0
optimizer.schedule = 'inverse_sqrt' | train.schedule = 'summed' | optimizer.layer_decay = 1
model.unroll = 0 | noise.poisson = {'de': 0} | model.layers = 1 | checkpoint.every = 0
"""


@pytest.fixture(scope="module", autouse=True)
def names():
    recipes.register("bakeoff", Bakeoff)
    recipes.register("table", Table)


def built(path, line):
    name = line.partition(".")[0]
    setting = line.partition(" =")[0]
    others = [one for one in NEEDED.get(name, []) if not one.startswith(f"{setting} =")]
    path.write_text("\n".join([f"{OWN_TEXT}{line}", *others, ""]), encoding="utf-8")
    recipes.parse_gin([str(path)], ())
    return recipes.build(name)


@pytest.mark.parametrize("row", RANGES.strip().splitlines())
def test_a_value_out_of_range_is_refused_where_it_is_bound(row, tmp_path):
    line, words = (part.strip() for part in row.split(" | "))
    with pytest.raises(UserError) as error:
        built(tmp_path / "mine.gin", line)
    (message,) = str(error.value).splitlines()
    setting = line.partition(" =")[0]
    assert message.startswith(f"{tmp_path / 'mine.gin'}, line 7: {setting}="), message
    assert words in message and message.endswith(" is needed"), message


@pytest.mark.parametrize(
    "line", [one.strip() for row in ALLOWED.strip().splitlines() for one in row.split(" | ")]
)
def test_the_last_value_in_range_is_built(line, tmp_path):
    built(tmp_path / "mine.gin", line)


def test_a_recipe_is_refused_with_the_macro_that_binds_the_value():
    given = ["MONO=t", "PARALLEL=p", "VOCABULARY=v", "LANGUAGES=de en", "VOCABULARY_SIZE=400"]
    for override, words in {
        "BATCH=0": "BATCH=0: a number from 1 to 16777216 is needed (mlm.batch)",
        "BATCH=2.5": "BATCH=2.5: a whole number is needed (",
        "RETRIEVAL_POOLINGS=['median']": "RETRIEVAL_POOLINGS",
    }.items():
        with pytest.raises(UserError) as error:
            recipes.read_recipe(["xlm_text"], [*given, override])
        assert str(error.value).startswith(f"--gin.{words}"), error.value


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: preset("tiny").replace(layers=1.5), "layers=1.5: a whole number is needed"),
        (lambda: OptimizerConfig(warmup_steps=2.5), "warmup_steps=2.5: a whole number is needed"),
        (lambda: OptimizerConfig(learning_rate=True), "learning_rate=True: a number is needed"),
        (lambda: CheckpointConfig(every=True), "every=True: a whole number is needed"),
    ],
)
def test_the_same_in_python(make, words):
    with pytest.raises(SettingError, match=words):
        make()
