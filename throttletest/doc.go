// Package throttletest simulates an upstream that has rate limits, to test what calls it. A Server enforces limits,
// advertises them as asked, fails on demand, and keeps a Ledger of all that has come to it. Judge a client by that
// Ledger, not by what the client says of itself.
//
// # In virtual time
//
// A Server is an http.RoundTripper that needs neither sockets nor goroutines, so in a testing/synctest bubble it
// can take the place of http.DefaultTransport. Minutes of traffic take milliseconds there, and times are exact.
// A Server keeps the clock of its first use, so it belongs to one bubble:
//
//	synctest.Test(t, func(t *testing.T) {
//		upstream := throttletest.NewServer(throttletest.Limit{N: 100, Burst: 10})
//		upstream.Latency = throttletest.Span{Min: 10 * time.Millisecond, Max: 20 * time.Millisecond}
//		client := &http.Client{Transport: &throttle.Transport{Base: upstream}}
//		// ... send requests to upstream.URL() with client ...
//		if n := upstream.Ledger().Tally().Throttled; n > 10 {
//			t.Errorf("%d requests were throttled", n)
//		}
//	})
//
// # Over a socket
//
// Start listens on the loopback interface and serves the same in real time. A Server is an http.Handler too, for
// a server of your own.
//
// # What happens to a request
//
// It is on its way for Latency. At its arrival the Faults are asked first: outages, brown-outs, hangs, broken
// connections, throttling at random. Then the Limits are asked, each about the requests that it matches, for the key
// of the request and in the units that the request costs. If all of them admit it, the request is charged, is at work
// for Work, and is answered by Handler. Otherwise it is throttled. The answer is on its way for Latency again. Its
// header says what Advertise wants, as of the moment of the arrival: always, now and then, in one Dialect or another,
// the truth or a lie.
//
// What a request costs may be known only afterwards, as tokens are: a Limit with Settle holds its Cost at the arrival, and
// corrects that when the work is done or while the answer streams.
//
// Requests are judged in the order of their arrival, and of those that arrive at the same moment in the order in which
// they were sent, whichever goroutine runs first. So with the same Seed, the same requests have the same fate.
//
// # Capacity
//
// A Service is a Handler that can do only so much at once: a pool in front of which requests wait, cores for which they compete, or
// an upstream that collapses when too many come. It turns nobody away, but takes longer. Its times may be lognormal, or some of them
// slow, and Change lets them be others from a moment on.
//
// # What it does not do
//
// It knows nothing of connections, bandwidth and HTTP/2. It reads a request to its end before it does anything else,
// and in RoundTrip holds the whole answer in memory. The time that a Handler takes does not count as work. The Ledger
// and the accounts of keys grow for as long as the Server is used.
package throttletest
