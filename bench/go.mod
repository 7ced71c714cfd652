module github.com/go-throttle/throttle/bench

go 1.25.0

require (
	github.com/PuerkitoBio/rehttp v1.4.0
	github.com/aws/aws-sdk-go-v2 v1.47.6
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/go-throttle/throttle v0.0.0-00010101000000-000000000000
	github.com/gofri/go-github-ratelimit/v2 v2.0.2
	github.com/hashicorp/go-retryablehttp v0.7.8
	go.uber.org/ratelimit v0.3.1
	golang.org/x/time v0.15.0
	resty.dev/v3 v3.0.0-rc.4
)

require (
	github.com/aws/smithy-go v1.28.8 // indirect
	github.com/benbjohnson/clock v1.3.0 // indirect
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	golang.org/x/net v0.43.0 // indirect
	golang.org/x/sync v0.18.0 // indirect
)

replace github.com/go-throttle/throttle => ../
