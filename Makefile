# make build   the binary, bin/simba
# make test    all tests; installs what they need
# make lint    golangci-lint, pinned
# make bench   what simba costs beside flock(1)
# make torture ROUNDS=30       more rounds of kills and cuts against the binary
# make simulate SEEDS=100000   more of the simulation of the protocol
# make clean

GO ?= go
BINARY ?= bin/simba
SEEDS ?= 100000
ROUNDS ?= 30
GOLANGCI_LINT = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# What the tests need beside Go: a program or a file, and the package of Debian
# that has it. The race detector needs a C compiler; the servers are run by the
# tests themselves, on ports and in directories of their own.
TEST_NEEDS = \
	cc:gcc \
	flock:util-linux \
	setsid:util-linux \
	unshare:util-linux \
	script:bsdutils \
	nohup:coreutils \
	tar:tar \
	bash:bash \
	redis-server:redis-server \
	redis-sentinel:redis-sentinel \
	mariadbd:mariadb-server \
	java:default-jre-headless \
	/usr/share/java/zookeeper.jar:zookeeper
# Further packages without a program of their own.
TEST_PACKAGES = libc6-dev

.PHONY: all build test needs check lint bench simulate torture clean

all: build

build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -ldflags '-s -w' -o $(BINARY) .

# Most of the tests wait for something, so more packages than cores go side by side. But an ensemble of three
# servers that is to answer within leases of seconds needs the cores for itself.
test: needs check
	$(GO) test -race -p 4 -skip '^TestZooKeeper' $$($(GO) list ./... | grep -v /backend/zookeeper$$)
	$(GO) test -race ./backend/zookeeper
	$(GO) test -race -run '^TestZooKeeper' ./internal/torture

check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || echo .)); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w is due for:" $$unformatted; exit 1; fi
	$(GO) vet ./...

needs:
	@missing=; PATH="$$PATH:/usr/sbin:/sbin"; \
	for need in $(TEST_NEEDS); do \
		command -v "$${need%%:*}" >/dev/null || test -e "$${need%%:*}" || missing="$$missing $${need#*:}"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	missing="$$missing $(TEST_PACKAGES)"; \
	if ! command -v apt-get >/dev/null; then \
		echo "the tests need what Debian has in:$$missing" >&2; exit 1; \
	elif [ "$$(id -u)" = 0 ]; then root=; \
	elif sudo -n true 2>/dev/null; then root=sudo; \
	else echo "the tests need: sudo apt-get install$$missing" >&2; exit 1; fi; \
	$$root apt-get update -q && \
	DEBIAN_FRONTEND=noninteractive $$root apt-get install -q -y --no-install-recommends $$missing

lint:
	$(GOLANGCI_LINT) run

bench: build
	$(GO) run ./internal/bench -simba $(abspath $(BINARY))

torture:
	$(GO) test -count=1 -timeout 2h -parallel 6 -v ./internal/torture -rounds $(ROUNDS) -fleet 60s

simulate:
	SIMBA_SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 0 -run 'TestSimulation$$' -v ./lease

clean:
	rm -rf bin dist coverage.out
