# Each target does all it needs, from a fresh clone on: a virtual environment, the pinned packages, then the job.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup pretrain negatives test test-skipped test-long test-soak test-tpu test-cuda test-plans lint docs inspect bench wheel clean

# The first interpreter that really starts and is 3.11 or 3.12.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null && { echo $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
XLINGJAX := $(BIN)/xlingjax
DEMO_LANGUAGES ?= en de ru zh
# For a look at every command of the demonstration: make pretrain DEMO_STEPS=40
DEMO_STEPS ?=
SHORT := $(if $(DEMO_STEPS),--gin.TRAIN_STEPS=$(DEMO_STEPS) --gin.WARMUP_STEPS=5 --gin.EVAL_EVERY=$(DEMO_STEPS))
# Each takes up to 5 GiB, of the long tests 9.
TEST_WORKERS ?= 2

help: ## this list
	@echo "make <target>   (PYTHON=$(if $(PYTHON),$(PYTHON),none found: set PYTHON=/path/to/python3.11) VENV=$(VENV))"
	@sed -n 's/^\([^#[:space:]:]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | sed 's|$$(VENV)|$(VENV)|; s/%/EXTRA/' | expand -t 32

# --- Set-up: one stamp per extra, so that it runs once and again only when the pins change ------------------------------------------------

setup: $(VENV)/.ready ## virtual environment and pinned packages
	@$(BIN)/xlingjax --version

# Asked for by setup-% alone, it would be removed behind it.
.PRECIOUS: $(VENV)/.ready-%
setup-%: $(VENV)/.ready-% ## setup-cuda, setup-tpu: for NVIDIA GPUs or TPUs; setup-cuda12: V100s and older drivers
	@$(BIN)/xlingjax doctor

$(VENV)/.created: ## the virtual environment, empty
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or 3.12 found; install one or run: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	@echo "== virtual environment in $(VENV) ($$($(PYTHON) --version))"
	$(PYTHON) -m venv $(VENV)
	touch $@

# t5 declares seqio-nightly and tfds-nightly, which overwrite seqio and tensorflow-datasets: it comes without its dependencies,
# and what it truly imports is the extra t5-needs.
$(VENV)/.ready: $(VENV)/.created pyproject.toml constraints.txt ## with the pinned packages: what setup makes
	@echo "== packages (a few minutes, once)"
	$(PIP) install -q --no-compile -c constraints.txt -e '.[t5-needs]'
	$(PIP) install -q --no-compile --no-deps t5==0.9.4
	@# Bytecode by all cores, where pip would take one. Some packages bring files that no Python of today reads.
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib xlingjax || true
	touch $@

$(VENV)/.ready-%: $(VENV)/.ready ## with an extra of pyproject.toml: interop (transformers, PyTorch), cuda, cuda12, tpu, beam, clean, search, dev, browser, docs
	$(PIP) install -q -c constraints.txt -e '.[$*]'
	touch $@

# The compiler of TPUs stands beside the environment: inside, every command on a machine without a TPU would print its complaints.
$(VENV)/tpu/.ready: $(VENV)/.ready-dev ## the compiler of TPUs, for test-tpu
	@echo "== the compiler of TPUs (700 MB)"
	$(PIP) install -q -c constraints.txt --no-deps --upgrade --target $(VENV)/tpu libtpu
	touch $@

$(VENV)/cuda/.ready: $(VENV)/.ready-dev ## the compiler of NVIDIA GPUs, for test-cuda and plan
	@echo "== the compiler of GPUs (600 MB)"
	$(PIP) install -q -c constraints.txt --no-deps --upgrade --target $(VENV)/cuda jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12
	touch $@

# --- The demonstration: every line is a command to type ------------------------------------------------------------------------------------

runs/demo/data/manifest.json: | $(VENV)/.ready ## the demonstration's text, from the embedded corpus
	$(XLINGJAX) demo runs/demo/data --languages $(DEMO_LANGUAGES)

runs/demo/vocab/vocab.json: runs/demo/data/manifest.json ## the demonstration's vocabulary
	$(XLINGJAX) vocab --mono runs/demo/data/mono --parallel runs/demo/data/parallel --size 5000 --character-coverage 1 --to runs/demo/vocab

