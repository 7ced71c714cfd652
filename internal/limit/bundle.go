package limit

import "time"

// A Bundle is a Set of parts that is asked with a list of amounts.
type Bundle struct{ set Set }

// Add is Set.AddPart.
func (b *Bundle) Add(name string, s *Set) { b.set.AddPart(name, s) }

// TakeBy, Pay, Ready and GiveBack are those of the Set.
func (b *Bundle) TakeBy(at, now time.Time, amounts []int) (time.Time, error) {
	return b.set.TakeBy(at, now, amounts...)
}
func (b *Bundle) Pay(now time.Time, amounts []int) bool { return b.set.Pay(now, amounts...) }
func (b *Bundle) Ready(at time.Time, amounts []int) (time.Time, error) {
	return b.set.Ready(at, amounts...)
}
func (b *Bundle) GiveBack(at, now time.Time, amounts []int) { b.set.GiveBack(at, now, amounts...) }
