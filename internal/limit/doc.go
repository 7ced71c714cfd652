// Package limit says when units may be taken. It never waits and starts nothing: whoever wants units
// asks, and gets them or a moment at which to ask again.
//
//	account.go           what every limiter of the library has: a lock, a clock, watchers
//	bucket.go tokens.go  the token bucket, also for a leaky one
//	window.go            what both windows share
//	fixed.go             windows that follow each other
//	sliding.go stamps.go any window of that length, exact
//	set.go foreign.go    several limiters that a call pays together, limiters of other kinds among them
//	parts.go settle.go   a set of several parts, each paid by its own amount, and what corrects a take
//	bundle.go            the same, asked with a list
//	together.go          accounts that get their units from elsewhere, beside others
//	forecast.go          when a call will start that others go before
//	moving.go            a bucket whose rate somebody moves
//	var.go carry.go      an account whose limiters are replaced in use, and what is carried over
//	stats.go             what observers see
//	spec.go text.go      limits as text
//	time.go              moments and spans
//
// # Units, burst, debt
//
// A call takes n units, its cost. A limiter that has been idle lets a burst go at once and then keeps to
// its rate. A cost above the burst is not an error: the call starts when the limiter is full, and what
// was not there becomes a debt that later calls wait for.
//
// # Two types for each limiter
//
// Bucket, FixedWindow and SlidingWindow are what others use: their methods take the lock. What each of
// them counts is a type of its own (tokens, fixedCount, slidingLog) that is reached only while that lock
// is held; none of its methods locks. Other functions that need a lock end in
// Locked.
//
// # Units from elsewhere
//
// An Account may be of another package, such as fleet's: it has a Guard, and a State of its own, which is a Dated if its
// units have to be sent for. The account's lock guards all that it keeps, so a take, a prediction and an answer of a store never
// see each other half done. A request runs in a goroutine of its own, without the lock, and comes in through
// Change, which notifies those who wait.
//
// # Time
//
// Moments are given by the caller, who has read the clock before the lock was won. So they may arrive
// out of order, and a moment before the account's own clock is lifted to it.
package limit
