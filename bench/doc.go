// Package bench measures throttle beside the libraries that people use instead.
// It is a module of its own, so that its peers never become dependencies of the library.
//
//	go test -bench RoundTrip -count 5           # the cost of a call that need not wait
//	go test -bench Waiters -benchtime 1x -count 3  # 100,000 callers waiting at once
//	go test -bench Rate -benchtime 1x           # the share of a rate that is reached in real time
package bench
