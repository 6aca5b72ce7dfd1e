# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN = .venv/bin
ENV_READY = .venv/ready

.PHONY: demo test clean chromium

demo: $(ENV_READY)
	$(BIN)/crowdfuse demo --out demo-report --force

test: $(ENV_READY)-dev chromium
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

# torch comes from the constraints: without the pin pip would fetch gigabytes of CUDA packages
$(ENV_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(ENV_READY)-dev: $(ENV_READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# pages are tested in a real browser
chromium:
	@command -v chromium >/dev/null || { \
	  run=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$run apt-get update -qq && $$run apt-get install -y -qq chromium; } || \
	  echo "Chromium is missing and could not be installed: the tests that look at pages will fail"

clean:
	rm -rf .venv demo-report
