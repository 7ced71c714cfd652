package body

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/go-throttle/throttle/usage"
)

// A Cost is what an attempt has cost of one meter that held so much and has used u; the user's function. nil: what it held.
type Cost func(held int, u usage.Usage) int

// Holds is what an attempt holds of several meters, by number. Settle corrects one of them, and of several words the first
// counts; Cut does so for a body that has not said all. Pass says that so much of the body was read. Held is how much
// was held, and Open reports whether one is not settled.
type Holds interface {
	Settle(i, n int)
	Cut(i, n int)
	Pass(bytes, events int)
	Held(i int) int
	Open() bool
}

// An example of what Holds is asked: a body of 3,000 bytes in 20 events comes in 20 Reads, so Pass is called 20 times. It says 200 tokens at
// its end: Settle. If its reader leaves after half of it, and 120 tokens had been said by then: Cut.

// A Tab is what one attempt has to settle after its response has come: by what the body says, if it has one that is read,
// and by the Bill of its caller, if there is one.
//
// # States
//
//	open    the attempt is under way, or its body is read
//	ended   the body has ended, was closed or cut, or is not read: what it has said is all that it says. Without a Bill all is
//	        settled. With one only what was said to the end is, and the rest when the Bill lets go
//
// # What a body says
//
//	its usage, to the end   what Cost makes of it
//	a part of it            the larger of that and what was held: whoever leaves early has not got the rest for nothing
//	nothing                 what was held
//
// # Races
//
// The first that ends the tab counts: a Read, Close, the end of the request's ctx, each in a goroutine of its own. mu guards
// what changes, and is not held while Cost runs, which is the user's. If the end and the Bill's letting go come at once, mu
// decides, and the later one settles the rest. That each meter is settled once is up to Holds.
type Tab struct {
	body     io.ReadCloser // nil: not read
	holds    Holds
	costs    []Cost
	refused  func(usage.Refusal)
	stop     func() bool // ends the watch on the request's ctx
	stopBill func() bool // the same of the Bill's; nil: it has none

	line bool // the last byte that was read has ended a line; known to who reads

	mu     sync.Mutex
	billed bool           // a Bill may have a word yet
	watch  *usage.Watcher // of the body; nil: nothing is known
	heard  bool           // the body has said that the upstream refuses
	ended  bool
	seen   usage.Usage // once ended
	known  bool        // seen says something
}

// NewTab returns the tab of an attempt.
func NewTab(holds Holds, costs []Cost) *Tab { return &Tab{holds: holds, costs: costs} }

// Watch returns the body of the tab's response, which settles as it is read. refused is called, by the goroutine that reads,
// if the body says that the upstream refuses, once. ctx is the request's.
func (t *Tab) Watch(ctx context.Context, body io.ReadCloser, watch *usage.Watcher, refused func(usage.Refusal)) io.ReadCloser {
	t.body, t.watch, t.refused = body, watch, refused
	t.stop = context.AfterFunc(ctx, t.End)
	return t
}

// Read implements io.Reader.
func (t *Tab) Read(p []byte) (int, error) {
	n, err := t.body.Read(p)
	if r, refused := t.see(p[:n]); refused {
		t.refused(r)
	}
	t.holds.Pass(n, t.events(p[:n]))
	if err != nil {
		t.stop()
		t.End()
	}
	return n, err
}

// events counts the events of a stream that end in p: empty lines. One whose end is cut between two Reads counts too. Bodies that
// are no streams have few of them, which does no harm.
func (t *Tab) events(p []byte) (n int) {
	if len(p) == 0 {
		return 0
	}
	if n = bytes.Count(p, emptyLine); t.line && p[0] == '\n' {
		n++
	}
	t.line = p[len(p)-1] == '\n'
	return n
}

var emptyLine = []byte("\n\n")

// Close implements io.Closer. It settles before the body's own Close, which may block.
func (t *Tab) Close() error {
	t.stop()
	t.End()
	return t.body.Close()
}

// see looks at what was read, and reports whether the upstream has refused there. It reports that once.
func (t *Tab) see(p []byte) (r usage.Refusal, refused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || len(p) == 0 {
		return r, false
	}
	t.watch.Write(p)
	if r, refused = t.watch.Refusal(); t.heard {
		return r, false
	}
	t.heard = refused
	return r, refused
}

// End says that the body has ended, or is not read, and settles.
func (t *Tab) End() {
	if first, last := t.end(); first {
		t.settle(last)
	}
}

// end notes that the body has ended. It reports whether that is news, and whether nobody else may have a word.
func (t *Tab) end() (first, last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false, false
	}
	t.ended = true
	t.seen, t.known = t.watch.Usage()
	return true, !t.billed
}

// Release says that the Bill has no word any more. There may be no Tab.
func (t *Tab) Release() {
	if t != nil && t.unbill() {
		t.settle(true)
	}
}

// unbill notes that, and reports whether it is news and the tab has ended already.
func (t *Tab) unbill() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	billed := t.billed
	t.billed = false
	return billed && t.ended
}

// settle settles what the body has said to its end, and if this is the last word all the rest. The tab has ended.
//
// An example with a Bill: a stream has said 900 tokens of input and is closed before its end; 1,000 were held. Nothing is
// settled. The caller says 950 by the Bill, which is that. If it does not, 1,000 are settled when its ctx ends.
func (t *Tab) settle(last bool) {
	for i, cost := range t.costs {
		switch held := t.holds.Held(i); {
		case cost != nil && t.known && t.seen.Final:
			t.holds.Settle(i, cost.of(held, t.seen))
		case cost != nil && t.known && last:
			t.holds.Cut(i, cost.of(held, t.seen))
		case last:
			t.holds.Cut(i, held)
		}
	}
	t.Settled()
}

// of is what cost says, if that makes sense: a panic and less than 0 count as held, and what was not said to the end as no less.
func (cost Cost) of(held int, u usage.Usage) (n int) {
	defer func() {
		if recover() != nil {
			n = held
		}
	}()
	if n = cost(held, u); n < 0 {
		n = held
	}
	if !u.Final {
		n = max(n, held)
	}
	return n
}

// Settled says that the attempt's holds were settled by somebody else. Once all of them are, the Bill's ctx is not watched any
// more.
func (t *Tab) Settled() {
	if t.stopBill != nil && !t.holds.Open() {
		t.stopBill()
	}
}
