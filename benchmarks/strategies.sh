#!/bin/bash
# Fine-tuning strategies beside each other on the embedded corpus, laid out as XTREME's files: sentence pairs (XNLI) and tags (UD-POS),
# translations without errors.
#
#   make pretrain && benchmarks/strategies.sh runs/demo OUT [SEEDS] [PAIRS] [TAGGED]
#
# DEMO: what `make pretrain` wrote; MLM + TLM (xlm_tiny) is trained into DEMO/mlm_tlm, unless it is there.
# PAIRS, TAGGED: training examples a language. The cards are OUT/{scores,difference,plug_in}/card.md:
# XLM-R's head and tags; the head that compares the two texts' means; from a VECO run.
set -euo pipefail
demo=$1 out=$2 seeds=${3:-3} pairs=${4:-4000} tagged=${5:-1500}
. "$(dirname "$0")/runs.sh"
mlm_tlm "$demo"
[ -d "$out/data/xnli" ] || {
  "$xlingjax" demo "$out/told" --languages de en ru zh --size "nli_train=$pairs" "pos_train=$tagged"
  "$python" - "$out/told" "$out/data" <<'END'
import sys
from pathlib import Path

told, data = map(Path, sys.argv[1:])
codes = ("de", "en", "ru", "zh")


def write(name, lines):
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def lines(name):
    return (told / name).read_text(encoding="utf-8").splitlines()


def tagged(code):
    """words TAB tags, a sentence a line."""
    for sentence in "\n".join(lines(f"pos/train-{code}.tsv")).split("\n\n"):
        words, tags = zip(*(line.split("\t") for line in sentence.split("\n")), strict=True)
        yield f"{' '.join(words)}\t{' '.join(tags)}"


write("udpos/train-en.tsv", lines("pos/train-en.tsv"))
write("xnli/train-en.tsv", lines("nli/train-en.tsv"))
for code in codes:
    for part in ("dev", "test"):
        write(f"udpos/{part}-{code}.tsv", lines(f"pos/{part}-{code}.tsv"))
        write(f"xnli/{part}-{code}.tsv", lines(f"nli/{part}-{code}.tsv"))
    if code != "en":
        write(f"udpos/translate-train/train-{code}.mt.tsv", tagged(code))
        write(f"xnli/translate-train/en-{code}-translated.tsv", lines(f"nli/train-{code}.tsv"))
        own, english = (lines(f"nli/test-{name}.tsv") for name in (code, "en"))
        pairs = ["\t".join([*a.split("\t")[:2], b]) for a, b in zip(own, english, strict=True)]
        write(f"xnli/translate-test/test-{code}-en-translated.tsv", pairs)
END
}
finished "$out/veco" || run "$out/veco.log" pretrain --gin-file gin/recipes/veco_tiny.gin --to "$out/veco" \
  --gin.INIT_FROM="$demo/mlm_tlm" --gin.MONO="$demo/data/mono" --gin.PARALLEL="$demo/data/parallel" --gin.VOCABULARY="$demo/vocab" \
  --gin.HELDOUT_TEXT=None --gin.HELDOUT_PAIRS=None --gin.VECO_RESET_POSITIONS=False --gin.VECO_FACTORS=None # as measured
sweep() { # LOG FROM TASK HEAD STRATEGIES, settings
  run "$out/$1.log" finetune "$2" --task "xtreme/$3" --data "$out/data" --to "$out/$4" --strategy $5 --seeds "$seeds" \
    --allow-missing --gin.BATCH=32 --gin.LENGTH=40 --gin.EPOCHS=3 --gin.LEARNING_RATE=1e-3 "${@:6}"
}
several='random_initialisation transfer translate_test translate_train multi_language teacher'
sweep pairs "$demo/mlm_tlm" xnli scores "majority $several"
sweep difference "$demo/mlm_tlm" xnli difference "$several" --gin.CLASSIFIER=difference --gin.RESET_POSITIONS=True
sweep tagged "$demo/mlm_tlm" udpos scores "majority lookup random_initialisation transfer translate_train multi_language teacher" --gin.EPOCHS=6
wait
sweep plug_in "$out/veco" xnli plug_in 'transfer plug_in'
wait
