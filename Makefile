# Everything a person or a machine does to this repository. `make` alone says
# what there is. Building and running need Go, git and make and nothing else;
# tools for generating and linting are pinned in tools/ and live in .bin.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := $(CURDIR)/.bin
PROGRAMS := agentctl agent agentd
# The Go modules of the workspace.
MODULES := . ./proto
# The imports of proto/ that other people own.
VENDORED := buf/validate/validate.proto google/rpc/status.proto google/rpc/error_details.proto

VERSION := $(or $(shell git describe --always --dirty 2>/dev/null),unknown)
# -trimpath, no cgo and no version control stamp: the same source gives the same
# bytes in every folder. Tests and linters are built so too: what one of them has
# compiled none compiles again. Without git the version is `unknown`.
# grpcnotrace: grpc without its page of traces, which links html/template. A template calls
# methods by name, so that the linker keeps every method of every type: 22 MB in all.
export CGO_ENABLED := 0
TAGS := grpcnotrace
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -buildvcs=false -tags=$(TAGS))
# tools/progress counts the lines of `go build -v`.
PROGRESS ?=
GO_BUILD := go build $(PROGRESS) -ldflags '-s -w -X main.version=$(VERSION)'
# Installed next to agentd, which checks its hash; so it is built first.
SANDBOX := theclaw-sandbox
# build_into DIR: theclaw-sandbox, then the programs, agentd with the hash of the first.
# thread is agentctl by another name, and ac and agentclaw are 'agentctl chat': docs/decisions/026.
CHAT_NAMES := ac agentclaw
build_into = $(GO_BUILD) -o $(1)/ ./cmd/$(SANDBOX) >&2; \
	sum=$$(sha256sum $(1)/$(SANDBOX)); \
	go build $(PROGRESS) -ldflags "-s -w -X main.version=$(VERSION) -X main.sandboxSHA256=$${sum%% *}" -o $(1)/ $(PROGRAMS:%=./cmd/%) >&2; \
	for name in thread $(CHAT_NAMES); do ln -sf agentctl $(1)/$$name; done

# npm fetches buf ready made (seconds, Linux on x86-64); go builds it (minutes).
BUF_FROM ?= $(if $(and $(filter Linux/x86_64,$(shell uname -s)/$(shell uname -m)),$(shell command -v npm)),npm,go)
AGAINST ?=
PREFIX ?=
WITH_THREAD ?=
FUZZTIME ?= 1m
FUZZRUNS ?= 20000
BENCH ?= .
# The hot paths: append, claim, context, filter, route, encode, calls, prompt.
PACKAGES ?= ./internal/store/sqlite ./internal/store/sqlite/conn ./internal/filter ./internal/route ./internal/thread ./internal/rpc/serve ./services/runner/internal/prompt
COUNT ?= 6
BENCHTIME ?= 0.3s
# Sizes of the proofs, and the seed that replays one.
KILLS ?= 150
N ?= 20
ROUNDS ?= 5
SEED ?=
REV ?=
SEEDS ?= 8
MESSAGES ?= 100
HISTORIES ?= 4
MUTANTS ?= all
FAULTS ?= all
DURATION ?= 20s
KILL_EVERY ?= 4s
AGENTS ?= 20
STRIKES ?= 20
THREADS ?= 1000
PAGES ?=
HEAVY ?=
TTL ?= 5s
MINUTES ?= 10
# What deploy/ gives services over PostgreSQL: docs/decisions/016.
CLUSTER_GODEBUG := schedtrace=2147483647
# How the services stand in the end-to-end suite, and which scripts are run (all).
TOPOLOGY ?=
SCRIPTS ?=

.PHONY: help
help: ## say what can be made
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {print "\n" substr($$0, 5)} \
	/^[a-z][a-z-]*:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

##@ Programs

.PHONY: build
build: ## build agentctl (also as thread, ac and agentclaw), agent and agentd into .bin
	@mkdir -p $(BIN)
	@$(call build_into,$(BIN))

.PHONY: man
man: build ## write the manual pages of agentctl into .bin/man
	@$(BIN)/agentctl man $(BIN)/man

# Nothing here writes to standard output but the program itself.
.PHONY: run
run: ## start an agent here and talk to it: printf 'hello\n' | make run
	@tools/progress $(MAKE) --no-print-directory build </dev/null
	@$(BIN)/agentctl up

# What is released, and for what. SHA256SUMS names every file; the bill of materials
# is read from the programs themselves.
RELEASE := $(BIN)/release
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

