#!/bin/bash
# Which mix of objectives aligns most on the captions of one domain? English and German, the same text, weights and tokens, one seed.
#
#   benchmarks/multi30k_bakeoff.sh TRAIN TEST OUT [TOKENS]
#
# TRAIN: folder of de-en.de de-en.en. TEST: stem of held-out captions, TEST.en TEST.de. The tables are OUT/bakeoff/bakeoff.html.
# The captions are no documents: Unicoder runs without its masked LM on documents.
set -euo pipefail
train=$1 test=$2 out=$3 tokens=${4:-3000000}
xlingjax=${XLINGJAX:-.venv/bin/xlingjax}
mkdir -p "$out/pairs" "$out/held"
cp "$train/de-en.de" "$train/de-en.en" "$out/pairs"
cp "$test.de" "$out/held/de-en.de"
cp "$test.en" "$out/held/de-en.en"
[ -f "$out/vocab/vocab.model" ] || "$xlingjax" vocab --parallel "$out/pairs/*" --size 8000 --to "$out/vocab"

"$xlingjax" bakeoff --gin-file gin/runs/bakeoff.gin --to "$out/bakeoff" --gin.TOKENS="$tokens" --gin.JOBS=2 \
  --gin.BASE="['recipes/xlm_text.gin', 'models/mini.gin', 'optim/muon_linear.gin', 'model.layers=2', 'MONO=$out/pairs/*',
    'PARALLEL=$out/pairs/*', 'VOCABULARY=$out/vocab', 'HELDOUT_PAIRS=$out/held', 'HELDOUT_TEXT=$test.*', 'LANGUAGES=de en',
    'BATCH=8', 'LENGTH=64', 'MASK_RATE=0.3', 'LEARNING_RATE=4e-3', 'SUBSAMPLING=0.0', 'EVAL_EVERY=0', 'LOG_EVERY=500']" \
  --gin.MIXES="{'MLM': ['objectives/mlm.gin'],
    'MLM + TLM': ['objectives/mlm_tlm.gin', 'TLM_WEIGHT=4'],
    'MLM + TLM + CLWR': ['objectives/unicoder.gin', 'TLM_WEIGHT=2', 'CLWR_WEIGHT=2', 'train.objectives=[@mlm(), @tlm(), @clwr()]'],
    'Unicoder': ['objectives/unicoder.gin', 'TLM_WEIGHT=2', 'train.objectives=[@mlm(), @tlm(), @clwr(), @clpc()]'],
    'VECO': ['objectives/veco.gin', 'VECO_WEIGHT=4', 'VECO_MASK_RATE=0.3'],
    'ERNIE-M': ['objectives/ernie_m.gin', 'STAGE_1_STEPS=0.667*STEPS', 'TLM_WEIGHT={0: 2, 0.667*STEPS: 0}',
      'CAMLM_WEIGHT={0: 2, 0.667*STEPS: 8}', 'PSEUDO_PLACEMENT=scattered']}"
