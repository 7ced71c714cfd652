module github.com/go-throttle/throttle/integration/conformance

go 1.25.0

require (
	github.com/go-resty/resty/v2 v2.17.2
	github.com/go-throttle/throttle v0.0.0
	golang.org/x/oauth2 v0.36.0
)

require (
	cloud.google.com/go/compute/metadata v0.3.0 // indirect
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	golang.org/x/net v0.43.0 // indirect
	golang.org/x/sync v0.18.0 // indirect
	golang.org/x/time v0.14.0 // indirect
)

replace github.com/go-throttle/throttle => ../..
