#!/bin/bash
# VECO's alignment on captions of two languages, one change at a time (docs/results/veco.md): the mixes of recipes/bakeoff_veco.gin, and those
# that begin from a run of them or read its states. One seed.
#
#   benchmarks/veco_study.sh TRAIN TEST OUT [LAYERS WIDTH TOKENS]
#
# TRAIN: folder of de-en.de de-en.en. TEST: stem of held-out captions, TEST.en TEST.de. The tables: OUT/{mixes,more,from}/bakeoff.html.
set -euo pipefail
train=$1 test=$2 out=$3 layers=${4:-2} width=${5:-64} tokens=${6:-2000000}
xlingjax=${XLINGJAX:-.venv/bin/xlingjax}
export PYTHONPATH=. # of benchmarks/veco_frozen.gin
mkdir -p "$out/pairs" "$out/held"
cp "$train/de-en.de" "$train/de-en.en" "$out/pairs"
cp "$test.de" "$out/held/de-en.de"
cp "$test.en" "$out/held/de-en.en"
[ -f "$out/vocab/vocab.model" ] || "$xlingjax" vocab --parallel "$out/pairs/*" --size 8000 --to "$out/vocab"
base="['recipes/xlm_text.gin', 'models/mini.gin', 'optim/muon_linear.gin', 'model.layers=$layers', 'model.dim=$width',
  'model.heads=$((width / 16))', 'model.ffn=$((4 * width))', 'MONO=$out/pairs/*', 'PARALLEL=$out/pairs/*', 'VOCABULARY=$out/vocab',
  'HELDOUT_PAIRS=$out/held', 'HELDOUT_TEXT=$out/held/*', 'LANGUAGES=de en', 'BATCH=8', 'LENGTH=64', 'MASK_RATE=0.3', 'LEARNING_RATE=4e-3',
  'SUBSAMPLING=0.0', 'EVAL_EVERY=0', 'LOG_EVERY=500']"
bakeoff() { # NAME [OPTION ...]
  "$xlingjax" bakeoff --gin-file gin/recipes/bakeoff_veco.gin --to "$out/$1" --gin.TASKS='{}' --gin.TOKENS="$tokens" --gin.BASE="$base" "${@:2}"
}
bakeoff mixes
veco="'VECO_WEIGHT=4', 'VECO_MASK_RATE=0.3'"
turns="'objectives/tlm.gin', 'objectives/veco.gin', 'VECO_MASK_RATE=0.3', 'VECO_TLM=False', 'RESET_POSITIONS=True',
  'train.objectives=[@veco_text(), @veco(), @tlm()]'"
bakeoff more --gin.MIXES="{
  'MLM': ['objectives/mlm.gin'],
  'MLM 2, TLM 3': ['objectives/mlm_tlm.gin', 'MLM_WEIGHT=2', 'TLM_WEIGHT=3'],
  'MLM 3, TLM 2': ['objectives/mlm_tlm.gin', 'MLM_WEIGHT=3', 'TLM_WEIGHT=2'],
  'as little TLM, positions run on': ['objectives/mlm_tlm.gin', 'TLM_WEIGHT=0.19', 'RESET_POSITIONS=False'],
  'without plug out': ['objectives/veco.gin', $veco, 'VECO_FACTORS={\"plug_out\": 0}'],
  'plug in for a third of plug out': ['objectives/veco.gin', $veco, 'VECO_FACTORS={\"plug_out\": 1.5, \"plug_in\": 0.5}'],
  'without TLM': ['objectives/veco.gin', $veco, 'VECO_TLM=False'],
  'TLM x 4': ['objectives/veco.gin', $veco, 'VECO_FACTORS={\"tlm\": 4}'],
  'TLM x 16': ['objectives/veco.gin', $veco, 'VECO_FACTORS={\"tlm\": 16}'],
  'gradient to the other side': ['objectives/veco.gin', $veco, 'STOP_GRADIENT=False'],
  'positions restart, TLM x 4': ['objectives/veco.gin', $veco, 'VECO_RESET_POSITIONS=True', 'VECO_FACTORS={\"tlm\": 4}'],
  'positions restart, without plug in': ['objectives/veco.gin', $veco, 'VECO_RESET_POSITIONS=True', 'VECO_FACTORS={\"plug_in\": 0}'],
  'VECO 1, TLM 3 in turn': [$turns, 'VECO_WEIGHT=1', 'TLM_WEIGHT=3'],
  'VECO 2, TLM 2 in turn': [$turns, 'VECO_WEIGHT=2', 'TLM_WEIGHT=2']}"
mlm=$out/more/cells/mlm-0/pretrain both=$out/mixes/cells/mlm_tlm-0/pretrain
bakeoff from --gin.MIXES="{
  'memory: frozen MLM': ['benchmarks/veco_frozen.gin', $veco, 'FROZEN_RUN=$mlm'],
  'memory: frozen MLM + TLM': ['benchmarks/veco_frozen.gin', $veco, 'FROZEN_RUN=$both'],
  'from MLM': ['objectives/veco.gin', $veco, 'INIT_FROM=$mlm'],
  'from MLM, first phase': ['objectives/veco.gin', $veco, 'INIT_FROM=$mlm', 'FIRST_PHASE=0.3*STEPS'],
  'from MLM + TLM, first phase': ['objectives/veco.gin', $veco, 'INIT_FROM=$both', 'FIRST_PHASE=0.3*STEPS'],
  'from MLM + TLM, on with it': ['objectives/mlm_tlm.gin', 'TLM_WEIGHT=4', 'INIT_FROM=$both']}"
