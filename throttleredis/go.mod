module github.com/go-throttle/throttle/throttleredis

go 1.25.0

require (
	github.com/go-throttle/throttle v0.0.0-00010101000000-000000000000
	github.com/redis/go-redis/v9 v9.14.1
	golang.org/x/time v0.14.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	golang.org/x/sync v0.18.0 // indirect
)

replace github.com/go-throttle/throttle => ../
