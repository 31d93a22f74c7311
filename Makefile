# Everything that one types in this project. `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The locked tools come first, so `python`, `eventplane`, `node` and `cdk` mean the ones that `make setup` installed.
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/node_modules/.bin:$(PATH)
# Spark 3.5 runs on Java 17; a newer default Java on this machine must not get in its way.
JAVA_17 := $(firstword $(wildcard /usr/lib/jvm/*17*/bin/java))
ifneq ($(JAVA_17),)
export JAVA_HOME := $(JAVA_17:/bin/java=)
endif
# Where the real input data lives; tests that need it fail in CI when it is missing.
export EVENTPLANE_SHARED ?= ../shared
# Without its bytecode cache Python compiles 1,800 files again in each process of a test run.
unexport PYTHONDONTWRITEBYTECODE

ENV ?= dev

.PHONY: help setup up down publish demo test check lint types unit synth diff deploy destroy smoke smoke-aws contract catalogue explain audit lock tables \
  crash-test bench-router bench-edge bench-spool bench-client bench-cloud bench-cost plane-size walk bench-scale bench-audit audit-proof audit-worst audit-hostile \
  bench-downlink bench-interest bench-tracing bench-conversation bench-timers packages device-image deb device-image-check device-boot-check chaos histories trial histories-mutants lost-answers attack fuzz docs figures clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install the locked tools (repeats in an instant)
	@lab/tools/setup.sh

up: setup ## Start a plane that stays on this machine, and its control room: CONTRACT=FILE WEBHOOK=NAME=URL
	@exec python -m lab.up start $(if $(CONTRACT),--contract "$(CONTRACT)") $(if $(WEBHOOK),--webhook "$(WEBHOOK)")

down: setup ## End the plane of `make up`
	@python -m lab.up down

publish: setup ## Put the changed contract in force in the plane of `make up`: WEBHOOK=NAME=URL
	@python -m lab.up publish $(if $(WEBHOOK),--webhook "$(WEBHOOK)")

demo: $(if $(filter all,$(EVENTS)),java,setup) ## Run the whole plane on this machine: DATA=../shared/data HOMES=12 EVENTS=20000 SEED=1
	@python -m lab.demo $(if $(DATA),--data "$(DATA)") $(if $(HOMES),--homes "$(HOMES)") \
	  $(if $(EVENTS),--events "$(EVENTS)") $(if $(SEED),--seed "$(SEED)")

