# make test        everything, with the real brokers it installs and starts on 127.0.0.1
# make test-quick  what needs only Go
# make test-long   soaks and large fleets, on top of test
# make bench       the benchmarks of engine and harness tax

GO ?= go
LAB := $(GO) run ./test/lab
export CGO_ENABLED ?= 1

.PHONY: test test-quick test-long suites bench lint

test:
	$(GO) build ./...
	$(LAB) run rabbitmq rabbitmq3 -- $(MAKE) --no-print-directory suites

test-quick:
	$(GO) build ./...
	$(GO) test -race -shuffle=on ./...

test-long: test
	LOCKSTEP_LONG=1 $(GO) test -race -v -timeout 60m -run Soak ./test

suites:
	bash test/suites.sh

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./internal/engine ./internal/record ./internal/matrix ./internal/clock ./internal/controller
	$(LAB) run rabbitmq -- $(GO) test -run '^$$' -bench . ./test/tax

lint:
	bash test/lint.sh
