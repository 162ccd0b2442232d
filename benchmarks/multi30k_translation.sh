#!/bin/bash
# Where a translator of real text starts, and what it learns: German captions of images into English, from random weights, from an MLM of
# the same captions, and from VECO on their pairs, which starts from that MLM.
#
#   benchmarks/multi30k_translation.sh TRAIN DEV TEST OUT [STEPS]
#
# TRAIN: folder of de-en.de de-en.en (line-aligned). DEV, TEST: stems of held-out captions: TEST.de, TEST.en.
# The table is OUT/table.md: BLEU (sacreBLEU) on the first 200 of DEV over the steps (greedy), and OUT/test.md on TEST (beam 5).
set -euo pipefail
train=$1 dev=$2 test=$3 out=$4 steps=${5:-4000}
. "$(dirname "$0")/runs.sh"
[ -f "$out/vocab/vocab.model" ] ||
  "$xlingjax" vocab --mono "$train/de-en.de" "$train/de-en.en" --size 6000 --character-coverage 1 --to "$out/vocab"

encoder() { # NAME STEPS ARGUMENTS
  finished "$out/$1" || run "$out/$1.log" pretrain --to "$out/$1" "${@:3}" --gin.MONO="$train/de-en.de $train/de-en.en" \
    --gin.VOCABULARY="$out/vocab" --gin.LANGUAGE_EMBEDDING=True --gin.BATCH=16 --gin.TRAIN_STEPS="$2" --gin.EVAL_EVERY=0 \
    --gin.train.evaluators='[]'
}
encoder mlm 4000 --gin-file gin/recipes/xlm_tiny_mlm.gin --gin.PARALLEL=None
wait
encoder veco 2000 --gin-file gin/recipes/veco_tiny.gin --gin.PARALLEL="$train/de-en.de" --gin.VECO_WEIGHT=1 --gin.INIT_FROM="$out/mlm" \
  --gin.FIRST_PHASE=400 --gin.VECO_RESET_POSITIONS=False --gin.VECO_FACTORS=None # as measured
wait

translator() { # NAME ENCODER
  finished "$out/mt-$1" || run "$out/mt-$1.log" pretrain --gin-file gin/recipes/xlm_mt_tiny.gin --to "$out/mt-$1" \
    --gin.VOCABULARY="$out/vocab" --gin.PARALLEL="$train/de-en.de" --gin.DIRECTIONS=de-en --gin.HELDOUT_PAIRS="$dev" \
    --gin.TEST_PAIRS="$test" --gin.test/generation_score.beams=5 --gin.INIT_ENCODER="$2" --gin.INIT_DECODER="$2" \
    --gin.TRAIN_STEPS="$steps" --gin.EVAL_EVERY="$((steps / 4))" --gin.LEARNING_RATE=2e-3 --gin.DROPOUT=0.1
}
translator random None
for from in mlm veco; do
  translator "$from" "$out/$from"
done
wait
"$python" -m benchmarks.bleu_table "$out"/mt-*/ | tee "$out/table.md"
"$python" -m benchmarks.bleu_table --name generation_test "$out"/mt-*/ | tee "$out/test.md"
