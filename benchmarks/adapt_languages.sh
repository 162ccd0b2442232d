#!/bin/bash
# `xlingjax adapt` of an imported sentence encoder on a few pairs of one language with English, of all weights and by LoRA, over seeds: what it
# finds in that language and in the others, before and after.
#
#   benchmarks/adapt_languages.sh RUN DATA OUT [HOURS] [SEEDS] [LANGUAGES] [WAYS]
#
# RUN: what `xlingjax import` wrote. DATA has pretrain/parallel/multinli_mt and what `benchmarks.adapted` reads; 3,000 pairs are drawn from
# the former, by the seed. The same command goes on. The table is OUT/table.md: mean and standard deviation over seeds.
set -euo pipefail
model=$1 data=$2 out=$3 hours=${4:-0.25} seeds=${5:-0 1 2} languages=${6:-sw vi} ways=${7:-full lora}
. "$(dirname "$0")/runs.sh"
measured() { # NAME RUN
  [ -s "$out/$1.txt" ] || { "$python" -m benchmarks.adapted "$data" "$2" --languages $languages de > "$out/$1.part" && mv "$out/$1.part" "$out/$1.txt"; }
}
measured before "$model"
for seed in $seeds; do
  for language in $languages; do
    pair=$(printf '%s\n' en "$language" | sort | paste -sd-)
    for side in en "$language"; do
      mkdir -p "$out/pairs-$seed"
      [ -f "$out/pairs-$seed/$pair.$side" ] ||
        shuf -n 3000 --random-source=<(yes "$seed") "$data/pretrain/parallel/multinli_mt/$pair.$side" > "$out/pairs-$seed/$pair.$side"
    done
    for way in $ways; do
      name=$language-$way-$seed
      [ "$way" = lora ] && more="--gin-file gin/optim/lora.gin" || more=
      finished "$out/$name/run" || "$xlingjax" adapt "$model" --parallel "$out/pairs-$seed/$pair.*" --hours "$hours" --unverified --keep-worse \
        --to "$out/$name" $more --gin.SEED="$seed" > "$out/$name.log"
      measured "$name" "$out/$name/run"
    done
  done
done
"$python" - "$out" <<'END' | tee "$out/table.md"
import re
import sys
from pathlib import Path

import pandas as pd

rows = []
for path in sorted(Path(sys.argv[1]).glob("*.txt")):
    figures = re.findall(r"(\w+ \w+) ([\d.]+)", path.read_text().partition(": ")[2])
    rows.append({"model": path.stem.rpartition("-")[0] or path.stem, **{name: float(value) for name, value in figures}})
by_model = pd.DataFrame(rows).groupby("model")
spread = by_model.std().map(lambda one: "" if pd.isna(one) else f" ± {one:.1f}")
print((by_model.mean().map("{:.1f}".format) + spread).T.to_markdown())
END
