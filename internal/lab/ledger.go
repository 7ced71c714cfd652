package lab

import (
	"time"

	"github.com/go-throttle/throttle/internal/account"
	"github.com/go-throttle/throttle/throttletest"
)

// An Account is what has been used of a limit, one unit at a time, for those who know all about it.
type Account struct{ of *account.Account }

// NewAccount returns one that has not been used. The functions of the limit, which look at requests, do not count.
func NewAccount(l throttletest.Limit) Account {
	a := account.Limit{Kind: account.Kind(l.Kind), N: l.N, Per: l.Per, Burst: l.Burst, Phase: l.Phase}
	for _, c := range l.Changes {
		a.Changes = append(a.Changes, account.Change(c))
	}
	return Account{account.New(a)}
}

// Ready is the first moment, at or later, at which a unit is free; Never if there is none. An InFlight limit says at or Never.
func (a Account) Ready(at time.Duration) time.Duration { return a.of.Of(at, "").Ready(at, 1) }

// Take charges a unit, whether one is free or not.
func (a Account) Take(at time.Duration) { a.of.Of(at, "").Take(at, 1) }

// Done ends the work on a unit of an InFlight limit.
func (a Account) Done(at time.Duration) { a.of.Done(at, "", 1) }

// Never is a moment that does not come.
const Never = account.Never

// Charged is how many units a Limit with an index has charged for the requests whose work was done at from and later, and before
// to. Divided by what the limit allows in that time it is the limit's use, if the calls are as long all the time.
//
// An example: 1,000 calls of 30 s were done within 10 minutes, at 120 tokens each. Charged is 120,000; of a limit of
// 15,000 a minute that is 80 %.
func Charged(l throttletest.Ledger, limit int, from, to time.Duration) (units int) {
	for i := range l {
		if a := &l[i]; a.Verdict == throttletest.Admitted && from <= a.Done && a.Done < to {
			units += a.Units[limit]
		}
	}
	return units
}

// Jain is Jain's index of how evenly clients were admitted: 1 if all were equally often, 1/n if only one of n was. The
// clients are those named, or all in the ledger if none is named. It is 0 if nobody was admitted.
//
// The formula is (Σx)² ÷ (n Σx²), by R. Jain and others, 1984. An example: three clients were admitted
// 10, 10 and 4 times: 24² ÷ (3 × 216) = 0.89. Name the clients if one may have got nothing at all: who
// is in no arrival cannot be counted otherwise.
func Jain(l throttletest.Ledger, clients ...string) float64 {
	admitted := make(map[string]float64)
	for _, c := range clients {
		admitted[c] = 0
	}
	for i := range l {
		if _, ok := admitted[l[i].Client]; ok || len(clients) == 0 {
			if admitted[l[i].Client] += 0; l[i].Verdict == throttletest.Admitted {
				admitted[l[i].Client]++
			}
		}
	}
	var sum, squares float64
	for _, x := range admitted {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(admitted)) * squares)
}
