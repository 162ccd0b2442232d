#!/bin/bash
# Questions and titles of real text, learnt on English and tested on other languages too: from xDAE on monolingual text, and from
# random weights.
#
#   benchmarks/xglue_generation.sh MONO QG TITLES OUT [PRETRAINING_STEPS] [STEPS]
#
# MONO: folder of LANGUAGE/*.txt. QG, TITLES: folders of XGLUE's files, xglue.qg.en.src.train, xglue.ntg.en.src.train and so on.
# Tables: OUT/qg.md, OUT/ntg.md: BLEU (lower case, XGLUE's) by language, and the share of outputs in a wrong language.
set -euo pipefail
mono=$1 qg=$2 ntg=$3 out=$4 pretraining=${5:-3000} steps=${6:-1000}
. "$(dirname "$0")/runs.sh"
text=()
for language in de en es hi ru zh; do text+=("$mono/$language/*.txt"); done
[ -f "$out/vocab/vocab.model" ] || "$xlingjax" vocab --mono "${text[@]}" --size 8000 --to "$out/vocab"

pretrained() { # NAME ARGUMENTS
  finished "$out/$1" || run "$out/$1.log" pretrain --gin-file gin/recipes/xdae_tiny.gin --to "$out/$1" --gin.MONO="${text[*]}" \
    --gin.VOCABULARY="$out/vocab" --gin.EVAL_EVERY=0 --gin.train.evaluators='[]' "${@:2}"
}
pretrained xdae --gin.TRAIN_STEPS="$pretraining"
# One step at hardly any rate leaves the weights random.
pretrained random --gin.TRAIN_STEPS=1 --gin.LEARNING_RATE=1e-9 --gin.WARMUP_STEPS=0
wait
tuned() { # TASK FROM FOLDER STEPS
  finished "$out/$1-$2" || run "$out/$1-$2.log" finetune --gin-file gin/recipes/titles_tiny.gin --to "$out/$1-$2" \
    --gin.INIT_FROM="$out/$2" --gin.TRAIN_FILES="$3/xglue.$1.{language}.src.train" --gin.DEV_FILES="$3/xglue.$1.{language}.src.dev" \
    --gin.TEST_FILES=None --gin.DEV_LIMIT=200 --gin.TRAIN_STEPS="$4" --gin.EVAL_EVERY="$(($4 / 2))"
}
for from in random xdae; do
  tuned qg "$from" "$qg" "$steps"
  tuned ntg "$from" "$ntg" "$((steps / 2))"
done
wait
for task in qg ntg; do
  "$python" -m benchmarks.bleu_table "$out/$task"-*/ | tee "$out/$task.md"
done
