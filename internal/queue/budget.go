package queue

// A Budget bounds retries to a share of the calls. Each call pays PerCall in, each retry takes 1 out, and Max
// is the most that can be saved up, and the balance at the start (throttle.Budget). What is stored is the
// amount spent: the retries that were taken out and not paid for again, from 0 to Max. So a new key has 0.
//
// An example with PerCall 0.2 and Max 10: ten retries are allowed at once, then one for every five calls.
type Budget struct{ PerCall, Max float64 }

// deposit pays a call's share in. The budget keeps a broken upstream from getting several times its usual
// traffic: of 100 calls a second that all fail it gets 120 attempts a second, a retry for every fifth.
func (b Budget) deposit(spent float64) float64 {
	if spent > 0 {
		return max(0, spent-b.PerCall)
	}
	return spent
}

// withdraw takes one retry out, if there is one.
// An example with Max 10: at 9 spent the tenth retry goes, at 9.2 none does. One more call pays 0.2,
// and it is 9 again.
func (b Budget) withdraw(spent float64) (after float64, ok bool) {
	switch {
	case b.PerCall < 0:
		return spent, true
	case spent+1 > b.Max+1e-9: // shares are not exact in binary
		return spent, false
	}
	return spent + 1, true
}
