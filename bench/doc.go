// Package bench measures throttle beside the libraries that people use instead.
// It is a module of its own, so that its peers never become dependencies of the library.
//
//	go run ./cmd/compare                             # all scenarios and all clients, as tables and charts
//	go test -bench RoundTrip -benchtime 1x -count 5  # the cost of a call that need not wait
//	go test -bench Limiter -benchtime 1x -count 5    # the same of the limiters alone
//	go test -bench Waiters -benchtime 1x -count 3    # 100,000 callers waiting at once
//	go test -bench Keys -benchtime 1x -count 3       # a million hosts, each with its own limit
//	go test -bench Rate -benchtime 1x                # the share of a rate that is reached in real time
//
// The benchmarks but the last are scenarios of package micro, which compare runs too.
package bench
