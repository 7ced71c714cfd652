// Package bench sets throttle beside the libraries that people use instead, and measures both.
// It is a module of its own, so that its peers never become dependencies of the library.
//
// # The comparison
//
// From the root of the repository:
//
//	go run ./bench/cmd/compare                     # all; it tells first how long it takes
//	go run ./bench/cmd/compare -list               # scenarios and clients
//	go run ./bench/cmd/compare -scenario 'outage-*' -clients 'x/time/rate,throttle*,oracle' -mode virtual
//	go run ./bench/cmd/compare -from compare-out/compare.json -clients 'throttle*'
//	go run ./bench/cmd/compare -scenario 'fleet*'  # limits that processes share; needs a redis-server
//
// It leaves compare.json, compare.md and charts in compare-out, or where -out says. To bring the
// README up to date, on a machine that does nothing else:
//
//	go run ./bench/cmd/compare
//	cp compare-out/compare.json compare-out/compare.md bench/results/
//	go run ./bench/cmd/compare -from bench/results/compare.json -readme README.md
//
// The tables of docs/learning.md and docs/fleet.md have results files of their own, results/learning.json and
// results/fleet.json; each page gives the command.
//
// Meters, limits whose costs are known afterwards, have clients of their own. To bring results/meters.json and
// results/meters.md up to date, from which docs/decisions.md has its figures (virtual time, two minutes):
//
//	go run ./bench/cmd/compare -scenario 'meters-*'
//	for f in json md; do cp compare-out/compare.$f bench/results/meters.$f; done
//
// Limits that follow response times have scenarios and clients of their own too, in virtual time. To bring
// results/adaptive.json and results/adaptive.md up to date, from which docs/adaptive.md has a table and two charts:
//
//	go run ./bench/cmd/compare -scenario 'adaptive-*' -reps 1
//	for f in json md; do cp compare-out/compare.$f bench/results/adaptive.$f; done
//	go run ./bench/cmd/compare -from bench/results/adaptive.json -readme docs/adaptive.md
//
// The marks in the README, lines that begin with "<!-- compare" and "<!-- chart", tell which columns
// its table has and which panels its charts.
//
// # The packages
//
//	client      the libraries, one file each, set up as their documentation recommends
//	scenario    upstreams, which are servers of package throttletest, loads and what to measure; runs in real and in
//	            virtual time; the oracle
//	fleets      limits that many processes share: real processes and a redis-server
//	micro       what a call, a limiter, a waiter and a key cost
//	report      the results file, medians and tables
//	chart       what came to an upstream over time, as SVG
//	cmd/compare the command
//	servers     package inbound beside other middleware, with a command of its own: go run ./bench/cmd/servers
//	overload    inbound.Overload beside other limits by which a server adapts itself, in real time: a command, and a module of
//	            its own because of what its peers need
//	cmd/dashboard
//	            draws docs/grafana.json from a real Prometheus, as docs/grafana.svg; it needs none of the others
//
// Arrows point one way: client knows nobody, scenario knows it, fleets, micro and report know
// what a scenario is, chart knows report, and the command knows all.
//
// # Benchmarks
//
// In this directory, for a look at one thing; results/linux-amd64-2cores.txt is what they and the
// queue's at the root printed, RoundTrip and Waiters on a quiet machine:
//
//	go test -bench RoundTrip -count 5              # the cost of a call that need not wait
//	go test -bench Waiters -benchtime 1x -count 3  # 100,000 callers waiting at once
//	go test -bench Rate -benchtime 1x              # the share of a rate that is reached in real time
//	go test -bench TelemetryInTurns -benchtime 2000x # what throttleotel adds to a call, beside otelhttp
package bench
