// Package throttledebug serves a live page about the Transports of a program: each key with its line, its limit and
// its gate, why the first call in line waits and until when, and what was learned from the upstream, as that a configured
// limit is too high ("You configured 10/s; 9.6/s are accepted."). For the chosen key it draws charts. It needs nothing beside
// the standard library and this module.
//
// # Usage
//
// Mount the handler where you like. It registers itself nowhere.
//
//	debug := throttledebug.Handler(map[string]*throttle.Transport{"github": github, "mail": mail})
//	mux.Handle("/debug/throttle/", http.StripPrefix("/debug/throttle", debug))
//
// http.StripPrefix takes off what stands before the paths below. Without it, the answer is 404.
//
// Keys, flows and quotas are shown to whoever may read the page, so serve it on the loopback interface or behind your
// authentication, as you would net/http/pprof.
//
// # What it serves
//
//	GET /            the table of keys as HTML, which works without script
//	GET /events      the same once a second, as server-sent events
//	GET /state.json  all keys, as JSON for programs
//
// All three understand this query. What they do not understand in it they ignore.
//
//	q=text             only keys and Transports whose names contain the text, in upper or lower case
//	sort=column        in that order; sort=-column turns it round. The default is waiting. Numbers begin with
//	                   the largest (tokens and limit with the smallest), names with A
//	from=100           without the first 100
//	name=n&key=k       with the details of that key; not in state.json, which has them of all
//	limit=10           at most 10 keys; in state.json only, the others show at most 100
//
// The columns are name (the Transport's), key, waiting, oldest, in_flight, sent, throttled, retried, refused, tokens,
// limit, used, gate and held: those of throttle.KeyStats. used is the largest Utilization of its limits, of
// buckets from the second event on; the details have it of each limit. Counts are since the key was made, so those of
// a key that was dropped begin anew; the total of a Transport in state.json does not.
//
// # state.json
//
//	{"time": "2026-05-04T12:00:00.5Z", "transports": [
//	  {"name": "github", "total": {"sent": 98112, "throttled": 3, "retried": 5, "refused": 0}, "keys": [
//	    {"key": "api.github.com", "waiting": 3, "sent": 4180, "tokens": 0.4, "limit": 10,
//	     "reason": "limit", "until": "2026-05-04T12:00:00.56Z",
//	     "learned": [{"source": "X-Ratelimit-Limit", "limit": 5000, "remaining": 820, "reset": 1740}],
//	     "limits": [{"reason": "limit", "limit": 10, "size": 5, "available": 0.4, "taken": 4180}]}]}]}
//
// Fields are named after those of throttle.KeyStats and what is in it: in_flight is InFlight, and max_in_flight how many there may be. Lengths of time are
// in seconds, moments in RFC 3339, and rates in units per second. In learned, configured is a configured limit that is too
// high, and rate is what is accepted. What is unset, unknown or unlimited is left out. So
// are counts and lengths of time that are 0, but for waiting and sent; tokens, limit, remaining, reset, rate and all of
// limits, meters and total stay when they are 0. A Transport that is nil has an error. One whose Limiter is a fleet.Limiter has its fleet.Stats as
// fleet, with lengths of time in nanoseconds.
//
// # Cost
//
// Nothing is counted for the page, and no goroutine is started: while nobody looks it costs nothing. While somebody
// does, all keys are read once a second, for all who look: some 6 ms for 10,000 keys. An event has at most 32 KiB.
// At most 8 streams are open; one more gets 503. A reader that is too slow for 10 seconds loses its stream, or
// the rest of state.json, where each Transport has 10 seconds, whatever the WriteTimeout of the server is.
// http.Server.Shutdown waits for open streams as for any request; Close ends them.
//
// # Safety
//
// Requests that a browser sends from another origin are refused, except for following a link to the page. The page has
// no inline script or style, and its Content-Security-Policy allows nothing from elsewhere. Keys are shown as text
// whatever is in them: quoted as by strconv.Quote, so that a line break is \n. It changes nothing; pausing and resuming
// by buttons is what [Controls] is for.
//
// The handler does not know its own name, so it takes whatever name a request is for as its own. A site whose name was made
// to lead to this address (DNS rebinding) is the same origin to a browser, also on the loopback interface. Where that
// matters, before Controls above all, let in only requests whose Host is one that you serve:
//
//	if host, _, _ := net.SplitHostPort(r.Host); host != "localhost" && host != "127.0.0.1" {
//		http.Error(w, "unknown host", http.StatusMisdirectedRequest)
//		return
//	}
//
// # Behind a proxy
//
// All links are relative, so a proxy may mount the page anywhere. It must pass events on as they come: nginx does,
// because the answer has X-Accel-Buffering: no; others may need response buffering off for events. A middleware that
// compresses, or whose writer has no Flush, ends each stream after its first event, and the page asks for another one
// every three seconds. HTTP/1.1 browsers open at most six connections to one host, so the seventh page in one browser
// waits; HTTP/2 has no such limit.
//
// # By hand
//
// What the buttons of [Controls] do, a program can do too:
//
//	curl -d name=github -d key=api.github.com -d seconds=600 http://localhost:8089/debug/throttle/pause
//	curl -d name=github -d key=api.github.com http://localhost:8089/debug/throttle/resume
//	curl -s 'http://localhost:8089/debug/throttle/state.json?sort=throttled&limit=5'
//	curl -sN 'http://localhost:8089/debug/throttle/events?q=github'
//
// The answer to the first two is 303 if it was done, and otherwise a line of text that says why not.
//
// # Charts
//
// The charts of the chosen key begin when it is chosen, and show the last two minutes: calls sent, throttled and refused
// a second, the line, the units ready, and the limits that are configured, found or advertised. Shaded is when the gate
// was closed. They are drawn by uPlot (MIT license), which is embedded.
package throttledebug
