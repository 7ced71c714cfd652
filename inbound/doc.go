// Package inbound limits what a server takes from each client, as middleware for net/http and everything that is built
// on it, over the same limits as package throttle.
//
//	api := inbound.Limit{Limits: []string{"100/1m burst 20", "5000/24h window"}} // for each client address
//	http.ListenAndServe(":8080", api.Handler(mux))
//
// A [Limit] counts by a key: the client's address ([ByIP]), a header ([ByHeader]), a credential ([ByCredential]) or a
// function of yours. [Keyed] is the same without HTTP. An [Overload] turns requests away, whoever sends them, while the
// process has more to do than its cores can.
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
// size and length, and as t the time until it ends; a sliding one the time until all units are back, or for more than 20
// units until the half of its estimate ends, when not all of them are. All times are rounded up, and if nothing is left a
// request of cost 1 is let in after t, at the latest one of those shown. Limits for which w would be less than a second, such
// as 10/s, are not shown.
//
// Limits around each other all add to these lists; X-RateLimit, which has room for one, is that of the tightest. A request
// that an inner one refuses has used its units of the outer ones. [Limit].And takes them from all or from none.
//
// # Sliding limits
//
// A sliding limit of up to 20 units is exact: no window, wherever it begins, holds more, and a client that keeps to it, evenly
// or with all at once, is always served. A larger one is an estimate by two counters. Of a client that comes evenly it serves
// n − 1 of n units, 95 % and more. Of one that comes with all n at once, each time as soon as the window is over, it serves
// half: use a bucket or a window for such clients.
//
// A limit in Shared counts in its own way: a throttle.SlidingWindow is exact for any number of units, and a fleet.Limiter is a
// bucket, whatever its size.
//
// # Memory
//
// A table takes up to 64 bytes for each of MaxKeys keys and a megabyte beside them, all at the first call of Handler. The
// slot of a key has 16 bytes and 16 more for each limit, or 8·n for a sliding limit of n units up to 20. If that is more
// than 64 bytes, the table is larger by as much:
//
//	limits                                       a slot     65,536 keys
//	100/m window                                 32 bytes   3.1 MB
//	100/m burst 20, 5000/d window, 1/10s sliding 56 bytes   5.3 MB
//	3/10s sliding                                40 bytes   4.2 MB
//	20/h sliding                                 176 bytes  14 MB
//	20/m sliding, 20/h sliding, 20/d sliding     496 bytes  39 MB
//
// Nothing runs in the background. When all slots are taken a new
// key gets that of an idle one, whose units are all there. Otherwise it shares one limit with all other keys that find
// no slot: the door is never open. Established keys lose nothing by that, because a key that came at least
// twice keeps its slot for twice as long as it had been known, from a minute to two hours, also while it is idle.
// After a minute of silence a slot goes to a new key even if units of it are used, at most half of each limit; they
// stay used.
//
// With many keys and slots of 64 bytes or more, slots run out a little early: when MaxKeys keys are in use, 1 in 700 of
// 65,536 has none, and 1 in 28 of a million.
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
// What is one client, as far as an address tells (the text in brackets says where the form is defined):
//
//	192.0.2.1                          each IPv4 address
//	2001:db8:1:2::/64                  the first 64 bits of IPv6 [RFC 4291, section 2.5.1]
//	::ffff:192.0.2.1                   192.0.2.1, mapped [RFC 4291, section 2.5.5.2]; also where proxies are named
//	64:ff9b::192.0.2.1                 192.0.2.1, behind NAT64 [RFC 6052, section 2.1]
//	64:ff9b:1::192.0.2.1               itself, behind NAT64 for local use [RFC 8215]
//	2002:c000:201::/48                 192.0.2.1, all of a site with 6to4 [RFC 3056]
//	2001:0:…:3fff:fdfe                 192.0.2.1, a client of Teredo [RFC 4380]
//	::192.0.2.1, ::ffff:0:192.0.2.1    192.0.2.1, compatible [RFC 4291, section 2.5.5.1] and translated [RFC 2765]
//
// ByNAT64 adds translators with prefixes of your own [RFC 6052, section 2.2].
//
// # Several servers
//
// With [Limit].Store, servers with one Store and one Name hold the limits of each key together. [NewSharedKeyed] does the same
// without HTTP.
//
//	store := throttleredis.New(client).Keys() // or new(inbound.Memory), in tests
//	api := inbound.Limit{Name: "api", Limits: []string{"20/s burst 20"}, Store: store}
//
// A request asks the store once at most. It does not if its key is far over its limit, as the last answer has said when the
// next unit comes, nor if this server holds units of the key: it is lent some for two seconds, or for 20 ms if other servers use
// the key too. Requests of a moment are asked for in one round trip. In any window of length L a client uses at most
//
//	burst + limit·L + (burst + limit·2 s)/5
//
// units; the last term is for what was lent and is used later. Of a limit by windows it is a tenth instead of a fifth. What a
// request costs above the burst comes on top. Who stays below 80 % of limit and burst is never refused. RateLimit and
// Retry-After are exact but for units that other servers hold, and what others took since this one asked, 20 ms ago at most
// when several use the key.
//
// A Store that has not answered for a soft timeout (four round trips, 20 to 100 ms) is not waited for, until it answers
// again; it is tried after 250 ms, and then each second. Meanwhile Mode decides: by Alone each server's own table does, at
// a cost of as many units as there are servers. Keys that find no slot in the table are not asked for, so a flood of invented
// keys is no more than MaxKeys of them in the store at a time, for each server. [Limit.StoreStats] tells how it goes. The page
// docs/inbound.md in the repository says what each fault costs.
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
// # What a request has cost
//
// [Limit].Settle corrects the cost of a request once its handler has returned, by the request and its answer. A log-in that
// counts only if it fails:
//
//	logins := inbound.Limit{
//		Limits: []string{"5/1m window"},
//		Settle: func(_ *http.Request, status int, _ http.Header) int {
//			if status == http.StatusUnauthorized {
//				return 1
//			}
//			return 0
//		},
//	}
//
// With Settle, and only then, handlers get another ResponseWriter. It flushes and gives connections away if that of the server
// does, and http.ResponseController works as before.
//
// # The calendar
//
// "1000/24h window" begins with a key's first unit, and "1000/day in Europe/Berlin" at midnight there, for all keys. The units are
// hour, day, week (from Monday on) and month, the zones those of time.LoadLocation. A day has the 23 or 25 hours that it has
// when clocks are changed. The reset that clients see is exact; as the length of a window they see 24 hours for a day and 30 days for a
// month. Programs without zones on their disk import time/tzdata.
//
// # Requests in flight
//
// "4 at once" lets a key have four requests in flight, beside other limits as in "100/1m burst 20, 4 at once". A fifth is refused, or
// waits for one of them with [Limit].Wait. Nobody knows for how long, so Retry-After is a second. A connection that was taken
// over counts until the handler returns.
//
// # New limits
//
// [Limit].SetLimits replaces limits while requests come, and [Limit].SetTier those of a tier. What a key has used stays used, at most
// as much as the new limit has; whoever waits goes by the new ones, and fields tell of them at once. A table grows if the new limits
// need larger slots, see Memory. With [Limit].Plan each key has limits of its own, out of a database, which may change too.
//
// # Overload
//
// A server that gets more requests than it can do, and takes them all, answers none in time: each waits for all others, and
// clients leave before their answers come. An [Overload] in front keeps as many in flight as can be done, and turns the
// others away at once.
//
//	busy := inbound.Overload{Priority: func(r *http.Request) int { return plans[r.Header.Get("X-Plan")] }}
//	http.ListenAndServe(":8080", busy.Handler(api.Handler(mux)))
//
// It stands around a Limit, so that a request that is turned away uses no units. Which requests go is decided by Priority, by
// Key in turn, and by what can still be answered in time. Its Stats say in a sentence what holds requests back.
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
