// Package throttle keeps a program inside the rate limits of the HTTP APIs that it calls. Wrap an
// http.Client's Transport, and every call waits its turn, one 429 pauses all calls at once, and every
// retry is paid for from the same quota.
//
//	client := &http.Client{Transport: &throttle.Transport{
//		Limiter: throttle.NewBucket(10, 5), // 10 requests a second, and 5 more in a burst
//	}}
//
// # Usage
//
// Limiters ([Bucket], [Leaky], [FixedWindow], [SlidingWindow], [All], [LimiterVar]) say when. They never block: they
// take units now, or return how long to wait before asking again.
//
// The line ([Queue]) makes callers wait. Only its head asks the limiter, so a call gets its units at the
// last moment, and nothing is lost when a caller leaves, traffic pauses, or a rate changes.
//
// The gate stops every call of a key. It closes when the upstream throttles or keeps failing, and reopens paced: at the
// limit's rate if the limit is known, otherwise with one call in flight and one more for each success.
//
// The [Transport] takes a request through all three: wait, send, observe the response, maybe retry.
//
//	an API documents N per second and M per minute   All, SlidingWindow
//	deliveries to many hosts, some of them down      Transport.LimiterFor, Retry.MaxPause, Error.Wait
//	a limit for each API key, or by a tenant's plan  Transport.Key, ByCredential
//	requests and tokens, known only afterwards       Transport.Meters, package usage, WithBill
//	calls of unequal size                            WithCost, Transport.Cost, Adjuster
//	jobs that are not HTTP                           Group, Queue, Bucket.Wait
//	an operator's limit, pause and resume            LimiterVar, Transport.Pause, Transport.Resume
//	a program that ends in ten seconds               Transport.Shutdown
//	one limit for many processes                     package fleet
//	what a server of yours takes from each client    package inbound
//
// Each of these has an example, here or among the short programs in [examples/recipes], where there are also a
// crawler of a million pages, tenants, streams, a server that ends together with its client, and a loop that calls again.
//
// # Concurrency
//
// Everything in this package is safe for concurrent use. Nothing needs closing (Shutdown is for programs
// that want the calls in line to go first), and no constructor starts a goroutine. No goroutine outlives
// the calls that wait, unless the Close of a response's body blocks.
//
// # Expected behaviour
//
// One 429 pauses every request of its key for its Retry-After; traffic then resumes at the limit's pace, not in a burst.
// A call that cannot start before its deadline fails at once with an [*Error] that says when to call again. When
// attempts, budget or time run out, the caller gets the last response, as if there were no Transport.
//
// A call whose timer fires late is counted as of the moment it was due, at most 5 ms back. So under real
// timers any window admits at most what its limit allows, and what the limit's rate yields in 5 ms.
//
// # Debugging
//
// The core never logs; package throttlelog does. Transport.Hooks see every wait, refusal and retry; [Transport.Stats] and
// [Queue.Stats] show what is waiting, and why the gate is closed.
//
// # Testing
//
// Only package time is used, so in a testing/synctest bubble waits are exact and take no real time. Give
// the Transport a Base of your own there: a bubble's clock stands still while a goroutine waits for the
// network, as for an httptest.Server. Make Transports and limiters inside the bubble. Its clock begins in the
// year 2000, so a limiter that was used outside would wait for decades.
//
// [examples/recipes]: https://github.com/go-throttle/throttle/tree/main/examples/recipes
package throttle
