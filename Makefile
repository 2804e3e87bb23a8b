# `make test` and `make bench` set everything up on a fresh machine; nothing else needs to be installed by hand.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
LIGHT  := $(VENV)/.light
READY  := $(VENV)/.ready

# A separate environment with what `pip install .` installs, and pytest.
EVERYDAY := build/light

.PHONY: bench speed test test-light repeat docs release lint format clean browser broker exiftool

# The paper's CUB-200 big-start protocol with the paper's settings: its six methods and the default head, one draw, on
# embedded features of a real ViT, adapted on the base classes by the paper's recipe. The README's table is its output.
bench: $(LIGHT)
	$(BIN)/fiveshot bench cub200/big

# All benchmarks with limits: run by hand on a quiet machine, never in CI. PUBLISHED is a clone of the published
# repository and DATA the folder with CUB-200's photos; without them, their benchmarks are left out.
speed: $(READY)
	$(BIN)/python benchmarks/speed.py $(if $(PUBLISHED),--published "$(PUBLISHED)") $(if $(DATA),--data "$(DATA)")

# Hundreds of processes import the package, so bytecode is cached even if the environment turns that off.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --dist worksteal

# Every change of a model waits for the disk. If there is enough memory, the folders of tests are in memory; folders of
# passed tests are removed at once.
MEMORY := $(shell df -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }')
ifdef MEMORY
PYTEST := PYTEST_DEBUG_TEMPROOT=$(MEMORY) $(PYTEST) -o tmp_path_retention_policy=failed
endif

test: $(READY) browser broker exiftool
	$(PYTEST) -n 2 -m "not pages"

# The everyday tests without extras; fails if too few of them ran. Some embedded features are only in a checkout.
test-light: $(EVERYDAY)/.ready
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(EVERYDAY)/bin/python -m pytest -q --junit-xml=$(EVERYDAY)/report.xml \
	  tests/core tests/heads tests/metrics tests/storage tests/features tests/recognizer tests/plugins tests/cli \
	  --ignore=tests/features/test_embedded_features.py
	$(EVERYDAY)/bin/python tools/count_passed.py $(EVERYDAY)/report.xml --at-least 1500

$(EVERYDAY)/.ready: pyproject.toml $(shell find src -name '*.py')
	test -x $(EVERYDAY)/bin/python || $(PYTHON) -m venv $(EVERYDAY)
	$(EVERYDAY)/bin/python -m pip install --quiet . pytest
	touch $@

# The whole suite several times, half of the runs with a busy processor: every result must be the same. Takes hours.
repeat: $(READY)
	$(BIN)/python tools/repeat.py --runs 10 --busy 5

# The site in build/site, with warnings as errors; runs the notebooks and every command of the pages.
# Look at it: python -m http.server -d build/site
docs: $(READY) browser broker
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(PYTEST) -n 2 -m pages tests/docs tests/packaging

# Builds the committed state as a release in dist/ and checks it as a user would; uploads nothing (docs/how-to/release.md).
release: $(READY)
	$(BIN)/python tools/release.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Only a complete installation is marked as ready; the next call repairs an interrupted one.
# `bench` needs only what `pip install fiveshot` installs; everything else needs all extras.
$(LIGHT): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(READY): $(LIGHT)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

BRIEFLY := -o Acquire::Retries=0 -o Acquire::http::Timeout=10

# Tests of pages use a real browser. If it cannot be installed, they are skipped with a reason. Most of them need only the
# headless shell, which installs in a quarter of the time. A failed installation is not an error.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq $(BRIEFLY) && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	echo "chromium is not installed and cannot be installed here: browser tests will be skipped"
	@command -v chromium-headless-shell >/dev/null || ! command -v chromium >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(BRIEFLY) chromium-headless-shell >/dev/null 2>&1; } || true

# Tests of `watch` use a real MQTT broker. Without it, they are skipped.
broker:
	@{ command -v mosquitto || test -x /usr/sbin/mosquitto; } >/dev/null && command -v mosquitto_sub >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq $(BRIEFLY) && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq mosquitto mosquitto-clients >/dev/null; } || \
	echo "mosquitto is not installed and cannot be installed here: tests of MQTT will be skipped"

# Tests of sidecars read them with exiftool. Without it, they are skipped.
exiftool:
	@command -v exiftool >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq $(BRIEFLY) && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libimage-exiftool-perl >/dev/null; } || \
	echo "exiftool is not installed and cannot be installed here: its tests will be skipped"

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
