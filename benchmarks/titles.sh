#!/bin/bash
# Titles of stories, learnt on English and tested on four languages: from random weights, from xDAE, from xFNP, each pretrained on the
# text of the embedded corpus (`make pretrain` writes it into runs/demo); and from both with that text beside the titles, in turn.
#
#   benchmarks/titles.sh OUT [PRETRAINING_STEPS] [STEPS]
#
# The table is OUT/table.md: BLEU (lower case, XGLUE's) of the test set by language, and the share of titles in a wrong language.
set -euo pipefail
out=$1 pretraining=${2:-3000} steps=${3:-1000}
. "$(dirname "$0")/runs.sh"
pretrained() { # NAME ARGUMENTS
  finished "$out/$1" || run "$out/$1.log" pretrain --to "$out/$1" "${@:2}" --gin.LANGUAGES='de en ru zh' --gin.EVAL_EVERY=0
}
pretrained xdae --gin-file gin/recipes/xdae_tiny.gin --gin.TRAIN_STEPS="$pretraining"
pretrained xfnp --gin-file gin/recipes/xfnp_tiny.gin --gin.TRAIN_STEPS="$pretraining" --gin.DECODER_LAYERS=3
# One step at hardly any rate leaves the weights random.
pretrained random --gin-file gin/recipes/xdae_tiny.gin --gin.TRAIN_STEPS=1 --gin.LEARNING_RATE=1e-9 --gin.WARMUP_STEPS=0
wait
tuned() { # NAME FROM ARGUMENTS
  finished "$out/titles-$1" || run "$out/titles-$1.log" finetune --gin-file gin/recipes/titles_tiny.gin --to "$out/titles-$1" \
    --gin.INIT_FROM="$out/$2" --gin.TRAIN_STEPS="$steps" --gin.EVAL_EVERY="$((steps / 4))" "${@:3}"
}
tuned random random
tuned xdae xdae
tuned xfnp xfnp --gin.LANGUAGE_TOKENS=False --gin.GENERATION_STREAMS=2
tuned xdae-and-text xdae --gin-file gin/objectives/generation_xdae.gin --gin.MONO=runs/demo/data/mono
tuned xfnp-and-text xfnp --gin-file gin/objectives/generation_xfnp.gin --gin.MONO=runs/demo/data/mono --gin.LENGTH=129 \
  --gin.XFNP_SKIP=runs # rows of two of its blocks, and what the recipe has streams leave out
wait
"$python" -m benchmarks.bleu_table --name generation_test "$out"/titles-*/ | tee "$out/table.md"
