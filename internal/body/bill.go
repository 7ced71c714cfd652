package body

import (
	"context"
	"sync"
)

// A Bill is how a caller settles by hand: it knows the tab of the newest attempt under a ctx. The zero Bill knows none.
//
// # Races
//
//	Settle, the body's end    both tell Holds, which takes the first word about each meter
//	Settle, the next attempt  mu decides which attempt is meant
//	ctx ends, the next one    the tab that ctx releases may have been released already, which does no harm
type Bill struct {
	mu  sync.Mutex
	tab *Tab
}

// An example: an SDK retries by itself, so two calls are made under one ctx. The first is throttled, and nothing is left to
// settle of it. The second succeeds, and its caller says 900 tokens by the Bill: those of the second.

// Open makes t the tab of the newest attempt, which is sent now, until ctx ends. The Bill's say about the one before ends.
func (b *Bill) Open(ctx context.Context, t *Tab) {
	t.billed = true // nobody else knows t yet
	t.stopBill = context.AfterFunc(ctx, t.Release)
	if old := b.swap(t); old != nil {
		old.Release()
		old.Settled()
	}
}

// swap makes t the newest tab, and returns the one before.
func (b *Bill) swap(t *Tab) (old *Tab) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, b.tab = b.tab, t
	return old
}

// Settle settles the newest attempt's meter of that number, which find returns for what it holds; negative: it has none.
func (b *Bill) Settle(find func(Holds) int, n int) {
	t := b.newest()
	if t == nil {
		return
	}
	if i := find(t.holds); i >= 0 {
		t.holds.Settle(i, n)
		t.Settled()
	}
}

// newest is the tab of the newest attempt; nil: there is none.
func (b *Bill) newest() *Tab {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tab
}
