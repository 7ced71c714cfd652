// Package fleet shares one limit among many processes.
//
// A [store.Store], such as Redis, grants units in batches, each with a date from which it may be used. A process
// spends its units at their dates, on its own timers, so most calls need no round trip to the store, and none
// waits for a store that is slow or gone.
//
//	store := new(fleet.Memory) // or throttleredis.New(client)
//	lim := fleet.New(store, "example.com", 100, 10, fleet.Options{})
//	client := &http.Client{Transport: &throttle.Transport{Limiter: lim}}
//
// Processes of one machine need no server: [OpenFile] is a store in a file.
//
// # The bound
//
// In any window of length L the processes use together at most
//
//	burst + limit·L + limit·W + 1
//
// units, where W is Options.Validity, 250 ms by default. The term limit·W is for units that are used later than
// their dates. Lines ask for units at their dates, so in practice nearly nothing of it is used. A call that
// costs more than the burst leaves a debt, and stands in for the burst.
//
// What goes wrong adds to it:
//
//   - The store does not answer: each process that has lost it uses 0.8·limit/members more ([Alone]), with a
//     burst of its part of the burst, at least 1. With [Closed] nothing, with [Open] there is no bound.
//   - The store loses its state, or its clock jumps: one more burst, and the units that are granted ahead,
//     which are at most 0.8·limit·W or one for each process. What members carry heals the rest.
//   - A changed limit: windows that begin W or more after the change hold the new one.
//   - A process that dies or is stopped: nothing. Its units expire, at most its part of 0.8·limit·W, and the
//     one that a waiting call has a date for; after W the others use all.
//
// # Degradation
//
// A request to the store that has no answer within a soft timeout (four round trips, 20 to 100 ms) is given up:
// all limiters of that store go on without it, see [Mode], after they have spent what is in
// hand. It is tried again every 250 ms to 1 s. If the store answers, but cannot serve one limit (see [store.ErrLimit]), only
// the limiters of that limit go on without it.
//
// # Pauses
//
// What an upstream says in an answer to one process reaches the others. A time not to send stops them by a message of
// the store, if it has messages (see [store.Store]), and otherwise with their next request to the store, at most W
// later. Afterwards units are dated at the limit's rate, so the whole fleet comes back evenly. Remaining units
// only tighten. The limiters of one store listen together, only while one of them has units in hand or a line
// that waits.
//
// # Usage
//
// Give all processes the same name, limit, burst and Validity. Several limits of one call can be joined by All of
// package throttle. If they are limits of one store that can do it (see [store.Store]), they are granted together, in one
// request, and cost no more requests than one of them. A unit is not sent for while another limit of the call, shared
// or local, is not ready for longer than the unit would be valid.
//
// The page docs/fleet.md in the repository has examples of the bound, what each fault costs, the settings and access rights of
// Redis, the counters of [Stats] as metrics, and figures beside other libraries.
//
// # States, locks and races
//
// One lock, that of the account, guards all of a Limiter: units in hand, demand, what is
// to be passed on, and which request is out. The lock of a breaker is taken under it and calls nothing; which
// breaker it is, the store's or one of the limiter's own, the account's lock guards too.
// The store is called without locks, in a goroutine that lives as long as the request.
//
// A Limiter is in one of these states:
//
//	in hand    units are there, with dates; calls take them                 taken sends for more when few are left
//	asking     a request is out; the line asks again at its soft timeout    finish, by the answer, or giveUpLate
//	waiting    the store has said that nothing can be dated yet             until retry
//	paused     nobody may send                                              until the pause is over
//	alone      the breaker says that the store is down                      the share, until a probe is answered
//	closed     Close was called; Take fails                                 for ever
//
// What happens when two events race; the account's lock decides which one comes first:
//
//	answer, soft timeout        answer first: its units count. Timeout first: the store is down, and the answer
//	                            still brings its units, as far as their time is not over
//	answer, answer of an older  the newer Mark counts; units of both
//	answer, Close               units that come after Close are dropped, and expire
//	answer, pause               an answer before the pause: its units are dropped with the rest. After it: they
//	                            were granted without regard to it, and what is dated before its end waits for it
//	                            in vain and expires
//	grant, ctx ends             the line gives the unit back with its date, or it is lost if others were taken since
//	two limiters, one breaker   either may see it go down first; one of them claims each probe
//	message, answer             the later end of the pause holds
//	reply executed, then lost   the units are lost: nothing is asked twice. A client that repeats a request by itself
//	                            repeats its Seq, and the store answers as before
//	request of several, of one  each limit has one request out at a time, so it is in one of the two
//	SetLimit, answer            units in hand stay; the next request carries the new limit
package fleet
