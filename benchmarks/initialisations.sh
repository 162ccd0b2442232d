#!/bin/bash
# Where an encoder-decoder starts, and what it then learns of few pairs: XLM's grid of encoders and decoders, its lookup tables,
# VECO with its cross-attention, fewer layers. English and German of the embedded corpus, both ways, the same steps.
#
#   benchmarks/initialisations.sh OUT [STEPS] [PAIRS]
#
# The table is OUT/table.md: BLEU (sacreBLEU) of 600 held-out sentences a direction, over the steps.
set -euo pipefail
out=$1 steps=${2:-400} pairs=${3:-4000}
. "$(dirname "$0")/runs.sh"
mkdir -p "$out/cells"
[ -f "$out/data/manifest.json" ] ||
  "$xlingjax" demo "$out/data" --languages en de --size "pairs=$pairs" rewordings=0
[ -f "$out/vocab/vocab.model" ] || "$xlingjax" vocab --mono "$out/data/mono" --size 1500 --character-coverage 1 --to "$out/vocab"

common=(--gin.MONO="$out/data/mono" --gin.VOCABULARY="$out/vocab" --gin.LANGUAGE_EMBEDDING=True --gin.EVAL_EVERY=0)
encoder() { # NAME STEPS ARGUMENTS: an encoder on the monolingual text
  finished "$out/$1" || run "$out/$1.log" pretrain --to "$out/$1" "${@:3}" "${common[@]}" \
    --gin.TRAIN_STEPS="$2" --gin.train.evaluators='[]'
}
mlm=(--gin-file gin/recipes/xlm_tiny_mlm.gin --gin.PARALLEL=None --gin.BATCH=16)
encoder mlm 8000 "${mlm[@]}"
encoder clm 8000 "${mlm[@]}" --gin-file gin/objectives/clm.gin
wait
# VECO goes on from the MLM, on the same text and the few pairs; beside it the MLM goes on for as many steps.
encoder mlm_more 1500 "${mlm[@]}" --gin.INIT_FROM="$out/mlm"
encoder veco 1500 --gin-file gin/recipes/veco_tiny.gin --gin.PARALLEL="$out/data/parallel" --gin.BATCH=16 --gin.VECO_WEIGHT=1 \
  --gin.INIT_FROM="$out/mlm" --gin.FIRST_PHASE=300 --gin.VECO_RESET_POSITIONS=False --gin.VECO_FACTORS=None # as measured
wait

cell() { # NAME ARGUMENTS: a translator from the few pairs
  finished "$out/cells/$1" || run "$out/$1.log" pretrain --gin-file gin/recipes/xlm_mt_tiny.gin --to "$out/cells/$1" "${@:2}" \
    --gin.VOCABULARY="$out/vocab" --gin.PARALLEL="$out/data/parallel" --gin.HELDOUT_PAIRS="$out/data/heldout/parallel" \
    --gin.HELDOUT_LIMIT=0 --gin.TRAIN_STEPS="$steps" --gin.EVAL_EVERY="$((steps / 4))" --gin.LEARNING_RATE=2e-3 --gin.DROPOUT=0.1
}
of() { [ "$1" = none ] && echo None || echo "$out/$1"; }
for encoder in none clm mlm; do
  for decoder in none clm mlm; do
    cell "$encoder-$decoder" --gin.INIT_ENCODER="$(of $encoder)" --gin.INIT_DECODER="$(of $decoder)"
  done
done
cell tables --gin.INIT_ENCODER=None --gin.INIT_DECODER=None --gin.INIT_EMBEDDINGS="$out/mlm"
for run in mlm_more veco; do
  cell "$run" --gin.INIT_ENCODER="$out/$run" --gin.INIT_DECODER="$out/$run"
done
cell veco-without --gin.INIT_ENCODER="$out/veco" --gin.INIT_DECODER="$out/veco" --gin.INIT_CROSS_ATTENTION=False
for which in first last; do
  for layers in 1 2; do
    cell "veco-$which-$layers" --gin.INIT_ENCODER="$out/veco" --gin.INIT_DECODER="$out/veco" --gin.DECODER_LAYERS=$layers \
      --gin.DECODER_LAYERS_FROM=$which
  done
done
wait
"$python" -m benchmarks.bleu_table "$out"/cells/* | tee "$out/table.md"
