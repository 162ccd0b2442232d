#!/bin/bash
# A causal language model of a language with little text, with none, one and two helper languages beside it (XLM §4.4): perplexity per
# piece on held-out lines of the target alone, one vocabulary for all runs.
#
#   benchmarks/low_resource.sh MONO OUT [STEPS] [TARGET] [HELPER] [HELPER]
#
# MONO: folder of LANGUAGE/*.txt. Every run reads STEPS batches of the target: languages are drawn evenly, and a run of n languages takes
# n * STEPS steps. What the helpers give comes on top, as in the paper, which trains each run until it has converged.
# The table is OUT/table.md: perplexity at each quarter of the run, and the lowest of them.
set -euo pipefail
mono=$1 out=$2 steps=${3:-1500} target=${4:-ur} first=${5:-en} second=${6:-hi}
. "$(dirname "$0")/runs.sh"
share=0.05
[ -f "$out/vocab/vocab.model" ] ||
  "$xlingjax" vocab --mono "$mono/$target/*.txt" "$mono/$first/*.txt" "$mono/$second/*.txt" --size 8000 --model-type bpe --to "$out/vocab"
[ -f "$out/heldout/text/$target.txt" ] ||
  "$python" -c 'import sys, pathlib; from xlingjax.workflows.adapt.held_out import write_heldout
write_heldout([sys.argv[1]], (), {"text": float(sys.argv[2])}, pathlib.Path(sys.argv[3]))' "$mono/$target/*.txt" "$share" "$out/heldout"
for helpers in "" "$first" "$second" "$first $second"; do
  languages=($target $helpers)
  name=$(IFS=+ && echo "${languages[*]}") total=$((steps * ${#languages[@]}))
  finished "$out/$name" || run "$out/$name.log" pretrain --gin-file gin/recipes/xlm_tiny_mlm.gin --gin-file gin/objectives/clm.gin \
    --to "$out/$name" --gin.MONO="$(printf "$mono/%s/*.txt " "${languages[@]}")" --gin.PARALLEL=None --gin.VOCABULARY="$out/vocab" \
    --gin.HELDOUT_TEXT="$out/heldout/text/*.txt" --gin.text.holdout="$share" --gin.perplexity.limit=0 --gin.ALPHA=0 \
    --gin.DROPOUT=0.1 --gin.TRAIN_STEPS="$total" --gin.WARMUP_STEPS="$((total / 10))" --gin.EVAL_EVERY="$((total / 4))" --gin.CHECKPOINT_EVERY=0
done
wait
"$python" - "$target" "$out/$target"{,+"$first",+"$second",+"$first"+"$second"} <<'END2' | tee "$out/table.md"
import json
import sys
from pathlib import Path

target, *runs = sys.argv[1:]
print("| | a quarter | half | three quarters | end | lowest |\n|---|--:|--:|--:|--:|--:|")
for run in map(Path, runs):
    rows = [json.loads(line) for line in (run / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()]
    by_step = {row["step"]: row["values"]["by_language"][target] for row in rows if row["name"] == "perplexity"}
    course = [by_step[step] for step in sorted(by_step)]
    print(f"| {run.name} | " + " | ".join(f"{value:.1f}" for value in [*course, min(course)]) + " |")
END2
