# Every target but api and test is a step of .ci/run, so that what runs here is what CI runs.

.PHONY: all build fmt lint tidy deps release examples conformance sdks browser plain test api

all:
	.ci/run

build fmt lint tidy deps release examples conformance sdks browser plain:
	.ci/run $@

# test runs the tests as the README does, and says at the end which were skipped for want of which program. CI has all
# programs, and runs .ci/run test.
test:
	@echo go test -race work
	@go test -race -json work | go run .ci/skipped.go

# api rewrites the list of exported names after a wanted change.
api:
	GOWORK=off go test -count=1 -run '^TestAPI$$' . -update
