# Everything a developer runs. Each target installs what it needs into .tmp.
SHELL := /bin/bash
GO    ?= go
BIN   := .tmp/bin
# Nested modules: their dependencies stay out of the root's.
NESTED := examples integration/peers integration/interop

# The cases make a million goroutines, and what the race detector keeps of them is only given back when the process ends: gigabytes, if one ran them all.
CASES_BY_LOAD   := Test(RING|P2C)
CASES_OF_FAULTS := Test(OVLD|BRK|LIFE)

.PHONY: help demo test check fmt vet lint tidy bench bench-pick bench-breaker interop interop-smoke generate checkgenerate smoke clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

demo: ## Replay a model-serving workload over real gRPC under five policies: a table, and an HTML report.
	@cd examples && $(GO) run ./fleet

test: ## Run all tests with the race detector.
	$(GO) test -race -timeout 20m $$($(GO) list ./... | grep -v '/integration$$\|/integration/cases')
	$(MAKE) -j2 --output-sync=target $(IN_BUBBLES)
	@for m in $(NESTED); do (cd $$m && echo "--- $$m" && $(GO) test -race -timeout 10m ./...) || exit 1; done

# Tests in virtual time that make connections run on one processor: the race detector of Go 1.26 crashes where two run timers of one bubble at once, as any
# two goroutines do that receive from timers which are over.
IN_BUBBLES := test-integration test-cases-of-load test-cases-of-faults test-cases-of-the-rest
BUBBLES    := $(GO) test -race -cpu 1 -timeout 15m

.PHONY: $(IN_BUBBLES)
test-integration:
	$(BUBBLES) ./integration ./integration/cases/early
test-cases-of-load:
	$(BUBBLES) ./integration/cases -run '$(CASES_BY_LOAD)'
test-cases-of-faults:
	$(BUBBLES) ./integration/cases -run '$(CASES_OF_FAULTS)'
test-cases-of-the-rest:
	$(BUBBLES) ./integration/cases -skip '$(CASES_BY_LOAD)|$(CASES_OF_FAULTS)'

check: fmt vet lint tidy checkgenerate test ## Everything that must hold before a change lands.

fmt: ## Fail if a file is not gofmt'ed.
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }

vet: ## go vet in every module.
	$(GO) vet ./...
	@for m in $(NESTED); do (cd $$m && $(GO) vet ./...) || exit 1; done

lint: $(BIN)/staticcheck ## staticcheck in every module.
	$(BIN)/staticcheck ./...
	@for m in $(NESTED); do (cd $$m && $(CURDIR)/$(BIN)/staticcheck ./...) || exit 1; done

tidy: ## Fail if a go.mod is not tidy.
	@for m in . $(NESTED) tools; do (cd $$m && $(GO) mod tidy -diff) || { echo "go.mod of $$m is not tidy"; exit 1; }; done

bench: ## Micro-benchmarks of the root module.
	$(GO) test -run '^$$' -bench . -benchmem ./picker ./balancer ./internal/methods

bench-pick: ## The pick path and its control plane beside grpc-go's own policies, in one run, with the goals.
	cd integration/peers && $(GO) run ./benchpick

bench-breaker: ## Circuit breakers beside those of other libraries, in one run, with the goals.
	cd integration/peers && $(GO) run ./benchpick -table breaker

interop: ## Real Triton, MLServer and KServe servers, two of each, and round_robin beside us: about a quarter of an hour.
	cd integration/interop && INTEROP=full $(GO) test -count=1 -timeout 25m -v .

interop-smoke: ## Two real Tritons: two minutes.
	cd integration/interop && INTEROP=smoke $(GO) test -count=1 -timeout 10m -v .

smoke: ## Each benchmark once, so that none rots.
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...
	@for m in $(NESTED); do (cd $$m && $(GO) test -run '^$$' -bench . -benchtime 1x ./...) || exit 1; done

generate: ## Make the generated code anew.
	$(GO) generate ./...
	@for m in $(NESTED); do (cd $$m && $(GO) generate ./...) || exit 1; done

checkgenerate: generate ## Fail if generated code is not what generate makes.
	@git diff --exit-code --stat -- '*.pb.go' || { echo "generated code is stale: run make generate"; exit 1; }

$(BIN)/staticcheck: tools/go.mod
	$(GO) build -C tools -o $(CURDIR)/$@ honnef.co/go/tools/cmd/staticcheck

clean: ## Remove what the targets made.
	rm -rf .tmp
