#!/usr/bin/env bash
# Pretraining on a TPU slice by Google Cloud's queued resources.
#   NAME=base ZONE=us-west4-a ACCELERATOR=v5litepod-16 RECIPE=xlmr_base WORKDIR=/mnt/shared/runs/base launch/tpu_vm.sh --gin.MONO='...' ...
# Asks for the slice, waits for it, installs, trains on all of its hosts; once more where the slice was taken back. What stands behind the
# file goes to `xlingjax pretrain`. WORKDIR is of a file system that all hosts have (Filestore): MOUNT is the command that mounts it there.
# PACKAGE: what pip installs, a wheel of `make wheel` for instance. PYTHON: 3.11 or 3.12 of the runtime's image.
set -euo pipefail
: "${NAME:?}" "${ZONE:?}" "${ACCELERATOR:?}" "${WORKDIR:?}" "${RECIPE:?}"
PACKAGE="${PACKAGE:-xlingjax[tpu]}"
PYTHON="${PYTHON:-python3.11}"
RUNTIME="${RUNTIME:-v2-alpha-tpuv5-lite}"

tpus() {
  gcloud compute tpus "$@" --zone "$ZONE" --quiet
}

state() {
  tpus queued-resources describe "$NAME" --format 'value(state.state)' 2>/dev/null || echo NONE
}

on_all() {
  tpus tpu-vm ssh "$NAME" --worker all --command "$1"
}

failures=0
while true; do
  case "$(state)" in
    ACTIVE)
      status=0
      on_all "${MOUNT:-true} && $PYTHON -m venv venv && venv/bin/pip install -q '$PACKAGE'" \
        && on_all "venv/bin/xlingjax pretrain $(printf '%q ' --gin-file "$RECIPE" --to "$WORKDIR" "$@")" || status=$?
      # 0: done. 2: bad input, which would be refused again.
      if [ "$status" -eq 0 ] || [ "$status" -eq 2 ]; then
        exit "$status"
      fi
      # 75: asked to stop. 255: the hosts are gone. What fails otherwise may fail for ever, on chips that cost.
      if [ "$status" -ne 75 ] && [ "$status" -ne 255 ]; then
        failures=$((failures + 1))
        if [ "$failures" -ge 3 ]; then
          echo "error: it failed three times, with status $status at last; the slice $NAME is still there" >&2
          exit "$status"
        fi
      fi
      ;;
    NONE)
      tpus queued-resources create "$NAME" --node-id "$NAME" --accelerator-type "$ACCELERATOR" --runtime-version "$RUNTIME" --spot
      ;;
    SUSPENDED | FAILED)
      # The slice was taken back.
      tpus queued-resources delete "$NAME" --force
      ;;
  esac
  sleep "${WAIT:-60}"
done
