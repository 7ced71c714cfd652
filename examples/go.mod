module github.com/go-throttle/throttle/examples

go 1.25.0

require (
	github.com/cenkalti/backoff/v4 v4.3.0
	github.com/go-chi/chi/v5 v5.2.3
	github.com/go-throttle/throttle v0.0.0
	github.com/go-throttle/throttle/throttleredis v0.0.0
	github.com/redis/go-redis/v9 v9.14.1
	github.com/schollz/progressbar/v3 v3.19.1
	golang.org/x/sync v0.18.0
	golang.org/x/term v0.44.0
	golang.org/x/time v0.14.0
	google.golang.org/grpc v1.78.0
	gopkg.in/yaml.v3 v3.0.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	golang.org/x/net v0.47.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.31.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251029180050-ab9386a59fda // indirect
	google.golang.org/protobuf v1.36.10 // indirect
)

replace github.com/go-throttle/throttle => ../

replace github.com/go-throttle/throttle/throttleredis => ../throttleredis
