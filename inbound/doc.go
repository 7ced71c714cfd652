// Package inbound limits what a server takes from each client, as middleware for net/http and everything that is built
// on it, over the same limits as package throttle.
//
//	api := inbound.Limit{Limits: []string{"100/1m burst 20", "5000/24h window"}} // for each client address
//	http.ListenAndServe(":8080", api.Handler(mux))
//
// A [Limit] counts by a key: the client's address ([ByIP]), a header ([ByHeader]), a credential ([ByCredential]) or a
// function of yours. [Keyed] is the same without HTTP.
//
// # What clients see
//
// Each answer says what is left, in the RateLimit and RateLimit-Policy fields of the current draft, tightest limit
// first. A refused request gets a 429 with a problem document, and Retry-After: after so many whole seconds a request of
// the same cost is let in, if the client has made no other meanwhile. A throttle.Transport reads all of it.
//
//	RateLimit-Policy: "m";q=20;w=12, "d";q=5000;w=86400
//	RateLimit: "m";r=0;t=12, "d";r=4711;t=51000
//	Retry-After: 1
//
// A bucket shows its burst as q, the time in which it fills as w, and as t the time until it is full. A window shows its
// size and length, and as t the time until it ends; of a sliding one not all comes back then. Limits for which w
// would be less than a second, such as 10/s, are not shown.
//
// # Memory
//
// A table has MaxKeys slots of up to 64 bytes, and at most a megabyte beside them; it is made by the first call of
// Handler. Nothing runs in the background. When all slots are taken a new
// key gets that of an idle one, whose units are all there. Otherwise it shares one limit with all other keys that find
// no slot: the door is never open. Established keys lose nothing by that, because a key that came at least
// twice keeps its slot for twice as long as it had been known, from a minute to two hours, also while it is idle.
// After a minute of silence a slot goes to a new key even if units of it are used, at most half of each limit; they
// stay used.
//
// With three limits and many keys, slots run out a little early: when MaxKeys keys are in use, 1 in 700 of 65,536 has
// none, and 1 in 28 of a million.
//
// # What is believed
//
// The peer's address is. X-Forwarded-For and Forwarded are written by clients, and are read only from peers in the
// prefixes that ByIP and its kin are given, up to the first address that is not in them. Behind a proxy whose address is
// not given, all clients are one: the proxy. Behind a Unix socket too; use ByHeader, or a Key of your own. For proxies
// with addresses from 10.0.0.0 to 10.255.255.255:
//
//	api.Key = inbound.ByIP(netip.MustParsePrefix("10.0.0.0/8"))
//
// # When something is wrong
//
// Limits that do not parse, nil handlers and impossible fields panic when the handler is made. Later on, what cannot be
// judged is not let in for free: an address that does not parse counts as one key with all others of that kind, a
// negative cost as 1; a cost that can never be paid, or an error of a shared limit, is a 429 without Retry-After. A Key,
// Cost, Tier or Allow that panics ends the request before anything is taken. If a shared limit panics, what was taken
// before stays used, and the request counts as let in.
//
// # Waiting
//
// With [Limit].Wait a request that would be refused stands in a line of its key and goes when its units are there, in
// order of arrival. It is refused if its wait is predicted to be longer than Wait, at the end of Wait, or if MaxWaiting
// requests wait already. A request whose client leaves takes nothing. net/http notices that for HTTP/1 only after the
// request's body was read, so such a request keeps its place until Wait is over.
//
// # Concurrency
//
// Everything here is safe for concurrent use. An operation on a key takes one lock, which about a thousand other keys
// share. No lock is held while a function of yours, a shared limiter or the next handler runs.
//
// # Testing
//
// Only package time is used, and a table takes its clock from its first request, so in a testing/synctest bubble limits
// are exact and take no real time. Use an http.ResponseRecorder there, or call the handler from a RoundTripper of yours.
package inbound
