module github.com/go-throttle/throttle

go 1.25.0

require (
	github.com/cenkalti/backoff/v4 v4.3.0
	golang.org/x/sync v0.18.0
	golang.org/x/time v0.14.0
)
