# Two commands do everything on a machine with Python 3.11, a C++ compiler and pip: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
OUTPUT ?= $(if $(CORPUS),demo-text,demo)
JOBS ?= 2
STUDY = $(if $(CORPUS),studies/text.yaml --set 'CORPUS=$(CORPUS)',studies/demo.yaml)

# DeepSpeed looks for an accelerator, and warns at length where there is none.
export DS_ACCELERATOR ?= $(if $(shell command -v nvidia-smi),cuda,cpu)
export HF_HUB_DISABLE_TELEMETRY ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench torture clean install

help:
	@echo 'make demo      install, then everything from a built-in corpus to $(OUTPUT)/report.html'
	@echo "               make demo CORPUS='texts/*.txt' does the same on text of your own"
	@echo 'make test      install, then the whole suite, $(JOBS) files at a time (JOBS=N)'
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
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[mining-cpu,training,evaluation,human,study,dev]'
	$(BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Everything from text to a report; what was done before is not done again.
demo: $(INSTALLED)
	@$(BIN)/python pipeline/run_study.py --study $(STUDY) --output $(OUTPUT) --cores $(JOBS)

# Two files at a time: most tests wait for commands that they start, and networks this small want one thread.
test: $(INSTALLED)
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	@for benchmark in tests/benchmarks/bench_*.py; do $(BIN)/python $$benchmark || exit $$?; done

torture: $(INSTALLED)
	$(BIN)/python -m pytest tests/torture -o addopts=-v

clean:
	rm -rf $(VENV) .cache .snakemake $(OUTPUT) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
