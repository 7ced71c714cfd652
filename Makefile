# Every target but api is a step of .ci/run, so that what runs here is what CI runs.

.PHONY: all build fmt lint tidy deps release examples conformance browser plain test api

all:
	.ci/run

build fmt lint tidy deps release examples conformance browser plain test:
	.ci/run $@

# api rewrites the list of exported names after a wanted change.
api:
	GOWORK=off go test -count=1 -run '^TestAPI$$' . -update
