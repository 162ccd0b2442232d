#!/bin/bash
# A small encoder pretrained on text and pairs of a few languages, and what it gives to the tasks of XTREME and others, zero-shot from
# English, beside the floors: the commonest label, each word's commonest tag, the same model from random weights.
#
#   benchmarks/real_tasks.sh DATA OUT [STEPS] [SEEDS]
#
# DATA: pretrain/mono/LG/*.txt, pretrain/parallel/SOURCE/aa-bb.*, tasks/{tatoeba,bucc2018,udpos,panx,xsid,sib200,xnli,tydiqa,xquad}.
# The card is OUT/scores/card.md; Tatoeba by layer and pooling, and BUCC of the last layer, pooled by the mean: OUT/layers/card.md; UD-POS
# with the words of Chinese tokenised together: OUT/joined/card.md.
set -euo pipefail
data=$1 out=$2 steps=${3:-15000} seeds=${4:-1}
. "$(dirname "$0")/runs.sh"
mono='' pairs=''
for code in en de es zh; do mono+=" $data/pretrain/mono/$code/*.txt"; done
for name in de-en en-es en-zh; do pairs+=" $data/pretrain/parallel/*/$name.*"; done
mkdir -p "$out/heldout"
for code in de es zh; do cp "$data/tasks/tatoeba/$code-en".* "$out/heldout/"; done
set -f # the patterns go through as they are
[ -f "$out/vocab/vocab.model" ] ||
  "$xlingjax" vocab --mono $mono --parallel $pairs --size 12000 --character-coverage 0.9998 --to "$out/vocab"
encoder() { # NAME, more settings
  finished "$out/$1" || run "$out/$1.log" pretrain --gin-file gin/recipes/ernie_m_tiny.gin --to "$out/$1" --gin.MONO="$mono" \
    --gin.PARALLEL="$pairs" --gin.VOCABULARY="$out/vocab" --gin.HELDOUT_TEXT=None --gin.HELDOUT_PAIRS="$out/heldout" --gin.LENGTH=128 \
    --gin.CAMLM_WEIGHT='{0: 2, %STAGE_1_STEPS: 8}' --gin.SUBSAMPLING=0.0 "${@:2}"
}
encoder encoder --gin.TRAIN_STEPS="$steps" --gin.STAGE_1_STEPS="$((steps * 2 / 3))" --gin.EVAL_EVERY="$((steps / 5))"
encoder random --gin.TRAIN_STEPS=1 --gin.STAGE_1_STEPS=1 --gin.LEARNING_RATE=1e-12 --gin.WARMUP_STEPS=0 --gin.EVAL_EVERY=1 --gin.FLOORS=True
wait
for name in encoder random; do
  run "$out/retrieval_$name.log" evaluate "$out/$name" --mixture xtreme --tasks tatoeba bucc2018 --data "$data/tasks" \
    --to "$out/scores" --allow-missing
done
wait
run "$out/layers.log" evaluate "$out/encoder" --mixture xtreme --tasks tatoeba --data "$data/tasks" --to "$out/layers" --allow-missing \
  --layer all --pooling all
for name in encoder random; do
  wait # one card
  run "$out/layers_bucc_$name.log" evaluate "$out/$name" --mixture xtreme --tasks bucc2018 --data "$data/tasks" --to "$out/layers" \
    --allow-missing --layer 3 --pooling mean
done
wait
task() { # NAME LANGUAGES STRATEGIES, settings; into the folder CARD
  run "$out/${1#*/}_$card.log" finetune "$out/encoder" --task "$1" --data "$data/tasks" --to "$out/$card" --strategy $3 \
    --seeds "$seeds" --gin.TEST_LANGUAGES="$2" --gin.DEV_LANGUAGES=en --gin.LEARNING_RATE=1e-3 "${@:4}"
}
card=scores
floors='majority random_initialisation transfer'
task xtreme/xnli 'en de es zh' "$floors" --gin.EPOCHS=3 --gin.LENGTH=64
task xtreme/udpos 'en de es zh' "lookup $floors" --gin.EPOCHS=2 --gin.LENGTH=64
task xtreme/panx 'en de es zh' "lookup $floors" --gin.EPOCHS=2 --gin.LENGTH=64
task applications/tydiqa_to_xquad 'en de es zh' 'random_initialisation transfer' --gin.EPOCHS=3 --gin.LENGTH=128 --gin.STRIDE=64 --gin.MAX_QUESTION=32
task applications/xsid_intents 'en de zh' "$floors" --gin.EPOCHS=2 --gin.LENGTH=32
task applications/sib200 'en de es zh' "$floors" --gin.EPOCHS=10 --gin.LENGTH=64
card=joined # words of Chinese as the text stands
task xtreme/udpos 'en de es zh' transfer --gin.EPOCHS=2 --gin.LENGTH=64 --gin.WORDS_APART=False
wait
# MultiNLI's machine translations
run "$out/xnli_translated.log" finetune "$out/encoder" --task xtreme/xnli --data "$data/tasks" --to "$out/scores" --strategy multi_language \
  --languages en+de+es+zh --seeds "$seeds" --gin.TEST_LANGUAGES='en de es zh' --gin.DEV_LANGUAGES='en de es zh' --gin.LEARNING_RATE=1e-3 \
  --gin.EPOCHS=3 --gin.LENGTH=64
wait