# The parts that `check`, `lint`, `types` and `unit` can check alone: AREA=edge.
AREAS := client contract edge eventplane eventplane_aws eventplane_mqtt glue_jobs lab lambdas operations parts stacks
AREA ?=
ifneq ($(AREA),)
ifeq ($(filter $(AREAS),$(AREA)),)
$(error AREA=$(AREA) is unknown; name one of: $(AREAS))
endif
endif
# The package of an area and the folders of its unit tests, where they are not called like it.
package_client := eventplane_client
unit_eventplane := eventplane test_core_is_pure.py
unit_parts := ../parts
unit_stacks := stacks packaging
PACKAGE := $(if $(AREA),$(or $(package_$(AREA)),$(AREA)))
UNIT_TESTS := $(if $(AREA),$(addprefix tests/unit/,$(or $(unit_$(AREA)),$(AREA))),tests/unit tests/parts)
# The property tests of an area are those that import its package.
PROPERTY_TESTS = $(if $(AREA),$(shell grep -lE '^(from|import) $(PACKAGE)\b' tests/property/*.py),tests/property)
LINTED = $(if $(AREA),$(PACKAGE) $(UNIT_TESTS) $(PROPERTY_TESTS),.)
TYPED = $(or $(PACKAGE),$(foreach area,$(AREAS),$(or $(package_$(area)),$(area))))
UNTYPED := ':!lab/examples/nats/tests' ':!lab/benchmarks' ':!lab/packages' ':!lab/tools'
# The files below $1 that git tracks, whose names end like $2, as arguments: folders of one's own in the checkout are left alone.
# Not `git ls-files`, which has those that were deleted. Without git all files count that .gitignore does not name.
tracked = git grep $(if $(wildcard .git),,--no-index) -lze '' -- $1 | grep -zE '\.($2)$$' | xargs -0

# Idle workers take over what others have left. Each has to collect all tests; types and rooms run beside them. Only
# tests/integration needs schemathesis.
WORKERS = --numprocesses=$(shell nproc) --dist=worksteal -p no:schemathesis
# `make check` leaves properties, and tests marked as long, to `make test`, unless an area is named.
FAST_TESTS = $(UNIT_TESTS) $(if $(AREA),$(PROPERTY_TESTS),-m "not long")

# The tests of the whole system wait as much as they compute, so four parts run side by side, the longest first. A room is
# one process: one cloud, one deployed plane, one Spark session serve all of its tests.
LONG_ROOMS := device spark-audit integration spark e2e cloud-faults
SHORT_ROOMS := edge adversary infrastructure nats site python-3.13 $(if $(filter 0,$(shell id -u)),next-mosquitto)
ROOMS := $(LONG_ROOMS) $(SHORT_ROOMS)
room_integration := tests/integration --ignore=tests/integration/edge --ignore=tests/integration/test_site.py
room_e2e := tests/e2e --ignore=tests/e2e/test_cloud_faults.py
room_cloud-faults := tests/e2e/test_cloud_faults.py
room_edge := tests/integration/edge
room_site := tests/integration/test_site.py
# Audits are half of what runs on Spark: in one room it would end minutes after all others.
room_spark-audit := $(wildcard tests/spark/test_audit*.py)
room_spark := tests/spark $(addprefix --ignore=,$(room_spark-audit))
room_nats := lab/examples/nats/tests
PARTS := --no-print-directory --jobs=4 --output-sync=target --keep-going

test: java ## Run every check and test
	@$(MAKE) $(PARTS) $(addprefix room-,$(LONG_ROOMS)) unit lost-answers $(addprefix room-,$(SHORT_ROOMS)) types lint

.PHONY: system-tests $(addprefix room-,$(ROOMS))
system-tests: java ## Run the tests of several parts together, without the unit tests
	@$(MAKE) $(PARTS) $(addprefix room-,$(ROOMS))

$(addprefix room-,$(filter-out next-mosquitto python-3.13,$(ROOMS))): room-%: setup
	pytest $(or $(room_$*),tests/$*)
room-site: docs
# An example of the receipt protocol is in C.
room-edge room-next-mosquitto: | c-compiler
.PHONY: c-compiler
c-compiler: setup
	@command -v cc >/dev/null || { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends gcc libc6-dev; }
room-spark room-spark-audit: java
# What speaks to a broker, once more with the next Mosquitto, from a root that only root can make. It is of a Debian that is
# not released, which changes daily, and no mirror has to have it. EVENTPLANE_MOSQUITTO names the program for any test.
room-next-mosquitto: setup
	@lab/tools/device-userland.sh forky || { echo "the next Debian cannot be installed today: its Mosquitto is not tested" >&2; exit 0; }; \
	  set -x; EVENTPLANE_MOSQUITTO=$(CURDIR)/build/device/forky/mosquitto pytest tests/integration/edge \
	  tests/integration/client/test_mqtt_suite.py tests/integration/client/test_on_a_device.py
# What runs on AWS Lambda's Python 3.13, or on a Debian 13 (docs/reference/runtimes.md), once more on that Python.
room-python-3.13: python-3.13
	build/python-3.13/bin/pytest -p no:cacheprovider -p no:schemathesis --hypothesis-profile=fast -m "not long" tests/property tests/parts \
	  $(addprefix tests/unit/,client edge eventplane eventplane_mqtt lambdas)

# The Python of functions on AWS, which compiles their code.
.PHONY: python-3.13
python-3.13: setup
	@lab/tools/setup.sh python-3.13
room-infrastructure: python-3.13

# Audits of large archives, compaction and erasure run on Spark.
.PHONY: java
java: setup
	@lab/tools/setup.sh java
bench-audit bench-cost audit-proof audit-worst audit-hostile: java

check: setup ## Run the fast part side by side: lint, types, unit tests but the long ones; with AREA=edge all of its tests
	@$(MAKE) --no-print-directory --jobs --output-sync=target --keep-going FAST=1 lint types fast-tests

.PHONY: fast-tests
# The first run compiles the 2,300 files that its workers import, each of which would do so otherwise.
fast-tests: setup
	@$(if $(wildcard .pytest_cache),,pytest --collect-only -qq -p no:schemathesis $(FAST_TESTS) >/dev/null || true)
	pytest $(WORKERS) --hypothesis-profile=fast --quiet $(FAST_TESTS)

lint: setup ## Check style, formatting, borders between packages, generated files, CloudFormation templates: AREA=edge
	$(call tracked,$(LINTED),py) ruff check --force-exclude
	$(call tracked,$(LINTED),py|md) ruff format --check --force-exclude
	lint-imports --no-logo
	$(if $(AREA),,python lab/tools/tables.py --check)
	$(if $(AREA),,python lab/tools/dashboards.py --check)
	$(if $(FAST)$(filter-out stacks,$(AREA)),,python lab/tools/lint_templates.py)

tables: setup ## Write the generated tables and plots of the docs, and the dashboard of the devices
	python lab/tools/tables.py
	python lab/tools/dashboards.py

# Reading the types of the CDK and of Spark takes most of a first run, so `make check` takes what they give as it comes.
build/mypy.toml: pyproject.toml Makefile
	@mkdir -p build
	@{ cat pyproject.toml; printf '\n[[tool.mypy.overrides]]\nmodule = "%s"\n%s\n' \
	  'aws_cdk.*' 'follow_imports = "skip"' 'stacks.*' 'warn_return_any = false' \
	  'pyspark.*' 'follow_imports = "skip"' 'glue_jobs.*' 'warn_return_any = false'; } >$@

types: setup build/mypy.toml ## Check types: AREA=edge
	$(call tracked,$(TYPED) $(UNTYPED),py) mypy $(if $(FAST)$(filter-out stacks,$(AREA)),--config-file build/mypy.toml --cache-dir .mypy_cache/fast)

unit: setup ## Run unit and property tests, with all their examples: AREA=edge
	pytest $(WORKERS) $(UNIT_TESTS) $(PROPERTY_TESTS)

synth: python-3.13 ## Write the templates of ENV (dev) to cdk.out
	cdk synth --quiet --context env=$(ENV)

diff: python-3.13 ## Compare ENV with what is deployed; tells what a deployment would be refused for
	cdk synth --quiet --context env=$(ENV)
	cdk diff --app cdk.out
	@$(PREFLIGHT)

deploy: python-3.13 ## Deploy ENV after a preflight of queues, quotas and drift, and one question: YES=dev AT_ONCE=1 ACCEPT_DRIFT=1 (docs/how-to/operations.md)
	cdk synth --quiet --context env=$(ENV) $(if $(AT_ONCE),--context rollout=at-once)
	@$(PREFLIGHT) --ask $(if $(YES),--yes "$(YES)")
	cdk deploy --all --app cdk.out --require-approval never --concurrency 4

PREFLIGHT = python -m stacks.preflight cdk.out $(ENV) $(if $(ACCEPT_DRIFT),--accept-drift)

destroy: setup ## Delete the stacks of ENV; what is retained stays: YES=dev
	@python -m stacks.detach "$(ENV)" $(if $(YES),--yes "$(YES)")
	cdk destroy --all --context env=$(ENV) $(if $(YES),--force)

smoke: setup ## Check that the deployed ENV works, with a throw-away device (docs/how-to/operations.md): JSON=1 PEOPLE_ARE_INFORMED=1 RESTORE_DRILL=1
	@eventplane smoke --env $(ENV) $(if $(JSON),--json) $(if $(PEOPLE_ARE_INFORMED),--people-are-informed)
	@$(if $(RESTORE_DRILL),eventplane restore fleet --at "$$(date -u -d '10 minutes ago' +%Y-%m-%dT%H:%M:%SZ)" --dry-run --env $(ENV))

smoke-aws: python-3.13 ## Spend a day with a real account: deploy ENV (dev), fail, test, restore, destroy (docs/how-to/first-account.md): YES=dev FROM=smoke KEEP=1
	@python -m lab.smoke_aws "$(ENV)" $(if $(FROM),--from "$(FROM)") $(if $(KEEP),--keep) $(if $(YES),--yes "$(YES)")

contract: setup ## Check the contract, print its summary and its warnings
	@eventplane contract check

catalogue: setup ## Write the event catalogue, a page of the contract for people: build/catalogue.html
	@eventplane contract catalogue

explain: setup ## Show who receives an event, and why: EVENT=event.json MATCHES=1 SENDER=name PLACE=cloud JSON=1
	@eventplane contract explain "$(EVENT)" $(if $(SENDER),--sender "$(SENDER)") $(if $(MATCHES),--matches) \
	  $(if $(PLACE),--place "$(PLACE)") $(if $(JSON),--json)

audit: archive = $(or $(INPUT),build/demo/run/archive)
audit: output = $(or $(OUTPUT),build/audit)
audit: setup ## Audit an archive on this machine, and draw its page: INPUT=folder DATE=all OUTPUT=build/audit ENGINE=spark
	@python -m glue_jobs.delivery_audit --INPUT "$(archive)" --OUTPUT "$(output)" --DATE "$(or $(DATE),all)" \
	  $(if $(ENGINE),--ENGINE "$(ENGINE)")
	@python -m lab.audit_page "$(output)" --archive "$(archive)"

lock: setup ## Regenerate the lock files; UPGRADE=1 takes newer versions
	lab/tools/lock.sh

crash-test: setup ## Cut the power 10,000 times under the spool, damage it 2,000 times; writes build/bench/crash.json (a minute)
	@python -m lab.benchmarks.crash

chaos: setup ## Break everything on purpose: SCENARIO=pairs SEED=1 (lab/chaos/explanation.md); writes build/chaos/SCENARIO.json
	@python -m lab.chaos "$(or $(SCENARIO),singly)" $(if $(SEED),--seed "$(SEED)") $(if $(SECONDS),--seconds "$(SECONDS)") $(if $(BOOTS),--boots "$(BOOTS)")

histories: setup ## Simulate the plane and judge it (lab/histories/explanation.md): SECONDS=60 SEEDS=200 SEED=7 TRACE=1; writes build/chaos/histories.json
	@python -m lab.histories $(if $(SECONDS),--seconds "$(SECONDS)") $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(SEED),--seed "$(SEED)") $(if $(TRACE),--trace)

trial: setup ## Roll harmful and harmless contracts out to simulated homes: EVERY=1 SEED=1; writes build/chaos/rollout.json (ten minutes)
	@python -m lab.rollout $(if $(EVERY),--every "$(EVERY)") $(if $(SEED),--seed "$(SEED)")

histories-mutants: setup ## Plant faults one by one and count those that the histories find: SEEDS=300 ONLY=presence; writes build/chaos/histories_mutants.json
	@python -m lab.histories.mutants $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(ONLY),--only "$(ONLY)")

lost-answers: setup ## Lose the answer of every AWS call, one by one; writes build/chaos/lost-answers.json (a minute or two)
	@python -m tests.lost_answers

attack: setup ## Attack the deployed plane in the local cloud (docs/explanation/security.md); writes build/chaos/attack.json (minutes)
	pytest tests/adversary

docs: ## Build the documentation site: build/docs/index.html
	@lab/tools/setup.sh docs
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --config-file lab/tools/mkdocs.yml --strict --quiet
	@echo "build/docs/index.html"

figures: setup ## Take every result under build/ into docs/figures.json, and write the tables and plots
	@python -m lab.tools.figures
	@python lab/tools/tables.py

fuzz: setup ## Fuzz everything that reads bytes from outside: TARGETS="spool mqtt" SECONDS=60; writes build/bench/fuzz.json
	@python -m tests.fuzz $(TARGETS) $(if $(SECONDS),--seconds "$(SECONDS)")

bench-spool: setup ## Measure what the spool writes; writes build/bench/spool.json
	@python -m lab.benchmarks.spool

bench-router: setup ## Measure the router; writes build/bench/router.json (a minute)
	@python -m lab.benchmarks.router

bench-edge: setup ## Measure the forwarder beside Mosquitto's bridge; writes build/bench/edge.json (some minutes)
	@python -m lab.benchmarks.edge

bench-client: setup ## Measure the client library over each backend; writes build/bench/client.json (some minutes)
	@python -m lab.benchmarks.client

bench-cloud: setup ## Measure the plane in the local cloud; writes build/bench/cloud.json (some minutes)
	@python -m lab.benchmarks.cloud

bench-cost: setup ## Count what a run would be billed for, and price it; writes build/bench/cost.json (some minutes)
	@python -m lab.benchmarks.cost

plane-size: setup ## Find the largest planes that AWS takes, the smallest and its forwarder; writes build/bench/plane_size.json (minutes)
	@python -m lab.benchmarks.plane_size

walk: setup ## Count the files that run for one alarm, to its reader and with its audit; writes build/bench/walk.json
	@python -m lab.benchmarks.walk

bench-downlink: setup ## Measure the way down to devices in the local cloud; writes build/bench/downlink.json (minutes)
	@python -m lab.benchmarks.downlink

bench-interest: setup ## Count the bytes not sent on real data; writes build/bench/interest.json (half a minute)
	@python -m lab.benchmarks.interest

bench-tracing: setup ## Measure what tracing costs; writes build/bench/tracing.json (a minute)
	@python -m lab.benchmarks.tracing

bench-conversation: setup ## Measure request and reply; writes build/bench/conversation.json (some minutes)
	@python -m lab.benchmarks.conversation

bench-timers: setup ## Simulate two days of 1,000 devices' presence; writes build/bench/timers.json (some 6 CPU minutes): HOURS=6
	@python -m lab.benchmarks.timers $(if $(HOURS),--hours "$(HOURS)")

bench-scale: setup ## Compute what fleets mean from the newest figures: REGION=us-east-1; writes build/bench/scale.json
	@python -m lab.benchmarks.scale $(REGION)

audit-proof: setup ## Prove the audit by planted faults: EVENTS=1000000; writes build/bench/audit_proof.json, audit_values.json
	@python -m lab.benchmarks.audit.values
	@python -m lab.benchmarks.audit.proof $(if $(EVENTS),--events "$(EVENTS)")

audit-worst: setup ## Audit days on which nearly all is wrong: EVENTS=5000000; writes build/bench/audit_worst.json (an hour)
	@python -m lab.benchmarks.audit.worst $(if $(EVENTS),--events "$(EVENTS)")

audit-hostile: setup ## Audit a fleet in which devices send hostile reports; writes build/bench/audit_hostile.json (minutes)
	@python -m lab.benchmarks.audit.hostile

bench-audit: setup ## Measure the audit beside DuckDB: EVENTS="1000000 5000000" REPEAT=3; writes build/bench/audit.json
	@python -m lab.benchmarks.audit.bench $(if $(EVENTS),--events $(EVENTS)) $(if $(REPEAT),--repeat "$(REPEAT)")

packages: setup ## Build the wheels of eventplane, eventplane-client, eventplane-forwarder: build/packages/*.whl
	@python lab/tools/packages.py

device-image: setup ## Build what a device runs: build/device/eventplane-forwarder.pyz (WITHOUT="discovery provisioning": without these parts)
	@python lab/tools/device_image.py --revision "$$(git describe --always --dirty 2>/dev/null || echo unknown)" $(addprefix --without ,$(WITHOUT))

deb: setup ## Build the Debian package of the forwarder: build/device/eventplane-forwarder_VERSION_all.deb
	@python lab/tools/debian_package.py --revision "$$(git describe --always --dirty 2>/dev/null || echo unknown)" $(addprefix --without ,$(WITHOUT))

device-image-check: deb ## Install the package in clean Debians, run it in an emulated armv7l one (as root; minutes, 180 MB of packages)
	@lab/tools/device-userland.sh
	pytest tests/device/test_package.py
	@python -m lab.benchmarks.device

device-boot-check: setup ## Boot the package's units under systemd on an emulated armv7l machine (as root; minutes, 75 MB of packages)
	pytest tests/device

clean: ## Delete everything that setup, builds and runs made
	rm -rf .venv .venv-emulator .venv-docs node_modules build cdk.out spark-warehouse metastore_db derby.log \
	  .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
