# Two commands do everything on a machine with Python 3.11, a C++ compiler and pip: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
OUTPUT ?= demo
MINE = $(BIN)/python pipeline/mine_negatives.py --generator $(OUTPUT)/models/generator --context_lengths 8

# DeepSpeed looks for an accelerator, and warns at length where there is none.
export DS_ACCELERATOR ?= $(if $(shell command -v nvidia-smi),cuda,cpu)
export HF_HUB_DISABLE_TELEMETRY ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench torture clean install

help:
	@echo 'make demo      install, then the whole job on a built-in corpus, into $(OUTPUT)/'
	@echo 'make test      install, then the whole suite'
	@echo 'make lint      ruff and mypy'
	@echo 'make bench     benchmarks, as ratios measured side by side'
	@echo 'make torture   long kill and corruption tests that do not fit the suite'
	@echo 'make clean     remove .venv, caches and the demo'

install: $(INSTALLED)

# torch is pinned in the same command as what needs it; torchvision and its like come along with vLLM, cannot load
# beside CPU torch, and break importing models.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[mining-cpu,training,evaluation,dev]'
	$(BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Sums of three digits: the language model learns their form and guesses; the energy model checks them.
demo: $(INSTALLED)
	@for split in train valid test; do \
	  $(BIN)/python pipeline/make_windows.py --input builtin:sums --split $$split --output $(OUTPUT)/windows/$$split \
	  && $(BIN)/python pipeline/verify_store.py $(OUTPUT)/windows/$$split || exit $$?; \
	done
	@PATH=$(BIN):$$PATH deepspeed --log_level error training/train_lm.py --preset transf-nano --max_steps 500 \
	  --train $(OUTPUT)/windows/train --valid $(OUTPUT)/windows/valid --output $(OUTPUT)/models/generator
	@$(BIN)/python pipeline/show_samples.py --generator $(OUTPUT)/models/generator --windows $(OUTPUT)/windows/test \
	  --context_length 8 --count 4 --samples 3
	@$(MINE) --windows $(OUTPUT)/windows/train --engine torch --output $(OUTPUT)/negatives/train
	@$(MINE) --windows $(OUTPUT)/windows/valid --output $(OUTPUT)/negatives/valid
	@$(BIN)/python pipeline/verify_store.py $(OUTPUT)/negatives/train
	@PATH=$(BIN):$$PATH deepspeed --log_level error training/train_energy.py --preset bit-nano \
	  --train $(OUTPUT)/negatives/train --valid $(OUTPUT)/negatives/valid --output $(OUTPUT)/models/energy
	@$(BIN)/python pipeline/make_windows.py --input builtin:sums:lines=300 --split test --output $(OUTPUT)/windows/few
	@$(MINE) --windows $(OUTPUT)/windows/few --negatives 100 --output $(OUTPUT)/negatives/test
	@$(BIN)/python evaluation/score.py --energy $(OUTPUT)/models/energy --store $(OUTPUT)/negatives/test \
	  --output $(OUTPUT)/energies/test
	@$(BIN)/python evaluation/perplexity_bounds.py --negatives $(OUTPUT)/negatives/test \
	  --energies $(OUTPUT)/energies/test --samples_curve --matches --output $(OUTPUT)/results

test: $(INSTALLED)
	$(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	@for benchmark in tests/benchmarks/bench_*.py; do $(BIN)/python $$benchmark || exit $$?; done

torture: $(INSTALLED)
	$(BIN)/python -m pytest tests/torture -o addopts=-v

clean:
	rm -rf $(VENV) .cache $(OUTPUT) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
