package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/upstream"
)

// A Budget bounds retries to a share of the calls. Each call pays PerCall in, each retry takes 1 out, and Max
// is the most that can be saved up, and the balance at the start (throttle.Budget). PerSecond comes back by itself, so that a
// client with few calls has retries too.
//
// An example with PerCall 0.2, PerSecond 0.2 and Max 10: ten retries are allowed at once, then one for every five calls, and
// one every 5 s.
//
// It bounds what the gate does not bound. An upstream that fails closes the gate after eight answers, so ten retries suffice until
// then. One that answers nothing but 500 closes it after 40, so from the eighth on the budget lends the rest, which is paid
// back as all else is, before any other retry. If PerSecond is negative nothing comes back by itself, and nothing is lent; nor is it if Max is
// less than one retry. Retries until the gate closes, of an upstream that answers 500:
//
//	one caller, or one in a loop    all that its patience allows, about 6 in 15 s
//	four callers, a batch, webhooks 40 answers less the first ones: 36, 8 or 0
//	a crowd of 1,000                at most 42; all 1,000 are out when the gate closes, and wait behind it
//	30 % of all calls fail          none is lent: eight 500s in a row are rare, and 32 lent retries are paid back by 160 calls
type Budget struct{ PerCall, Max, PerSecond float64 }

// most is how much may be spent. erring: so many 500s came in a row that the gate closes if that goes on.
func (of *Budget) most(erring bool) float32 {
	if erring && of.PerSecond >= 0 && of.Max >= 1 {
		return float32(of.Max) + upstream.ErrorsToCount
	}
	return float32(of.Max)
}

// A balance is what a key has left of its budget. What is stored is the amount spent: the retries that were taken out and not
// paid for again, from 0 to Max and what is lent. So a new key has 0.
type balance struct {
	spent float32
	at    uint32 // when PerSecond was last looked at, in tenths of a second since common.base: a key has these eight bytes
}

// deposit pays a call's share in. The budget keeps a broken upstream from getting several times its usual
// traffic: of 100 calls a second that all fail it gets 120 attempts a second, a retry for every fifth.
func (b *balance) deposit(of *Budget) {
	if b.spent > 0 {
		b.spent = max(0, b.spent-float32(of.PerCall))
	}
}

// withdraw takes one retry out, if there is one.
// An example with Max 10: at 9 spent the tenth retry goes, at 9.2 none does. One more call pays 0.2,
// and it is 9 again; a second later it would be so too.
func (b *balance) withdraw(of *Budget, now time.Duration, erring bool) bool {
	if of.PerCall < 0 {
		return true
	}
	tenths := uint32(now / (time.Second / 10))
	b.spent, b.at = max(0, b.spent-float32(max(0, of.PerSecond)/10)*float32(tenths-b.at)), tenths
	if b.spent+1 > of.most(erring)+1e-5 { // shares are not exact in binary
		return false
	}
	b.spent++
	return true
}

// refund puts one retry back that was not made.
func (b *balance) refund() { b.spent = max(0, b.spent-1) }

// settleBudgetLocked counts a planned retry that is sent, or will not be. What it took out of the budget goes back if it is not
// sent, or if the gate has closed since it was decided: then the gate has bounded it.
//
// paidAt recognizes a closing: Closing.Count was 3 when the budget paid and is 4 now, so the gate has
// closed once since. While it is closed only probes go, and the key needs no second bound.
func (c *Call) settleBudgetLocked(sent bool) {
	q := &c.entry.queue
	if sent {
		q.trouble().retried++
	}
	if c.stage == paidFor && (!sent || q.up.Closing(q.common.now()).Count != c.paidAt) {
		c.entry.balance.refund()
	}
	c.stage = noAttempt
}

// settleBudget is settleBudgetLocked with the lock.
func (c *Call) settleBudget(sent bool) {
	c.table.common.mu.Lock()
	defer c.table.common.mu.Unlock()
	c.settleBudgetLocked(sent)
}
