# Read by the scripts beside it: `out` is their folder.
xlingjax=${XLINGJAX:-.venv/bin/xlingjax}
python=$(dirname "$xlingjax")/python
mkdir -p "$out"
finished() { grep -qs '"exit_reason": "finished"' "$1/result.json"; }
run() { # LOG VERB ...: JOBS (2) at a time, each writes what it says into its log
  while (($(jobs -r | wc -l) >= ${JOBS:-2})); do wait -n; done
  { "$xlingjax" "${@:2}" > "$1" 2>&1 || { tail -n 3 "$1"; kill $$; }; } &
}
