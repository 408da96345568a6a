# What people and CI both run. The first target that needs it makes .venv; nothing else is to be set up.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Real data and awkward inputs, when they lie beside the checkout.
ifneq ($(wildcard ../shared/data),)
export FASTGRL_DATA ?= $(abspath ../shared/data)
endif
ifneq ($(wildcard ../shared/badinputs),)
export FASTGRL_BADINPUTS ?= $(abspath ../shared/badinputs)
endif

.PHONY: help demo test check slow docs docs-check cluster frameworks bench bench-check reproduce reproduce-quick clean

# Where the paper is rerun to; what is there already is not run again.
REPRODUCTION ?= reproduction

help:
	@echo "make demo    the whole product on scikit-learn's digits; writes the folder demo, with a page to open"
	@echo "make test    the tests (make slow: those that take minutes)"
	@echo "make cluster      the tests on workers of Dask in processes of their own, killed and restarted"
	@echo "make frameworks   the tests on tensors of PyTorch, JAX and TensorFlow, which it installs"
	@echo "make check   style, types, import contracts"
	@echo "make docs         the documentation as a site that needs no network: site/index.html"
	@echo "make docs-check   every block of it run, links, spelling, the site in a browser if there is one"
	@echo "make bench   one table per question, side by side with other libraries (an hour; 12 GB of memory, 20 GB of disk; most races need FASTGRL_DATA)"
	@echo "make bench-check       whether anything became slower than the ratios that are stored (minutes)"
	@echo "make reproduce         the paper's table and figures, with every method in them: about two hours, may be stopped and resumed"
	@echo "make reproduce-quick   the same in minutes: one seed, one dataset of each kind, short trainings"
	@echo "make clean   remove what the others made, but no reproduction: that may have taken hours"

$(STAMP): pyproject.toml CMakeLists.txt $(wildcard src/fastgrl/_*.cpp src/fastgrl/_*.h)
	@test -x $(BIN)/python || { echo "making $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing fastgrl into $(VENV) (a minute or two the first time)"
	@$(PIP) install --quiet --editable '.[dev]' 2> $(VENV)/install.log || { cat $(VENV)/install.log; exit 1; }
	@touch $@

demo: $(STAMP)
	@$(BIN)/fastgrl demo -o demo --force

test: $(STAMP)
	$(BIN)/python -m pytest

slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

# Workers of Dask in processes of their own, some of which are killed.
cluster: $(VENV)/.stores
	$(BIN)/python -m pytest -m cluster tests

frameworks: $(VENV)/.frameworks
	$(BIN)/python -m pytest -m frameworks tests

# A warning is an error. The variable silences an announcement of the theme, which is none.
docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --site-dir site
	@echo "$(CURDIR)/site/index.html"

docs-check: $(STAMP)
	$(BIN)/python -m pytest -m docs tests

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# PyTorch first, by itself: what needs it is content with the version that is there.
$(VENV)/.baselines: $(STAMP)
	@echo "installing PyTorch and the methods to compare with"
	@$(PIP) install --quiet torch==2.13.0 && $(PIP) install --quiet torch_geometric gensim
	@touch $@

# The array libraries whose tensors fsvd takes.
$(VENV)/.frameworks: $(VENV)/.baselines
	@echo "installing JAX and TensorFlow"
	@$(PIP) install --quiet jax tensorflow-cpu
	@touch $@

# What speaks to S3, and a server that answers as S3 does.
$(VENV)/.stores: $(STAMP)
	@echo "installing a client and a server for S3's protocol"
	@$(PIP) install --quiet s3fs moto flask flask-cors
	@touch $@

reproduce: $(VENV)/.baselines
	$(BIN)/fastgrl reproduce all -o $(REPRODUCTION)

reproduce-quick: $(VENV)/.baselines
	$(BIN)/fastgrl reproduce all --quick -o $(REPRODUCTION)-quick

# What is measured: files; the product and the SVD; models; links; nodes; start, load, estimates; growth; disk.
BENCHMARKS := reading loading negatives memory kernels svd "svd --load" frameworks "released --library tensorflow" storage \
	links embedding scale nodes node_scale updates startup pairs estimates roofline cluster growth large

bench: $(VENV)/.frameworks
	@$(PIP) install --quiet sparse_dot_mkl mkl numba pycleora scikit-network
	@for table in $(BENCHMARKS); do \
		set -- $$table; echo "== benchmarks/$$1.py $${*:2}"; $(BIN)/python benchmarks/$$1.py $${*:2} || exit 1; echo; \
	done

bench-check: $(STAMP)
	$(BIN)/python benchmarks/check.py

clean:
	rm -rf $(VENV) build dist demo site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
