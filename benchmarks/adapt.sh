#!/bin/bash
# `xlingjax adapt` on real text: a small model with XLM-R's shape, trained on German, English, French and Chinese and exported to a
# Hugging Face folder, goes on with Swahili, English and their pairs; then the recipe that adapt wrote is run again.
#
#   benchmarks/adapt.sh DATA OUT [STEPS] [HOURS]
#
# DATA: mono/CODE/*.txt and parallel/*/en-sw.{en,sw}. Tables: what adapt prints at the end; OUT/again.md compares the two runs.
set -euo pipefail
data=$1 out=$2 steps=${3:-4000} hours=${4:-0.15}
. "$(dirname "$0")/runs.sh"
"$python" -c 'import torch, transformers' 2> /dev/null || { echo "make .venv/.ready-interop: the export is compared with transformers"; exit 2; }
text=$(for code in de en fr zh; do echo "$data/mono/$code/*.txt"; done)
[ -f "$out/vocab/vocab.model" ] ||
  "$xlingjax" vocab --mono $(ls $text "$data"/mono/sw/*.txt) --size 8000 --to "$out/vocab" # the folder names the language
finished "$out/small" || run "$out/small.log" pretrain --gin-file gin/recipes/xlmr_base.gin --to "$out/small" \
  --gin.MONO="$(echo $text)" --gin.VOCABULARY="$out/vocab" --gin.VOCABULARY_SIZE=None --gin.LAYERS=4 --gin.model.dim=192 \
  --gin.model.heads=3 --gin.model.ffn=768 --gin.DTYPE=float32 --gin.UNROLL=0 --gin.ATTENTION_DROPOUT=0 --gin.BATCH=16 --gin.LENGTH=64 \
  --gin.TRAIN_STEPS="$steps" --gin.LEARNING_RATE=1e-3 --gin.WARMUP_STEPS=200 --gin.EVAL_EVERY=0 --gin.CHECKPOINT_EVERY=1000
wait
[ -d "$out/hf" ] || "$xlingjax" export "$out/small" --to "$out/hf"

SECONDS=0
"$xlingjax" adapt "$out/hf" --to "$out/adapted" --mono "$data/mono/en/*.txt" "$data/mono/sw/*.txt" \
  --parallel "$data/parallel/*/en-sw.*" --objectives mlm tlm camlm --hours "$hours" --batch 16 --length 64 \
  --gin.LEARNING_RATE=5e-4 --gin.ATTENTION_DROPOUT=0 | tee "$out/adapted.log"
echo "adapt took $SECONDS s"
"$xlingjax" pretrain --gin-file "$out/adapted/recipe.gin" --to "$out/again" > "$out/again.log"
"$python" - "$out/adapted/run" "$out/again" <<'END' | tee "$out/again.md"
import sys

import jax
import numpy as np

from xlingjax.workflows.adapt.before_after import compared, table
from xlingjax.report.run import read_run
from xlingjax.inference.run import open_run

first, again = sys.argv[1:]
print(table(compared(read_run(first), read_run(again))).replace("before", " first").replace("after", "again"))
same = jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), open_run(first).params, open_run(again).params)
print("the same weights:", all(jax.tree.leaves(same)))
END
