# The commands of the README. Each installs what it needs first, and is quick where nothing is missing.

# Arguments for `rookery serve` and for `load-tests run`.
ARGS ?=
# What `make load` runs: `celebrity` or `churn`.
SCENARIO ?= celebrity
# The development profile also for `make run`: it builds in half the time of a release and shares its work with `make test`. For
# figures, `make run PROFILE=release`; `make load` uses that by itself.
PROFILE ?= dev

.PHONY: run test setup lint openapi load

run: setup ## Serve on 127.0.0.1:8080 with the embedded database and a demo world.
	@cargo run --locked --profile $(PROFILE) --package rookery-api --bin rookery -- serve --demo $(ARGS)

test: ## Check everything: formats, lints, crate graph, licences, all tests.
	@scripts/test.sh

setup: ## Install the C compiler and the database.
	@scripts/setup.sh

lint: setup ## Formats and lints alone.
	@cargo fmt --all --check
	@cargo clippy --locked --workspace --all-targets -- -D warnings

openapi: setup ## Write openapi/openapi.json anew from the code.
	@mkdir -p openapi
	@cargo run --locked --quiet --package rookery-api --bin rookery -- openapi > openapi/openapi.json.new
	@mv openapi/openapi.json.new openapi/openapi.json

load: setup ## Run a load scenario against services of its own and print its table.
	@cargo build --locked --release --package rookery-api --package load-tests
	@target/release/load-tests run $(SCENARIO) $(ARGS)
