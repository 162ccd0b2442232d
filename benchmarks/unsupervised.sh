#!/bin/bash
# Translation without a pair: English and German of the embedded corpus, from an MLM on their text, and from random weights.
#
#   benchmarks/unsupervised.sh OUT
#
# Tables: OUT/table.md: BLEU (sacreBLEU) of 200 held-out sentences a direction, over the steps; OUT/test.md: of all 600, at the end.
set -euo pipefail
out=$1
. "$(dirname "$0")/runs.sh"
[ -f "$out/data/manifest.json" ] ||
  "$xlingjax" demo "$out/data" --languages en de --size pairs=100
[ -f "$out/vocab/vocab.model" ] || "$xlingjax" vocab --mono "$out/data/mono" --size 1500 --character-coverage 1 --to "$out/vocab"

text=(--gin.MONO="$out/data/mono" --gin.VOCABULARY="$out/vocab" --gin.HELDOUT_PAIRS="$out/data/heldout/parallel")
finished "$out/mlm" || run "$out/mlm.log" pretrain --gin-file gin/recipes/xlm_tiny_mlm.gin --to "$out/mlm" "${text[@]}" --gin.PARALLEL=None \
  --gin.LANGUAGE_EMBEDDING=True --gin.BATCH=16 --gin.TRAIN_STEPS=8000 --gin.HELDOUT_TEXT="$out/data/heldout/mono"
wait

translator() { # NAME ENCODER
  finished "$out/$1" || run "$out/$1.log" pretrain --gin-file gin/recipes/xlm_unmt_tiny.gin --to "$out/$1" "${text[@]}" \
    --gin.LANGUAGES='de en' --gin.INIT_ENCODER="$2" --gin.TEST_PAIRS="$out/data/heldout/parallel"
}
translator from-mlm "$out/mlm"
translator from-random None
wait
"$python" -m benchmarks.bleu_table "$out"/from-*/ | tee "$out/table.md"
"$python" -m benchmarks.bleu_table --name generation_test "$out"/from-*/ | tee "$out/test.md"
