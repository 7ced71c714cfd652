// Package limit says when units may be taken. It never waits and starts nothing: whoever wants units
// asks, and gets them or a moment at which to ask again.
//
//	account.go           what every limiter of the library has: a lock, a clock, watchers
//	bucket.go tokens.go  the token bucket, also for a leaky one
//	window.go            what both windows share
//	fixed.go             windows that follow each other
//	sliding.go stamps.go any window of that length, exact
//	dated.go dates.go    units with dates, which somebody else grants
//	set.go foreign.go    several limiters that a call pays together, limiters of other kinds among them
//	bundle.go            several sets that it pays together, each by its own amount
//	together.go          several that get their units from elsewhere, or one beside others
//	forecast.go          when a call will start that others go before
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
// A Dated counts nothing itself: a Supply, outside this package, brings units with dates, from a store that many
// processes share. Its methods run under the account's lock, so that lock guards the Supply's state too, and
// a take, a prediction and an answer of the store never see each other half done. A request to the store runs
// in a goroutine of its own, without the lock, and comes in through Update, which notifies those who wait.
//
// # Time
//
// Moments are given by the caller, who has read the clock before the lock was won. So they may arrive
// out of order, and a moment before the account's own clock is lifted to it.
package limit
