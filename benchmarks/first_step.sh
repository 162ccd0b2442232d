#!/bin/bash
# Seconds from the start of `xlingjax pretrain` to the end of its first step: once with JAX's cache of programs empty, then three times with it.
# The text is tokenised before. Behind `make pretrain`:
#   benchmarks/first_step.sh gin/recipes/xlm_tiny.gin [--gin.NAME=VALUE ...]
set -eu -o pipefail
recipe=$1
shift
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export JAX_COMPILATION_CACHE_DIR=$out/programs

first_step() {
    rm -rf "$out/run"
    : > "$out/log"
    local began
    began=$(date +%s.%N)
    "${XLINGJAX:-.venv/bin/xlingjax}" pretrain --gin-file "$recipe" --to "$out/run" --gin.LOG_EVERY=1 "$@" > "$out/log" 2>&1 &
    until grep -q '^step 1/' "$out/log"; do
        kill -0 $! 2> /dev/null || { cat "$out/log"; exit 1; }
        sleep 0.02
    done
    echo "$(date +%s.%N) $began" | awk '{ printf "%.1f\n", $1 - $2 }'
    # As a user who has seen enough.
    kill -KILL $!
    wait $! 2> /dev/null || true
}

# Fills the cache of tokens, and the system's of files.
first_step "$@" > /dev/null
rm -rf "$JAX_COMPILATION_CACHE_DIR"
echo "no programs cached: $(first_step "$@") s"
for _ in 1 2 3; do echo "cached: $(first_step "$@") s"; done
