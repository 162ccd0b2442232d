#!/bin/bash
# Does TLM align what MLM alone does not? Image captions in English, German and French, three runs with the same model, initial weights,
# steps and tokens: MLM alone; MLM + TLM; the control, MLM + TLM with every sentence beside another one's translation.
#
#   benchmarks/multi30k.sh TRAIN TEST OUT [STEPS]
#
# TRAIN: folder of de-en.de de-en.en en-fr.en en-fr.fr (line-aligned). TEST: stem of held-out captions: TEST.en TEST.de TEST.fr.
# The report with all three runs is OUT/mlm_tlm/report.html.
set -euo pipefail
train=$1 test=$2 out=$3 steps=${4:-24000}
xlingjax=${XLINGJAX:-.venv/bin/xlingjax}
# The English captions of both pairs are the same: once is enough.
mono="$train/de-en.de $train/de-en.en $train/en-fr.fr"

[ -f "$out/vocab/vocab.model" ] || "$xlingjax" vocab --mono "$train/de-en.de" "$train/de-en.en" "$train/en-fr.fr" --size 8000 --to "$out/vocab"

run() { # NAME, then what sets it apart
  local name=$1
  shift
  "$xlingjax" pretrain --gin-file gin/recipes/xlm_text.gin --gin-file gin/models/mini.gin \
    --gin-file gin/optim/muon_linear.gin "$@" --to "$out/$name" \
    --gin.MONO="$mono" --gin.PARALLEL="$train" --gin.VOCABULARY="$out/vocab" \
    --gin.HELDOUT_TEXT="$test.*" --gin.HELDOUT_PAIRS="$test" \
    --gin.TRAIN_STEPS="$steps" --gin.EVAL_EVERY="$((steps / 8))" --gin.CHECKPOINT_EVERY="$((steps / 8))" \
    --gin.BATCH=8 --gin.LENGTH=64 --gin.MASK_RATE=0.3 --gin.LEARNING_RATE=4e-3 --gin.SUBSAMPLING=0.0 --gin.model.layers=2
}
run mlm --gin-file gin/objectives/mlm.gin
run mlm_tlm --gin.TLM_WEIGHT=4 --gin.FLOORS=True
run shuffled --gin.TLM_WEIGHT=4 --gin.SHUFFLED_PAIRS=True

"$xlingjax" report "$out/mlm_tlm" --compare "mlm_only=$out/mlm" --compare "shuffled=$out/shuffled"
