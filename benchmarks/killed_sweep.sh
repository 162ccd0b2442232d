#!/bin/bash
# A sweep of five seeds as a whole, and the same killed (SIGKILL) inside the training of its second and its fourth seed, each at the
# first checkpoint, and started again: the two score cards.
#
#   make pretrain && benchmarks/strategies.sh runs/demo runs/strategies && benchmarks/killed_sweep.sh runs/demo runs/strategies/data OUT [SEEDS]
set -euo pipefail
demo=$1 data=$2 out=$3 seeds=${4:-5}
. "$(dirname "$0")/runs.sh"
sweep() { # TO
  exec "$xlingjax" finetune "$demo/mlm_tlm" --task xtreme/xnli --data "$data" --to "$out/$1" --strategy transfer --seeds "$seeds" \
    --allow-missing --gin.LENGTH=40 --gin.EPOCHS=2 --gin.LEARNING_RATE=1e-3 --gin.CLASSIFIER=difference --gin.RESET_POSITIONS=True
}
(sweep whole) > "$out/whole.log" 2>&1 &
whole=$!
for seed in 1 3; do
  run=$out/killed/cells/xtreme/xnli/transfer/seed-$seed/run
  sweep killed >> "$out/killed.log" 2>&1 &
  until compgen -G "$run/checkpoints/*[0-9]" > /dev/null; do
    kill -0 $! || { tail -n 3 "$out/killed.log"; exit 1; }
    sleep 0.2
  done
  kill -KILL $!
  wait $! || true
  [ ! -e "$run/result.json" ] || { echo "seed $seed had ended before it was killed"; exit 1; }
  echo "killed in the training of seed $seed at checkpoint $(basename "$run"/checkpoints/*[0-9])"
done
(sweep killed) >> "$out/killed.log" 2>&1
grep "^weights: checkpoint" "$out/killed.log"
wait $whole
cmp "$out"/{whole,killed}/card.md && echo "the same card, of $out/whole:"
grep -m 1 "^| transfer" "$out/whole/card.md"
