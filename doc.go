// Package throttle keeps a program inside the rate limits of the HTTP APIs that
// it calls. Wrap an http.Client, and every call waits its turn, every 429 is
// obeyed by all callers at once, and every retry is paid for from the same quota.
//
//	client := &http.Client{Transport: &throttle.Transport{
//		Limiter: throttle.NewBucket(10, 5), // 10 requests a second, and 5 more in a burst
//	}}
//
// # How it works
//
// Limiters ([Bucket], [Leaky], [FixedWindow], [SlidingWindow], [All]) say when.
// They never block: they take units now, or tell how long until it is worth
// asking again.
//
// The line ([Queue]) makes callers wait. Only its head asks the limiter, so units
// are bound to a caller at the last moment: leaving, pausing, changing the rate
// and priorities lose nothing.
//
// The gate stops everyone. One refusal closes it for all calls of a key, once for
// each event, and it reopens paced.
//
// The [Transport] tells the story of one request: wait, send, learn, maybe again.
//
// # Where to look
//
//	an API documents N per second and M per minute   All, SlidingWindow
//	deliveries to many hosts, some of them down      Transport.LimiterFor, Retry.MaxPause, Error.Wait
//	a limit for each API key                         Transport.Key, ByCredential
//	calls of unequal size, counted in tokens say     WithCost, Transport.Cost, Adjuster
//	what happens, for logs and metrics               Transport.Hooks, Transport.Stats
//	jobs that are not HTTP                           Group, Queue, Bucket.Wait
//
// Each has an example.
//
// # Concurrency
//
// Everything here is safe for concurrent use. Nothing needs closing, no
// constructor starts a goroutine, and none outlives the calls that wait and the
// response bodies that are read ahead for them.
//
// # Time
//
// Only package time is used, so programs that use this package can be tested in
// testing/synctest bubbles: waits are exact there and take no time. Under real
// timers a call whose timer is late is reckoned as of the moment it was due, at
// most 5 ms back; so any window admits at most what its limit says, and rate × 5 ms.
package throttle
