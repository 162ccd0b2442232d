#!/bin/bash
# A released encoder as it comes, to a score card: translations found in 14 languages, topics, entailment and tags from English training
# alone, beside the floors, and the fine-tuned models exported and compared with transformers, label by label.
#
#   benchmarks/released.sh FOLDER DATA OUT
#
# FOLDER: a Hugging Face folder (or hub id) of a sentence encoder; the options are multilingual-e5-small's. DATA:
# {tatoeba,sib200,udpos,xnli}. The card is OUT/scores/card.md, its pictures OUT/scores/images; minutes of each command: OUT/minutes.
# TASKS="tatoeba sib200 udpos xnli"
set -euo pipefail
encoder=$1 data=$2 out=$3
. "$(dirname "$0")/runs.sh"
timed() { # NAME VERB ...
  local start=$SECONDS
  "$xlingjax" "${@:2}" 2>&1 | tee "$out/$1.log"
  echo "$1 $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s" | tee -a "$out/minutes"
}
[ -f "$out/encoder/run.json" ] || timed import import "$encoder" --to "$out/encoder" --pooling mean --prefix 'query: '
task() { # NAME, settings
  timed "${1#*/}" finetune "$out/encoder" --task "$1" --data "$data" --to "$out/scores" --allow-missing \
    --strategy majority random_initialisation transfer --gin.BATCH=16 --gin.DEV_LANGUAGES=en --gin.SELECT=last --gin.FROZEN='["embeddings/"]' "${@:2}"
  local cell=$out/scores/cells/$1/transfer/seed-0 exported=$out/exported/${1#*/}
  [ -d "$exported" ] || "$xlingjax" export "$cell/run" --to "$exported"
  "$python" -m benchmarks.exported "$cell" "$exported" "$data" --limit "${LIMIT:-40}"
}
for name in ${TASKS:-tatoeba sib200 udpos xnli}; do
  case $name in
    tatoeba) timed tatoeba evaluate "$out/encoder" --mixture xtreme --tasks tatoeba --data "$data" --to "$out/scores" --allow-missing ;;
    sib200) task applications/sib200 --gin.TRAIN_STEPS=100 --gin.LEARNING_RATE=2e-4 ;;
    udpos) task xtreme/udpos --gin.LENGTH=64 --gin.TRAIN_STEPS=200 --gin.LEARNING_RATE=3e-4 --gin.DEV_SPLIT='"dev[:5%]"' --gin.TEST_SPLIT='"dev[90%:]"' ;;
    xnli) task xtreme/xnli --gin.LENGTH=64 --gin.TRAIN_STEPS=500 --gin.LEARNING_RATE=3e-5 --gin.DEV_SPLIT='"dev[:5%]"' --gin.TEST_SPLIT='"dev[80%:]"' ;;
  esac
done
