#!/bin/bash
# What README's own-text commands give from two files: image captions, German and English; 500 pairs at random are set aside.
#
#   benchmarks/own_text.sh DATA OUT [SEEDS] [RECIPE] [--gin.NAME=VALUE ...]
#
# DATA: folder of de-en.de beside de-en.en (Multi30k). SEEDS: of weights, order and masks; "0 1 2". RECIPE: own_text, or xlm_text.
# The table is OUT/table.md: %, en to de among the 500, at the best layer (docs/evaluation.md); minutes of the pretraining command.
set -euo pipefail
data=$(realpath "$1") out=$2 seeds=${3:-0 1 2} recipe=${4:-own_text}
repository=$(realpath "$(dirname "$0")/..")
xlingjax=$(realpath "${XLINGJAX:-$repository/.venv/bin/xlingjax}")
python=$(dirname "$xlingjax")/python
mkdir -p "$out" && cd "$out" # where README's commands are typed, beside pairs/ and held/
[ -f held/de-en.en ] || "$python" - "$data" <<'END'
import random
import sys
from pathlib import Path

sides = {code: Path(sys.argv[1], f"de-en.{code}").read_text(encoding="utf-8").removesuffix("\n").split("\n") for code in ("de", "en")}
assert len(sides["de"]) == len(sides["en"])
held = {*random.Random(0).sample(range(len(sides["en"])), 500)}
for code, lines in sides.items():
    for path, inside in ((Path("pairs", f"captions.de-en.{code}"), False), (Path("held", f"de-en.{code}"), True)):
        path.parent.mkdir(exist_ok=True)
        chosen = [line for i, line in enumerate(lines) if (i in held) == inside]
        path.write_text("".join(f"{line}\n" for line in chosen), encoding="utf-8")
END
wc -l pairs/* held/*
ln -sfn "$repository/gin" gin
[ -f vocab/vocab.model ] || "$xlingjax" vocab --parallel 'pairs/*' --size 16000 --to vocab
for seed in $seeds; do
  run=runs/x-$seed
  grep -qs '"exit_reason": "finished"' "$run/result.json" && continue
  SECONDS=0
  "$xlingjax" pretrain --gin-file "gin/recipes/$recipe.gin" --to "$run" \
    --gin.MONO='pairs/*' --gin.PARALLEL='pairs/*' --gin.VOCABULARY=vocab --gin.HELDOUT_PAIRS=held --gin.SEED="$seed" "${@:5}"
  echo $SECONDS > "$run/seconds"
  "$xlingjax" report "$run"
done
"$python" - $seeds <<'END' | tee table.md
import json
import sys
from pathlib import Path

print("| seed | minutes | tokens | raw | centred |\n|---|--:|--:|--:|--:|")
for seed in sys.argv[1:]:
    run = Path("runs", f"x-{seed}")
    found = json.loads((run / "report.json").read_text(encoding="utf-8"))["summary"]
    cells = [f"{int((run / 'seconds').read_text()) / 60:.1f}", f"{found['tokens_seen'] / 1e6:.1f} M"]
    for kind in ("", "_centred"):
        cells.append(f"{100 * found[f'retrieval_mean{kind}']:.1f}")
    print(f"| {seed} | {' | '.join(cells)} |")
END
