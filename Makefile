# Two commands do everything on a machine with Python 3.11 to 3.13 and pip: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ACCELERATOR ?= auto
INSTALLED := $(VENV)/.installed-$(ACCELERATOR)
LOCKS := requirements/cpu.txt requirements/gpu.txt requirements/cpu-overrides.txt
OUTPUT ?= $(if $(CORPUS),demo-text,demo)
JOBS ?= 2
STUDY = $(if $(CORPUS),studies/text.yaml --set 'CORPUS=$(CORPUS)',studies/demo.yaml)

# DeepSpeed looks for an accelerator, and warns at length where there is none.
export DS_ACCELERATOR ?= $(if $(shell command -v nvidia-smi),cuda,cpu)
export HF_HUB_DISABLE_TELEMETRY ?= 1
# Where this is set, every process that starts compiles torch and transformers from source, half of its start long.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint lock bench torture clean install

help:
	@echo 'make demo      install, then everything from a built-in corpus to $(OUTPUT)/report.html'
	@echo "               make demo CORPUS='texts/*.txt' does the same on text of your own"
	@echo 'make test      install, then the whole suite, $(JOBS) files at a time (JOBS=N)'
	@echo 'make quick     the part of it that takes two minutes'
	@echo 'make lint      ruff and mypy'
	@echo 'make install   into $(VENV): ACCELERATOR=cpu or gpu (default: what is here), TORCH_INDEX=URL (has the CPU build)'
	@echo 'make lock      renew the versions that are installed'
	@echo 'make bench     benchmarks, as ratios measured side by side'
	@echo 'make torture   long kill and corruption tests that do not fit the suite'
	@echo 'make clean     remove .venv, caches and the demo'

install: $(INSTALLED)

# A kind of machine that is asked for has a mark of its own, so that asking for another one installs that.
$(INSTALLED): pyproject.toml $(LOCKS) requirements/install.py
	@rm -f $(VENV)/.installed-*
	@$(PYTHON) requirements/install.py --venv $(VENV) --editable --accelerator $(ACCELERATOR) \
		$(if $(TORCH_INDEX),--torch_index $(TORCH_INDEX))
	@touch $@

# The newest versions that pyproject.toml allows.
lock: $(INSTALLED)
	@$(BIN)/python requirements/lock.py

# Everything from text to a report; what was done before is not done again.
demo: $(INSTALLED)
	@$(BIN)/python studies/run_study.py --study $(STUDY) --output $(OUTPUT) --cores $(JOBS)

# Two files at a time: most tests wait for commands that they start, and networks this small want one thread.
test: $(INSTALLED)
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# For the hand at work: what needs no engine, no browser and no minutes.
quick: $(INSTALLED)
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder -m 'not slow and not vllm and not browser'

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	@for benchmark in tests/benchmarks/bench_*.py; do $(BIN)/python $$benchmark || exit $$?; done

torture: $(INSTALLED)
	$(BIN)/python -m pytest tests/torture -o addopts= -v -n 2 --durations=20

clean:
	rm -rf $(VENV) .cache .snakemake $(OUTPUT) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
