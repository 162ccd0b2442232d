#!/bin/bash
# Plug-in fine-tuning beside plug-out on the embedded corpus, laid out as XTREME's files: questions (SQuAD, XQuAD) and tags (UD-POS),
# translations without errors, test sets beside their translations into English.
#
#   make pretrain && benchmarks/plug_in.sh runs/demo OUT [SEEDS] [QUESTIONS] [TAGGED]
#
# DEMO: what `make pretrain` wrote; MLM + TLM (xlm_tiny) is trained into DEMO/mlm_tlm, unless it is there or VECO is.
# QUESTIONS, TAGGED: training examples a language. VECO: a run of recipes/veco_tiny.gin with VECO_FACTORS=None and
# VECO_RESET_POSITIONS=False, as measured, else one is trained. The card: OUT/scores/card.md.
set -euo pipefail
demo=$1 out=$2 seeds=${3:-2} questions=${4:-500} tagged=${5:-1500}
. "$(dirname "$0")/runs.sh"
veco=${VECO:-$out/veco}
[ -d "$out/data/xquad" ] || {
  "$xlingjax" demo "$out/told" --languages de en ru zh \
    --size "qa_train=$questions" qa_dev=60 qa_test=100 "pos_train=$tagged" pos_dev=60 pos_test=100
  "$python" - "$out/told" "$out/data" <<'END'
import shutil
import sys
from pathlib import Path

told, data = map(Path, sys.argv[1:])


def sentences(part, code):
    """[(words, tags)] of a set."""
    text = (told / f"pos/{part}-{code}.tsv").read_text(encoding="utf-8")
    for sentence in text.strip("\n").split("\n\n"):
        yield zip(*(line.split("\t") for line in sentence.split("\n")), strict=True)


def write(name, lines):
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def copy(source, name):
    (data / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(told / source, data / name)


for part in ("train", "dev"):
    copy(f"qa/{part}-en.json", f"squad/{part}-v1.1.json")
copy("pos/train-en.tsv", "udpos/train-en.tsv")
for code in ("de", "en", "ru", "zh"):
    copy(f"qa/test-{code}.json", f"xquad/xquad.{code}.json")
    for part in ("dev", "test"):
        copy(f"pos/{part}-{code}.tsv", f"udpos/{part}-{code}.tsv")
    if code == "en":
        continue
    copy(f"qa/train-{code}.json", f"squad/translate-train/squad.translate.train.en-{code}.json")
    copy("qa/test-en.json", f"xquad/translate-test/xquad.translate.test.{code}-en.json")
    lines = ("\t".join(map(" ".join, sentence)) for sentence in sentences("train", code))
    write(f"udpos/translate-train/train-{code}.mt.tsv", lines)
    for part in ("dev", "test"):
        words = (" ".join(next(sentence)) for sentence in sentences(part, "en"))
        write(f"udpos/translate-{part}/{part}-{code}-en.tsv", words)
END
}
finished "$veco" || mlm_tlm "$demo"
finished "$veco" || run "$out/veco.log" pretrain --gin-file gin/recipes/veco_tiny.gin --to "$veco" \
  --gin.INIT_FROM="$demo/mlm_tlm" --gin.MONO="$demo/data/mono" --gin.PARALLEL="$demo/data/parallel" --gin.VOCABULARY="$demo/vocab" \
  --gin.HELDOUT_TEXT=None --gin.HELDOUT_PAIRS=None --gin.VECO_RESET_POSITIONS=False --gin.VECO_FACTORS=None # as measured
wait
sweep() { # LOG TASK STRATEGIES, settings
  run "$out/$1.log" finetune "$veco" --task "xtreme/$2" --data "$out/data" --to "$out/scores" --strategy $3 --seeds "$seeds" \
    --allow-missing --gin.BATCH=32 --gin.LEARNING_RATE=1e-3 "${@:4}"
}
sweep questions xquad 'plug_in multi_language transfer' --gin.LENGTH=80 --gin.STRIDE=40 --gin.MAX_QUESTION=24 --gin.EPOCHS=3
sweep tags udpos 'plug_in multi_language transfer plug_in_teacher teacher' --gin.LENGTH=24 --gin.EPOCHS=6
wait
