# Everything sets itself up: `make demo` and `make test` need only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready# what tests and development need
LIGHT := $(VENV)/.light# what the demo needs; READY has that, too
RELEASING := .venv-release/.ready# tools of a release
unexport PYTHONDONTWRITEBYTECODE  # the tests start many processes
LINT := $(BIN)/python build_stubs.py && $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
# Only files with the locked hashes are installed; nothing is fetched to build the package.
PIP := -m pip install --quiet --disable-pip-version-check --no-deps
LOCKED := $(PIP) --require-hashes
SELF := $(PIP) --no-build-isolation --editable .
OLDEST := tests/agents/test_agent.py tests/simulation tests/environments tests/cli tests/privacy \
  tests/test_base_install.py tests/test_authoring.py

.PHONY: demo wheel advisories release lock examples test test-all test-oldest test-gpu audit bench mutants lint format docs gallery clean help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

define new_environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "balaclava needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Step 1: an environment in $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
endef

$(LIGHT): pyproject.toml requirements-lab.lock requirements-build.lock hatch_build.py build_stubs.py
	$(new_environment)
	@echo "Step 2: download and install the package with [lab]"
	@$(BIN)/python $(LOCKED) -r requirements-lab.lock
	@$(BIN)/python $(LOCKED) -r requirements-build.lock
	@$(BIN)/python $(SELF)
	@touch $@

$(READY): pyproject.toml requirements.lock requirements-examples.lock requirements-build.lock \
  hatch_build.py build_stubs.py
	$(new_environment)
	@echo "Step 2: download and install what the tests need, 2 GB"
	$(BIN)/python $(LOCKED) -r requirements.lock
	$(BIN)/python $(LOCKED) -r requirements-examples.lock
	$(BIN)/python $(LOCKED) -r requirements-build.lock
	$(BIN)/python $(SELF)
	@touch $@ $(LIGHT)

demo: $(if $(wildcard $(READY)),$(READY),$(LIGHT)) ## six policies at epsilon 1, played and audited: tables, a picture, a page
	@echo "Step 3: simulate and audit, about three minutes the first time"
	$(BIN)/balaclava demo --out out/demo

test: $(READY) ## everything that must hold before a change lands; lint runs beside the tests
	@mkdir -p out; { $(LINT); } > out/lint.txt 2>&1 & lint=$$!; \
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadgroup --durations=10; tests=$$?; \
	wait $$lint; linted=$$?; cat out/lint.txt; exit $$((tests || linted))

test-all: $(READY) lint ## with the long tests, and pairs for a GPU (430 MB); PART="agents auditing": folders of tests/
	$(BIN)/python $(LOCKED) -r requirements-gpu.lock
	$(BIN)/python -m pytest -n 2 --dist loadgroup --durations=10 $(addprefix tests/,$(PART))
	$(MAKE) advisories

test-oldest: ## the oldest versions that pyproject.toml allows, in an environment of their own
	$(PYTHON) -m venv --clear .venv-oldest
	.venv-oldest/bin/python $(LOCKED) -r requirements-oldest.lock
	.venv-oldest/bin/python $(LOCKED) -r requirements-build.lock
	.venv-oldest/bin/python $(SELF)
	.venv-oldest/bin/python -m pytest -m "not slow" -n 2 $(OLDEST)

test-gpu: $(READY) ## what a GPU plays, against the CPU, on a machine that has one
	$(BIN)/python $(LOCKED) -r requirements-gpu.lock
	$(BIN)/python -m pytest -m gpu tests/simulation/gpu

audit: $(READY) ## put every privacy claim to the full test; writes docs/audit.md; DEVICE=cuda: on a GPU
	$(BIN)/python benchmarks/full_audit.py $(if $(DEVICE),--device $(DEVICE) --trials 1000000000)

bench: $(READY) ## speed, as ratios to references in the same run
	$(BIN)/python $(LOCKED) -r requirements-bench.lock
	$(BIN)/python benchmarks/run.py

mutants: $(READY) ## change one thing at a time where privacy is at stake: which changes no test sees
	$(BIN)/python benchmarks/mutants.py --sample 250 --seed 1

lint: $(READY) ## style, types, import order
	$(LINT)

format: $(READY) ## put the sources into the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(READY) ## the package as one file in dist/, to be installed elsewhere
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist .

$(RELEASING): requirements-release.lock
	$(PYTHON) -m venv --clear .venv-release
	.venv-release/bin/python $(LOCKED) -r requirements-release.lock
	@touch $@

advisories: $(READY) $(RELEASING) ## known vulnerabilities of what the lock files install
	.venv-release/bin/python .ci/advisories.py

release: $(READY) $(RELEASING) ## the wheel, built twice, with checks, SBOM, hashes and provenance, in dist/
	$(BIN)/python .ci/release.py $(if $(DRAFT),--draft) $(if $(SIGN),--sign $(SIGN))

lock: ## write the hashes of all versions into the lock files; needs uv
	$(PYTHON) .ci/lock.py

examples: $(READY) ## private choices on real data: shares by daily returns, insurance plans by visits
	$(BIN)/python examples/assets.py
	$(BIN)/python examples/health_plans.py

docs: $(READY) ## the documentation as a static site in site/
	$(BIN)/python -m sphinx -q -W --keep-going docs site
	@echo "open site/index.html"

gallery: $(READY) ## figures of the papers whose policies changed, at quick scale; updates docs/gallery.md
	$(BIN)/balaclava reproduce --all --out out/gallery --markdown docs/gallery.md

clean: ## remove the environment and everything that was made
	rm -rf $(VENV) .venv-oldest .venv-release site docs/reference docs/project out build dist
