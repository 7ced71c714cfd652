package queue

import "time"

// A Budget bounds retries to a share of the calls. Each call pays PerCall in, each retry takes 1 out, and Max
// is the most that can be saved up, and the balance at the start (throttle.Budget). PerSecond comes back by itself, so that a
// client with few calls has retries too.
//
// An example with PerCall 0.2, PerSecond 0.2 and Max 10: ten retries are allowed at once, then one for every five calls, and
// one every 5 s.
type Budget struct{ PerCall, Max, PerSecond float64 }

// A balance is what a key has left of its budget. What is stored is the
// amount spent: the retries that were taken out and not paid for again, from 0 to Max. So a new key has 0.
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
func (b *balance) withdraw(of *Budget, now time.Duration) bool {
	if of.PerCall < 0 {
		return true
	}
	tenths := uint32(now / (time.Second / 10))
	b.spent, b.at = max(0, b.spent-float32(max(0, of.PerSecond)/10)*float32(tenths-b.at)), tenths
	if b.spent+1 > float32(of.Max)+1e-5 { // shares are not exact in binary
		return false
	}
	b.spent++
	return true
}

// refund puts one retry back that was not made.
func (b *balance) refund() { b.spent = max(0, b.spent-1) }

// settleBudgetLocked counts a planned retry that goes. What it took out of the budget goes back if it was not
// sent, or if the gate has closed since it was decided: then the gate has bounded it.
//
// paidAt recognizes a closing: Closing.Count was 3 when the budget paid and is 4 now, so the gate has
// closed once since. While it is closed only probes go, and the key needs no second bound.
func (c *Call) settleBudgetLocked() {
	q := &c.entry.queue
	if c.under {
		q.retried++
	}
	if c.charged && (!c.under || q.up.Closing(q.common.now()).Count != c.paidAt) {
		c.entry.balance.refund()
	}
	c.charged, c.planned = false, false
}

// settleBudget is settleBudgetLocked with the lock.
func (c *Call) settleBudget() {
	c.table.common.mu.Lock()
	defer c.table.common.mu.Unlock()
	c.settleBudgetLocked()
}