pretrain: $(VENV)/.ready runs/demo/vocab/vocab.json ## embedded corpus -> aligned encoder, and MLM alone -> zero-shot NLI -> report
	@# Steps this small fill one core: the two runs side by side take little longer than one. As many tokens.
	@echo "== MLM alone, to compare with, in the background: tail -f runs/demo/mlm.out"
	$(XLINGJAX) pretrain --gin-file gin/recipes/xlm_tiny_mlm.gin --to runs/demo/mlm --gin.TRAIN_STEPS=3500 --gin.WARMUP_STEPS=100 \
	  --gin.EVAL_EVERY=500 $(SHORT) > runs/demo/mlm.out 2>&1 & mlm=$$!; \
	{ $(XLINGJAX) pretrain --gin-file gin/recipes/own_text_tiny.gin --to runs/demo/own_text $(SHORT) && \
	$(XLINGJAX) finetune --gin-file gin/recipes/nli_tiny.gin --to runs/demo/nli $(SHORT); } || { kill $$mlm; exit 1; }; \
	wait $$mlm || { cat runs/demo/mlm.out; exit 1; }
	$(XLINGJAX) report runs/demo/own_text --compare 'MLM only=runs/demo/mlm' --finetuned runs/demo/nli

negatives: $(VENV)/.ready runs/demo/vocab/vocab.json ## wrong partners of the corpus's pairs, for Unicoder (finished tables are kept)
	$(XLINGJAX) mine --negatives --parallel runs/demo/data/parallel --vocabulary runs/demo/vocab --to runs/demo/negatives

test: $(VENV)/.ready-dev ## the tests, minutes on two cores (those that read real text need XLINGJAX_DATA)
	$(BIN)/python -m pytest -m "not long" -n $(TEST_WORKERS) --dist worksteal --durations 15

test-skipped: $(VENV)/.ready-dev ## the tests that the last run skipped for want of a package, data or a compiler
	@if [ -s .cache/skipped.txt ]; then $(BIN)/python -m pytest @.cache/skipped.txt -m "not long" -n $(TEST_WORKERS) --dist worksteal; \
	  else echo "the last run skipped nothing for want of anything"; fi

test-long: $(VENV)/.ready-dev ## the tests that are whole runs: resuming, two processes, sweeps, verbs, adapt, the notebook
	$(BIN)/python -m pytest -m "long and not soak and not accelerator" -n $(TEST_WORKERS) --dist worksteal --durations 15

test-soak: $(VENV)/.ready-dev ## the tests of minutes, by hand before a release: sweeps stopped and resumed, whole suites of benchmarks
	$(BIN)/python -m pytest -m soak -n $(TEST_WORKERS) --dist worksteal --durations 15

test-tpu: $(VENV)/tpu/.ready ## programs for TPUs, compiled without one; the other tests skip them
	PYTHONPATH=$(VENV)/tpu $(BIN)/python -m pytest tests/test_tpu.py tests/test_plans.py -k "test_tpu or (v5e and xlm_15)" -n $(TEST_WORKERS) --durations 15

test-cuda: $(VENV)/cuda/.ready ## the same for NVIDIA GPUs
	$(BIN)/python -m pytest tests/test_cuda.py -n $(TEST_WORKERS) --durations 15

test-plans: $(VENV)/tpu/.ready $(VENV)/cuda/.ready ## the papers' recipes at their sizes, for machines on which they fit
	$(BIN)/python -m pytest tests/test_plans.py -n $(TEST_WORKERS) --durations 15

lint: $(VENV)/.ready-dev ## ruff, and mypy on the public names and the contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy

docs: $(VENV)/.ready-docs ## the pages of docs/ as a site, site/index.html; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

inspect: $(VENV)/.ready runs/demo/vocab/vocab.json ## what a recipe feeds the model: pieces, targets, positions, languages, masks
	$(XLINGJAX) inspect --gin-file gin/recipes/xlm_tiny.gin

bench: $(VENV)/.ready-interop ## training speed beside Hugging Face transformers on PyTorch; writes bench.json
	$(BIN)/python -m benchmarks --to bench.json

wheel: $(VENV)/.created ## dist/xlingjax-*.whl, with recipes, tasks and tables inside; another machine: pip install that file
	rm -rf build # of an earlier one, whose files would come along
	$(PIP) wheel -q --no-deps --wheel-dir dist .
	rm -rf build ./*.egg-info
	@ls dist/*.whl

clean: ## remove the demonstration's run, caches and build folders (keeps the virtual environment)
	rm -rf runs/demo site build dist ./*.egg-info .pytest_cache .ruff_cache .cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
