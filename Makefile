# make build       the programs, in bin: ctl, lockstep-agent and lockstep-controller
# make test        every guarantee, with the real brokers it installs and starts on 127.0.0.1
# make lab         downloads and builds those brokers, and starts nothing
# make test-quick  what needs only Go
# make test-long   studies, hosts, packages, browser, durability, soak, scale and many seeds; PART=fleet runs one part
# make dist        packages of all platforms, an OCI image layout, a bill of materials and checksums, in dist; VERSION=1.2.3 DIST=folder
# make dashboards  writes the Grafana dashboards, from dashboards/*.go
# make bench       the benchmarks of the engine and of the load generator's overhead
# make lint        formatting, static analysis, writing rules, manifests, builds and vulnerabilities

GO ?= go
DIST ?= dist
LAB := $(GO) run ./test/lab

.PHONY: build dist test lab test-quick test-long dashboards bench lint

build:
	$(GO) build -o bin/ctl ./cmd/ctl
	$(GO) build -o bin/lockstep-agent ./cmd/agent
	$(GO) build -o bin/lockstep-controller ./cmd/controller

dist:
	deploy/packages/build.sh "$(DIST)" "$(VERSION)" linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64

test:
	$(GO) build ./...
	GO=$(GO) bash test/suites.sh

lab:
	$(LAB) install all tools

test-quick:
	GO=$(GO) bash test/suites.sh --quick

test-long:
	GO=$(GO) bash test/suites.sh --long $(PART)

dashboards:
	cd dashboards && $(GO) generate ./...

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./internal/engine ./internal/record ./internal/matrix ./internal/clock ./internal/controller
	$(LAB) run rabbitmq -- $(GO) test -run '^$$' -bench . ./test/overhead

lint:
	bash test/lint.sh
