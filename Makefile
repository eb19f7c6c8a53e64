# make test        everything, with the real brokers it installs and starts on 127.0.0.1
# make lab         downloads and builds those brokers, and starts nothing
# make test-quick  what needs only Go
# make test-long   soaks, large fleets, their upgrade, brokers by their roles, and every fault of fleets, on top of test
# make dashboards  writes the Grafana dashboards anew, from dashboards/*.go
# make bench       the benchmarks of engine and harness tax

GO ?= go
LAB := $(GO) run ./test/lab
export CGO_ENABLED ?= 1

.PHONY: test lab test-quick test-long dashboards bench lint

test:
	$(GO) build ./...
	GO=$(GO) bash test/suites.sh

lab:
	$(LAB) install all tools

test-quick:
	$(GO) build ./...
	$(GO) test -race -shuffle=on ./...

test-long: test
	LOCKSTEP_LONG=1 $(LAB) run all tools -- $(GO) test -v -timeout 90m -run 'Soak|BrokerCompareFindsNothing|BrokerFullMatrix|BrokerMqperf|BrokerBindings|BrokerShapes' ./test
	LOCKSTEP_LONG=1 $(LAB) run ansible sshd releases -- $(GO) test -v -timeout 90m -run TestFleet ./test/fleet
	LOCKSTEP_LONG=1 $(GO) test -v -timeout 60m ./test/scale
	LOCKSTEP_LONG=1 $(GO) test -v -timeout 60m ./test/roles
	LOCKSTEP_LONG=1 $(GO) test -v -timeout 120m ./test/chaos -chaos.seeds 5
	LOCKSTEP_LONG=1 $(GO) test -v -timeout 120m -run 'KnownTruth|TheSameIsNoise' ./internal/history/change ./internal/compare

dashboards:
	cd dashboards && $(GO) generate ./...

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./internal/engine ./internal/record ./internal/matrix ./internal/clock ./internal/controller
	$(LAB) run rabbitmq -- $(GO) test -run '^$$' -bench . ./test/tax

lint:
	bash test/lint.sh
