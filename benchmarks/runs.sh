# Read by the scripts beside it: `out` is their folder.
xlingjax=${XLINGJAX:-.venv/bin/xlingjax}
python=$(dirname "$xlingjax")/python
mkdir -p "$out"
finished() { grep -qs '"exit_reason": "finished"' "$1/result.json"; }
mlm_tlm() { # DEMO, what `make pretrain` wrote: trains DEMO/mlm_tlm, the encoder of these studies, unless it is there
  finished "$1/mlm_tlm" || "$xlingjax" pretrain --gin-file gin/recipes/xlm_tiny.gin --to "$1/mlm_tlm" --gin.MONO="$1/data/mono" \
    --gin.PARALLEL="$1/data/parallel" --gin.VOCABULARY="$1/vocab" --gin.HELDOUT_TEXT="$1/data/heldout/mono" \
    --gin.HELDOUT_PAIRS="$1/data/heldout/parallel"
}
run() { # LOG VERB ...: JOBS (2) at a time, each writes what it says into its log
  while (($(jobs -r | wc -l) >= ${JOBS:-2})); do wait -n; done
  { "$xlingjax" "${@:2}" > "$1" 2>&1 || { tail -n 3 "$1"; kill $$; }; } &
}