.PHONY: release
release: $(BIN)/nfpm ## build a release into .bin/release: programs, archives, packages, image, SHA256SUMS: VERSION=v1.0.0
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	@for p in $(PLATFORMS); do dir=$(RELEASE)/$${p/\//-}; mkdir -p $$dir; \
	(export GOOS=$${p%/*} GOARCH=$${p#*/}; $(call build_into,$$dir)); cp LICENSE $$dir/; done
	@cd tools && GOWORK=off go run ./sbom -name theclaw -version '$(VERSION)' $$(find $(RELEASE) -type f ! -name LICENSE | LC_ALL=C sort) >$(RELEASE)/theclaw.cdx.json
	@for p in $(PLATFORMS); do dir=$${p/\//-}; GOWORK=off go -C tools run ./archive -out $(RELEASE)/theclaw-$(VERSION)-$$dir.tar.gz $(RELEASE)/$$dir; done
	@for p in $(filter linux/%,$(PLATFORMS)); do tools/package $(RELEASE)/$${p/\//-} $${p#*/} '$(VERSION)' $(RELEASE); done
	@tools/image $(RELEASE) '$(VERSION)'
	@cd $(RELEASE) && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | sed 's#^\./##' | xargs sha256sum >SHA256SUMS
	@cd $(RELEASE) && cat SHA256SUMS

# Two releases, for a machine that is upgraded from one to the other.
MACHINE := $(BIN)/machine

.PHONY: install-machine
install-machine: $(BIN)/nfpm ## install, upgrade and remove the packages and the archive on a Debian machine with systemd (root; apt: mmdebstrap systemd-container)
	@for v in v1.0.0 v1.1.0; do dir=$(MACHINE)/$$v; rm -rf $$dir; mkdir -p $$dir; $(MAKE) --no-print-directory build BIN=$$dir/linux-amd64 VERSION=$$v GOOS=linux GOARCH=amd64; \
	cp LICENSE $$dir/linux-amd64/; GOWORK=off go -C tools run ./archive -out $$dir/theclaw-$$v-linux-amd64.tar.gz $$dir/linux-amd64; \
	tools/package $$dir/linux-amd64 amd64 $$v $$dir; (cd $$dir && sha256sum *.tar.gz >SHA256SUMS); done
	@tools/install-machine $(MACHINE)

# What is compared: always of one platform and one version, so that only the source counts.
SIZE := $(BIN)/size
MEASURED := agentd agentctl agent $(SANDBOX)
size_build = mkdir -p $(SIZE)/stripped && export GOOS=linux GOARCH=amd64 VERSION=size && $(MAKE) --no-print-directory build BIN=$(SIZE)/stripped VERSION=size

.PHONY: size
size: ## what the programs consist of, by module, into docs/size.md
	@$(size_build); mkdir -p $(SIZE)/symbols; go build -o $(SIZE)/symbols/ $(MEASURED:%=./cmd/%)
	@cp LICENSE $(SIZE)/stripped/; GOWORK=off go -C tools run ./archive -out $(SIZE)/theclaw-size-linux-amd64.tar.gz $(SIZE)/stripped
	@GOWORK=off go -C tools run ./size -stripped $(SIZE)/stripped -symbols $(SIZE)/symbols -archive $(SIZE)/theclaw-size-linux-amd64.tar.gz -out $(CURDIR)/docs/size.md $(MEASURED)
	@sed -n '/^## Sizes/,/^.thread/p' docs/size.md

.PHONY: size-check
size-check: ## fail when a program is more than 5 % larger than docs/size.md says
	@$(size_build); unset GOOS GOARCH; GOWORK=off go -C tools run ./size -stripped $(SIZE)/stripped -check $(CURDIR)/docs/size.md $(MEASURED)

# thread and ac have the names of other tools, which may be on the PATH. A program ac that is in
# the directory already stays.
INSTALLED := $(PROGRAMS) $(SANDBOX)

.PHONY: install
install: build ## put the programs into PREFIX/bin, or where `go install` would; thread only with WITH_THREAD=1
	@dir='$(if $(PREFIX),$(PREFIX)/bin)'; dir=$${dir:-$$(go env GOBIN)}; dir=$${dir:-$$(go env GOPATH)/bin}; \
	mkdir -p "$$dir" && install -m 0755 $(INSTALLED:%=$(BIN)/%) "$$dir/" && \
	names='$(INSTALLED)$(if $(filter 1,$(WITH_THREAD)), thread)' && $(if $(filter 1,$(WITH_THREAD)),ln -sf agentctl "$$dir/thread" && ) \
	for name in $(CHAT_NAMES); do \
		[[ -e "$$dir/$$name" || -L "$$dir/$$name" ]] || ln -s agentctl "$$dir/$$name"; \
		if [[ $$(readlink "$$dir/$$name") == agentctl ]]; then names+=" $$name"; else echo "kept $$dir/$$name, which is another program"; fi; \
	done && echo "installed $$names into $$dir"

##@ Tests

# The tests have two classes. Quick ones need nothing but Go and git: what asks package
# internal/testing/need for something of WITHOUT is skipped, also where it is there, and
# files with the build tag proof are not built: tests that kill processes, depend on
# timing or take long. `go test -v` says why a test is skipped. Most of the time of the long
# packages is waiting, for leases and processes: four run side by side, also on two processors.
WITHOUT ?= root,mount,namespaces,postgres,bubblewrap,tmux
PROOF_TAG := -tags=proof,$(TAGS)
GO_TEST = packages=$$(go run ./proofs/tests list -but '$(BUT)' -skip '$(SKIP)' $(MODULES:%=%/...)); \
	go test -timeout 30m -p 4 -parallel 4 $(if $(SKIP),-skip '$(SKIP)') $$packages

.PHONY: examples
examples: ## make what the programs in Python and TypeScript need, and get MCP servers (protoc, npm; see docs/calling.md)
	@examples/python/generate
	@examples/plugin/generate
	@mkdir -p $(BIN)/mcp && cp examples/mcp/npm/package*.json $(BIN)/mcp && cd $(BIN)/mcp && npm ci --prefer-offline --no-audit --no-fund --ignore-scripts --silent
	@cd examples/typescript && npm ci --prefer-offline --no-audit --no-fund --ignore-scripts --silent && npm run --silent build

.PHONY: test
test: ## run the quick tests of every module: no root, PostgreSQL, bubblewrap (WITHOUT=names of what counts as missing)
	@export THECLAW_WITHOUT='$(WITHOUT)'; $(GO_TEST)

.PHONY: test-all
test-all: ## run every test that this machine can (BUT=regexp leaves packages out, SKIP=regexp tests; THECLAW_NEED=all: skip none)
	@export GOFLAGS="$$GOFLAGS $(PROOF_TAG) -ldflags=-w -vet=off"; $(GO_TEST)

.PHONY: race
race: ## the same with the race detector (needs a C compiler)
	@CGO_ENABLED=1 go test -race $(PROOF_TAG) $(MODULES:%=%/...)

# One test program for each package with targets, then each target of it in turn.
# What an execution costs is mostly the counters of all that the program holds, so a
# target stands in a package that imports little. The merge gate counts in our own
# packages alone: to compile all that they import once more would take it minutes.
FUZZ_OURS := github.com/theclaw/agents/...=-d=libfuzzer
FUZZ_RUN = grep -rEno --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's\#^\./(.*)/[^/]*:[0-9]+:func \#\1 \#' | LC_ALL=C sort | \
	while read -r dir name; do bin=$(BIN)/fuzz/$${dir//\//-}; [[ $$dir == "$${last-}" ]] || { last=$$dir; go test -c $(2) -o "$$bin" "./$$dir"; }; \
	out=$$(cd "$$dir" && "$$bin" -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime $(1) -test.fuzzminimizetime 100x -test.parallel 2 \
		-test.fuzzcachedir "$$(go env GOCACHE)/fuzz/theclaw/$$dir" </dev/null 2>&1) || { printf '%s\n' "$$out"; exit 1; }; echo "$$dir $$name"; done

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (default 1m; 20000x counts executions)
	@mkdir -p $(BIN)/fuzz; $(call FUZZ_RUN,$(FUZZTIME),-fuzz .)

.PHONY: fuzz-ci
fuzz-ci: ## the same for FUZZRUNS executions of each (default 20000), led by our own code; one line of figures
	@mkdir -p $(BIN)/fuzz; out=$$($(call FUZZ_RUN,$(FUZZRUNS)x,-ldflags=-w -gcflags='$(FUZZ_OURS)')) || { printf '%s\n' "$$out"; exit 1; }; \
	n=$$(wc -l <<<"$$out"); echo "fuzz-ci targets=$$n executions=$$((n * $(FUZZRUNS))) failures=0"; ((n > 1))

.PHONY: bench
bench: build ## measure against the goals and the machine's limits (12 minutes; PART=words: only such parts, printed); writes bench/results and the docs
	@before=$$(tools/previous $$(<bench/before.rev))/agentd || before=; \
	go run ./bench -agentd $(BIN)/agentd -before "$$before" $(if $(PART),-only '$(PART)',-out bench/results -doc docs/performance.md)

.PHONY: bench-quick
bench-quick: build ## the same, small, printed only (a minute)
	@go run ./bench -quick -agentd $(BIN)/agentd -only '$(PART)'

.PHONY: bench-postgres
bench-postgres: build ## the same of several registries over PostgreSQL (10 minutes; QUICK=1: small, printed only)
	@go build -o $(BIN)/bench-postgres ./bench/postgres
	@GODEBUG=$(CLUSTER_GODEBUG) $(BIN)/bench-postgres -agentd $(BIN)/agentd $(if $(QUICK),-quick,-out bench/results -doc docs/scaling.md)

.PHONY: bench-curves
bench-curves: build ## draw how figures grow into docs/curves and the docs (20 minutes; QUICK=1: small, into .bin/curves)
	@go run ./bench -agentd $(BIN)/agentd $(if $(QUICK),-quick -curves $(BIN)/curves,-curves docs/curves -doc docs/performance.md)

.PHONY: bench-steady
bench-steady: build ## hold 70 % of the most for MINUTES (default 10); 10 and more are kept in bench/results and the docs
	@go run ./bench -agentd $(BIN)/agentd -steady $(MINUTES)m $(if $(filter-out 0 1 2 3 4 5 6 7 8 9,$(MINUTES)),-out bench/results -doc docs/performance.md)

BENCH_GO := go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) $(PACKAGES)

.PHONY: bench-go
bench-go: ## Go benchmarks of the hot paths: BENCH=regexp PACKAGES=./internal/... COUNT=6
	@$(BENCH_GO)

.PHONY: bench-save
bench-save: ## the same, kept in bench/results/go.txt for later ones to be compared with
	@$(BENCH_GO) | tee bench/results/go.txt

.PHONY: bench-compare
bench-compare: $(BIN)/benchstat ## the same, compared by benchstat with what was kept last
	@mkdir -p $(BIN) && $(BENCH_GO) >$(BIN)/go.txt && $(BIN)/benchstat kept=bench/results/go.txt now=$(BIN)/go.txt

.PHONY: darwin-check
darwin-check: ## check the types of the programs for darwin; a build, as of a release, takes ten times as long
	@mkdir -p $(BIN) && cd tools && GOWORK=off go build -o $(BIN)/typecheck ./typecheck
	@export GOOS=darwin GOARCH=arm64 CGO_ENABLED=0; \
	$(BIN)/typecheck $$(go list -deps -f '{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}' ./cmd/...)

.PHONY: deploy-check
deploy-check: ## hold compose files and chart against compose-go, helm and Kubernetes (minutes the first time)
	@cd deploy/check && GOWORK=off go test -count=1 ./...

.PHONY: ci
ci: ## everything the merge gate runs, in its order
	@bash .ci/run

##@ Proofs

# Each prints one line of figures and fails on a broken guarantee. The test program
# is run directly, since `go test` prints nothing for tests that pass. The proofs of a
# package have one program: go links it again only when something of it has changed.
define PROVE
@mkdir -p $(BIN)
@go test -c $(PROOF_TAG) -ldflags=-w -o $(BIN)/$(subst /,-,$(2)).test ./$(2)
@cd $(2) && THECLAW_TARGET=$@ AGENTD=$(BIN)/agentd TOPOLOGY=$(TOPOLOGY) KILLS=$(KILLS) N=$(N) ROUNDS=$(ROUNDS) SEED=$(SEED) SEEDS=$(SEEDS) MESSAGES=$(MESSAGES) \
	HISTORIES=$(HISTORIES) MUTANTS=$(MUTANTS) FAULTS=$(FAULTS) DURATION=$(DURATION) KILL_EVERY=$(KILL_EVERY) AGENTS=$(AGENTS) THREADS=$(THREADS) STRIKES=$(STRIKES) TTL=$(TTL) STORE=$(STORE) PAGES='$(PAGES)' HEAVY=$(HEAVY) $(BIN)/$(subst /,-,$(2)).test -test.timeout 4h -test.run '^$(1)$$' | grep -v '^PASS$$'
endef

# A promise whose tests stand with the code: they are run again and counted, and each
# name must have passed.
AGAIN = @go run ./proofs/tests run $@ '$(1)' $(2)

.PHONY: crash-matrix
crash-matrix: ## kill agentd at every labeled instant: KILLS=150 SEED= STORE=postgres
	$(call PROVE,TestCrashMatrix,cmd/agentd)

.PHONY: zombie
zombie: ## stop a holder past its lease and wake it up again: N=20 STORE=postgres
	$(call PROVE,TestZombies,cmd/agentd)

.PHONY: race-runners
race-runners: ## four runner processes over fresh homes: ROUNDS=5 SEED= STORE=postgres
	$(call PROVE,TestRaceRunners,cmd/agentd)

.PHONY: e2e
e2e: build ## every scenario of agentctl, TOPOLOGY=embedded, split (three users, mTLS) or cluster (2 registries): SCRIPTS=regexp
	@go test -c $(PROOF_TAG) -ldflags=-w -o $(BIN)/e2e.test ./cmd/agentctl
	@cd cmd/agentctl && PROGRAMS=$(BIN) TOPOLOGY=$(TOPOLOGY) SCRIPTS='$(SCRIPTS)' $(BIN)/e2e.test -test.timeout 1h -test.run '^TestScripts$$' | grep -v '^PASS$$'

.PHONY: rotation
rotation: build ## replace certificates and the authority N=20 times under load: TOPOLOGY=split or cluster
	$(call PROVE,TestRotation,proofs/topology)

.PHONY: bitrot
bitrot: ## flip N bits in stored events and find every one: N=20 SEED=
	$(call PROVE,TestBitrot,internal/invariant)

.PHONY: fsck-size
fsck-size: ## time a check of a home of many conversations: THREADS=1000
	$(call PROVE,TestCheckSize,internal/invariant)

.PHONY: sim
sim: ## runners and deliverers in simulated bad luck: SEEDS=8 MESSAGES=100 SEED=
	$(call PROVE,TestSimulation,proofs/sim)

.PHONY: linearizability
linearizability: build ## leases and pushes over gRPC and kills, judged by porcupine: HISTORIES=4 SEED= STORE=postgres
	$(call PROVE,TestLinearizability,proofs/linearizability)

.PHONY: powerloss
powerloss: ## cut the power of a simulated disk: N=20 SEED=
	$(call PROVE,TestPowerLoss,proofs/powerloss)

.PHONY: diskfull
diskfull: ## fill the disk under a working home, and at every write in turn (needs root)
	$(call PROVE,TestDiskFull.*,proofs/live)

.PHONY: poison
poison: build ## a message that kills the process dies alone; N=20 others are answered: TTL=5s TOPOLOGY=
	$(call PROVE,TestPoison,proofs/live)

.PHONY: long-turn
long-turn: build ## kill the process at STRIKES=20 steps of one turn: SEED= TTL=5s TOPOLOGY=
	$(call PROVE,TestLongTurn,proofs/live)

.PHONY: provider-faults
provider-faults: build ## a hundred kinds of malformed answers of a model: fate, cause and paid calls of each
	$(call PROVE,TestProviderFaults,proofs/provider)

.PHONY: run-ids
run-ids: ## a run id is waited for through kills at every instant: KILLS=28 SEED=
	$(call PROVE,TestRunIDs,cmd/agentd)

.PHONY: lostwake
lostwake: build ## pushes at the end of a batch, with no further push: N=20 SEED= TOPOLOGY=
	$(call PROVE,TestLostWake,proofs/live)

.PHONY: id-reuse
id-reuse: ## an inbox id that comes again is another message: N=20
	$(call PROVE,TestIDReuse,proofs/live)

.PHONY: tool-scenarios
tool-scenarios: ## what a person sees of tools: files, programs, approvals, questions, MCP servers, images, containers
	$(call AGAIN,TestFirstTask|TestTools|TestToolsWorkOnFiles|TestMessageTool.*|TestCommandsAskFirst|TestApproval.*|TestAskUser.*|TestProcess.*|TestProgramTools|TestHostileMCPServers|TestMCP.*|TestNpm.*|TestImagesOfResults|TestDocker.*,services/runner cmd/agentctl)

.PHONY: tool-matrix
tool-matrix: ## runners are killed at each instant of the calls of tools, on both engines: KILLS=n
	$(call PROVE,TestToolMatrix,services/runner)

.PHONY: broken-accounts
broken-accounts: ## 63 accounts that do not work, next to one that does: MINUTES=10
	$(call PROVE,TestBrokenAccounts,services/gateway)

.PHONY: channels
channels: ## what people and programs see of accounts of each type, with no kills
	$(call AGAIN,Test.*,internal/channel $(addprefix internal/channel/,catalog discord plugin slack telegram telegram/telegramtest webhook xgw) services/gateway services/gateway/internal/intake services/gateway/internal/stream)

.PHONY: channel-matrix
channel-matrix: ## kill agentd between platforms and agents at each instant, and a control that must lose messages: KILLS=28 SEED=
	$(call PROVE,TestChannelMatrix,cmd/agentd)

.PHONY: outside
outside: build ## gateway, notifier and dispatcher by foreign programs only: N=20 messages, SEED=
	$(call PROVE,Test.*,proofs/outside)

.PHONY: isolation
isolation: build ## a broken receiver delays no reply of another agent to the same host: N=20 replies for each of six ways
	$(call PROVE,TestIsolation,proofs/live)

.PHONY: ack-rewind
ack-rewind: build ## a foreign pop, to and fro, changes nothing: N=20 SEED= TOPOLOGY=
	$(call PROVE,TestAckRewind,proofs/live)

.PHONY: sandbox-escape
sandbox-escape: export DRIVERS = all
sandbox-escape: ## 164 attempts to leave the sandbox, on every driver and by every tool, each tried without one first
	$(call PROVE,TestSandboxEscape,internal/sandbox)
	$(call PROVE,Test(File)?ToolsEscape,services/runner)

.PHONY: canary
canary: build ## secrets in every place that holds one stand nowhere else after a life of an agent
	$(call PROVE,TestCanary,proofs/canary)

.PHONY: inject
inject: build ## N hostile ids through every field, command and message (complete: N=500)
	$(call PROVE,TestInject,proofs/inject)

# docs/spec/security.md, S1 to S10: each by its own name, all by `make safety`.
.PHONY: s1 s2 s3 s4 s5 s6 s7 s8 s9 s10
s1:
	$(call AGAIN,TestDefaultStartListensOnLoopback|TestTCP.*,cmd/agentd internal/rpc/serve)
s2:
	$(call AGAIN,TestTokenFile|TestReadTokenRefuses.*|TestAWrongTokenIsNotRepeated|TestAnotherUserIsRefused|TestClientFollowsARotatedToken|TestTokenRotatesUnderLoad,internal/rpc internal/rpc/serve cmd/agentd)
s3:
	$(call AGAIN,TestEveryMethodRefusesEveryWrongCaller|TestEveryCallRefusesEveryWrongCaller|TestNewRefusesAMethodWithoutARule,internal/rpc/serve internal/testing/world)
s4: sandbox-escape
s5:
	$(call AGAIN,TestApproval.*|TestNoAnswerIsNo|TestCommandsAskFirst|TestTheSandboxAsksNobody,services/registry services/runner)
s6:
	$(call AGAIN,Test.*,internal/audit)
s7: canary
	$(call AGAIN,TestTenThousand.*,internal/route internal/source)
s8: inject
s9: canary
s10: fuzz-ci

.PHONY: safety
safety: ## each check of docs/spec/security.md, S1 to S10, in its order (minutes; N=500: complete S8)
	@for s in s1 s2 s3 s4 s5 s6 s7 s8 s10; do printf '%-5s' "$${s^^}"; $(MAKE) --no-print-directory $$s | tail -n 2 | paste -sd' '; done

.PHONY: outage
outage: ## model provider and receiver are away: no attempt is spent
	$(call AGAIN,TestOutage|TestOutageOfAnHour|TestReceiverAway|TestOldWhileDown,services/runner services/runner/internal/turn services/deliverer/internal/delivery services/deliverer/internal/breaker internal/testing/world)

.PHONY: route-change
route-change: ## a changed routing mode never routes one message twice
	$(call AGAIN,TestRouteChangedInBetween|TestContract,internal/testing/world internal/store/sqlite)

.PHONY: deliver-dup
deliver-dup: ## what is sent again carries its key and the flag
	$(call AGAIN,TestCrashBetweenSendAndFinish|TestLeaseLostInMidSend|TestThirdTry,services/deliverer/internal/delivery internal/testing/world)

.PHONY: restore-move
restore-move: ## an agent that is copied, moved or restored elsewhere works there at once
	$(call AGAIN,TestMoved|TestCopiedAtWork|TestRestoredElsewhere|TestBackupUnderLoad|TestRestoreWholeOrNot|TestRestoreOfWhatTheInboxDoesNotKnow,cmd/agentd internal/testing/world)

.PHONY: upgrade
upgrade: N := 35
upgrade: build ## open what earlier builds left when they were killed at N=35 labels, and answer each message once: SEED=
	$(call PROVE,TestUpgrade,proofs/upgrade)

.PHONY: docs-run
docs-run: build $(and $(HEAVY),$(BIN)/nfpm) ## run the command blocks of every page and compare their outputs: PAGES=regexp HEAVY=1
	$(call PROVE,Test.*,proofs/pages)

.PHONY: skew
skew: export PREVIOUS = $(shell tools/previous $(REV))
skew: build ## run a registry of one revision with workers of another, N=20 messages for each pair: REV=revision (needs root)
	@tools/previous $(REV) >/dev/null
	$(call PROVE,TestSkew,proofs/skew)

.PHONY: gather
gather: export PREVIOUS = $(shell tools/previous $(REV))
gather: build ## gather the agents of two databases with an earlier build, as the refusal of several says: REV=revision
	@tools/previous $(REV) >/dev/null
	$(call PROVE,TestGather,proofs/upgrade)

.PHONY: fixtures
fixtures: ## make the homes and dumps for it once: of tools/previous.rev, or REV=revision
	@build=$$(tools/previous -test $(REV)) && cd proofs/upgrade && BUILD=$${build##*/} DOOMED=$$build/agentd.test go test $(PROOF_TAG) -count=1 -v -run '^TestWrite$$' .

.PHONY: mutants
mutants: ## take out what holds the promises up, one by one, over both engines; each is caught: MUTANTS=n chooses some by SEED=
	$(call PROVE,TestMutants,proofs/mutants)

.PHONY: fuzz-faults
fuzz-faults: ## seed faults in the state machine, one by one; the fuzz target finds each within a minute: FAULTS=n chooses some by SEED=
	$(call PROVE,TestFaults,proofs/mutants)

.PHONY: state-matrix
state-matrix: ## every call in every state of turns, deliveries and inboxes, on both engines and a model
	$(call PROVE,TestMatrix,internal/store/storetest/oracle)

.PHONY: cluster
cluster: build ## 2 registries over PostgreSQL, 4 runners, 2 deliverers; kill each, the database, and fail over: DURATION=20s of each KILL_EVERY=2s SEED=
	$(call PROVE,TestCluster.*,proofs/cluster)

.PHONY: streams
streams: build ## streams, waits and aborts that know only registries, while runners die: DURATION=20s KILL_EVERY=2s SEED=
	$(call PROVE,TestStreams.*,proofs/cluster)

.PHONY: registries
registries: build ## watchers and callers of three registries that are drained and killed: DURATION=20s KILL_EVERY=2s
	$(call PROVE,TestRegistries.*,proofs/cluster)

.PHONY: partition
partition: build ## runners, registries and the database in network namespaces, disconnected from each other past their leases: N=6
	$(call PROVE,TestPartition.*,proofs/cluster)

.PHONY: soak
soak: build ## live under load and kill -9: DURATION=20s KILL_EVERY=4s AGENTS=20
	$(call PROVE,TestSoak,proofs/soak)

# One word list for each size: a target and how big it is. In the merge gate what the tests
# of packages show anyway (outage, route-change, deliver-dup, restore-move) is not run again. Two
# run side by side, so the longest one stands first.
PROOFS_CI := 'crash-matrix KILLS=72' 'zombie N=10' 'race-runners ROUNDS=3' 'bitrot N=200' 'sim SEEDS=24' \
	'linearizability HISTORIES=4' 'powerloss N=60' diskfull 'poison N=10' 'long-turn STRIKES=8' provider-faults \
	docs-run 'run-ids KILLS=14' 'lostwake N=20' 'id-reuse N=3' 'ack-rewind N=20' 'isolation N=20' 'outside N=4' 'tool-matrix KILLS=38' 'channel-matrix KILLS=15' sandbox-escape canary \
	'inject N=60' 'fuzz-ci FUZZRUNS=2000' 'mutants MUTANTS=6' 'fuzz-faults FAULTS=2' 'upgrade N=14' \
	'cluster DURATION=5s KILL_EVERY=2s' 'streams DURATION=5s KILL_EVERY=2s' \
	'registries DURATION=5s KILL_EVERY=2s' 'partition N=2' 'crash-matrix STORE=postgres KILLS=14' \
	'zombie STORE=postgres N=6' 'race-runners STORE=postgres ROUNDS=2' \
	'linearizability STORE=postgres HISTORIES=1' 'soak DURATION=15s KILL_EVERY=2s AGENTS=20'
PROOFS := 'soak DURATION=5m KILL_EVERY=5s AGENTS=200' 'crash-matrix KILLS=1000' 'zombie N=200' 'race-runners ROUNDS=20' \
	'bitrot N=2000' 'sim SEEDS=80' 'linearizability HISTORIES=20' 'powerloss N=2000' diskfull 'poison N=20' \
	'long-turn STRIKES=20' provider-faults 'docs-run HEAVY=1' 'run-ids KILLS=84' 'lostwake N=100' 'id-reuse N=10' 'ack-rewind N=100' 'isolation N=100' 'outside N=20' 'tool-matrix KILLS=160' 'channel-matrix KILLS=140' \
	sandbox-escape canary 'inject N=120' outage route-change deliver-dup restore-move 'fsck-size THREADS=1000' \
	mutants fuzz-faults state-matrix upgrade 'skew N=1000' gather 'cluster DURATION=20s KILL_EVERY=2s' \
	'streams DURATION=20s KILL_EVERY=2s' 'registries DURATION=20s KILL_EVERY=2s' 'partition N=4' \
	'crash-matrix STORE=postgres KILLS=105' 'zombie STORE=postgres N=13' 'race-runners STORE=postgres ROUNDS=5' \
	'linearizability STORE=postgres HISTORIES=10' 'e2e TOPOLOGY=split' 'e2e TOPOLOGY=cluster' \
	'poison TOPOLOGY=split N=20' 'poison TOPOLOGY=cluster N=20' 'long-turn TOPOLOGY=split STRIKES=10' \
	'long-turn TOPOLOGY=cluster STRIKES=10' 'lostwake TOPOLOGY=cluster N=50' 'ack-rewind TOPOLOGY=cluster N=50' \
	'rotation TOPOLOGY=split N=20' 'rotation TOPOLOGY=cluster N=20'

PROOFS_RELEASE := 'crash-matrix KILLS=10000' 'zombie N=2000' 'race-runners ROUNDS=500' 'bitrot N=20000' 'sim SEEDS=2000' \
	'linearizability HISTORIES=400' 'powerloss N=20000' diskfull 'poison N=100' 'long-turn STRIKES=49' provider-faults \
	'docs-run HEAVY=1' 'run-ids KILLS=2800' 'lostwake N=2000' 'id-reuse N=200' 'ack-rewind N=1000' 'isolation N=1000' 'outside N=2000' 'tool-matrix KILLS=1000' 'channel-matrix KILLS=1000' sandbox-escape \
	canary 'inject N=500' 'fuzz-ci FUZZRUNS=1000000' outage route-change deliver-dup restore-move \
	'fsck-size THREADS=1000' mutants fuzz-faults state-matrix upgrade 'skew N=10000' gather 'cluster DURATION=180s KILL_EVERY=2s' \
	'streams DURATION=180s KILL_EVERY=2s' 'registries DURATION=180s KILL_EVERY=2s' 'partition N=40' \
	'crash-matrix STORE=postgres KILLS=1500' 'zombie STORE=postgres N=260' \
	'race-runners STORE=postgres ROUNDS=200' 'linearizability STORE=postgres HISTORIES=200' 'e2e TOPOLOGY=split' \
	'e2e TOPOLOGY=cluster' 'poison TOPOLOGY=split N=100' 'poison TOPOLOGY=cluster N=100' \
	'long-turn TOPOLOGY=split STRIKES=49' 'long-turn TOPOLOGY=cluster STRIKES=49' \
	'lostwake TOPOLOGY=cluster N=500' 'ack-rewind TOPOLOGY=cluster N=500' 'rotation TOPOLOGY=split N=500' 'rotation TOPOLOGY=cluster N=500' \
	'soak DURATION=1h KILL_EVERY=5s AGENTS=200'

.PHONY: proofs-ci
proofs-ci: ## every proof in the size of the merge gate (minutes)
	@go run ./proofs/record -jobs 2 $(PROOFS_CI)

.PHONY: proofs
proofs: ## every proof in the size of a nightly run (a third of an hour); writes docs/reliability.md
	@go run ./proofs/record -jobs 2 -page docs/reliability.md $(PROOFS)

.PHONY: proofs-release
proofs-release: ## every proof in the size of a release (many hours); prints only
	@go run ./proofs/record $(PROOFS_RELEASE)

##@ Source

.PHONY: generate
generate: tools ## rewrite proto/gen and third_party/proto
	@cd tools && GOWORK=off go run ./protovendor ../third_party/proto $(VENDORED)
	@$(BIN)/buf format -w proto
	@$(BIN)/buf generate

.PHONY: rows
rows: ## write the acceptance rows docs/spec/rows.md from the tests that name them
	@go test -count=1 -run '^TestDocsRows$$' . -args -write-rows

.PHONY: map
map: ## write the code map docs/map.md from the package comments
	@go test -count=1 -run '^TestDocsMap$$' . -args -write-map

.PHONY: settings-doc
settings-doc: ## write docs/settings.md from the table of settings
	@go test -count=1 -run '^TestDocsSettings$$' . -args -write-settings

.PHONY: fmt
fmt: $(BIN)/gofumpt $(BIN)/buf ## format Go and proto files
	@$(BIN)/gofumpt -w .
	@$(BIN)/buf format -w proto

.PHONY: lint
lint: lint-go lint-proto ## everything that can be said without running the code

.PHONY: lint-go
lint-go: $(BIN)/golangci-lint $(BIN)/gofumpt ## Go: linters, format, layers, package and page checks
	@$(BIN)/golangci-lint run --allow-parallel-runners ./...
	@diff=$$($(BIN)/gofumpt -d . || true); test -z "$$diff" || { printf '%s\n' "$$diff"; echo 'make fmt would change this' >&2; exit 1; }
	@go test -count=1 -run '^Test(Layer|Below|Package|Docs)' .

.PHONY: lint-proto
lint-proto: $(BIN)/buf ## proto: buf lint and format
	@$(BIN)/buf lint
	@$(BIN)/buf format -d --exit-code proto

.PHONY: breaking
breaking: $(BIN)/buf ## compare the wire contract with main's (AGAINST=revision)
	@tools/breaking $(AGAINST)

##@ Tools

.PHONY: tools
tools: $(BIN)/buf $(BIN)/protoc-gen-go $(BIN)/protoc-gen-go-grpc $(BIN)/gofumpt ## install the pinned tools into .bin (BUF_FROM=npm|go)

.PHONY: clean
clean: ## remove .bin and downloaded tools
	@rm -rf $(BIN) tools/node_modules

# A tool is installed again only when its module file changes. `touch` because
# Go leaves a program that is already right untouched, and make would ask again.
$(BIN)/protoc-gen-go $(BIN)/protoc-gen-go-grpc $(BIN)/gofumpt &: tools/go.mod
	@GOWORK=off GOBIN=$(BIN) go -C tools install tool
	@touch $(BIN)/protoc-gen-go $(BIN)/protoc-gen-go-grpc $(BIN)/gofumpt

$(BIN)/golangci-lint: tools/lint/go.mod
	@GOWORK=off GOBIN=$(BIN) go -C tools/lint install tool
	@touch $@

# 2.45.2: later ones need modules that the proxy of modules does not give away.
$(BIN)/nfpm: tools/nfpm/go.mod
	@GOWORK=off GOBIN=$(BIN) go -C tools/nfpm install tool
	@touch $@

$(BIN)/benchstat: tools/stat/go.mod
	@GOWORK=off GOBIN=$(BIN) go -C tools/stat install tool
	@touch $@

ifeq ($(BUF_FROM),npm)
$(BIN)/buf: tools/package-lock.json
	@npm ci --prefix tools --ignore-scripts --no-audit --no-fund --prefer-offline --loglevel=error >&2
	@mkdir -p $(BIN) && install -m 0755 tools/node_modules/@bufbuild/buf-linux-x64/bin/buf $@
else
$(BIN)/buf: tools/buf/go.mod
	@GOWORK=off GOBIN=$(BIN) go -C tools/buf install tool
	@touch $@
endif
