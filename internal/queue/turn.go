package queue

import (
	"context"
	"time"
)

// This file is how a call gets its turn: Arrive and Sleep, with its observers between them.
//
// A call that has to wait is in line when Arrive returns, so the turn may come while an observer still runs: the
// grant waits in the waiter's channel, and Sleep returns at once. ctx may end meanwhile, too: Sleep finds that
// as it would in its sleep. So an observer that is slow delays its own call alone, and holds a slot and
// units while it does.
//
//	arrive   under the lock: granted at once, refused, or in line
//	hooks    without it; the line may grant or refuse the waiter meanwhile, or send it away with MaxPause
//	Sleep    takes in what has become of it
//	Done     after a panic of a hook: abandons the waiter, and undoes a grant

// A Tell is what somebody wants to know of a call that begins to wait, in bits. None costs nothing.
type Tell uint8

const (
	TellReason Tell = 1 << iota // what it is held by
	TellWait                    // how long it will wait
)

// comeLocked returns the entry of the call's key once all is there that the attempt needs: the key, made if it is missing, and
// what is to be held of its meters, each of which hold is to Hold. While the user's functions are asked for that the lock is
// released, and then all is looked at anew.
//
// An example of a key that has meters and is called for the first time: there is no such key, and it is made; then the holds
// are computed; then the call goes. If the key was dropped in between, which takes a full table, it is made again, and
// holds that were made for the one that is gone are not for this one.
func (c *Call) comeLocked(hold func(*Meters)) (*entry, error) {
	t := c.table
	for {
		if !t.common.staysLocked(&c.order) {
			return nil, c.closedLocked()
		}
		e := c.entry
		if e == nil {
			if e = t.findLocked(c.key); e == nil {
				if err := t.makeLocked(c.key); err != nil {
					return nil, err
				}
				continue
			}
			if m := e.queue.meters; m != c.meters {
				c.meters, c.order.holds, c.order.asks = m, nil, asks{}
			}
		}
		if c.meters == nil || !c.lacksHolds() {
			return e, nil
		}
		t.common.unlocked(func() { hold(c.ask()) })
	}
}

// enterLocked counts the call at its first arrival. It pays the budget's share once: its retries find entry set. since is when it
// came, counted from common.base.
func (c *Call) enterLocked(e *entry, since time.Duration) {
	c.entry, c.order.moment = e, since
	e.queue.begun++
	e.balance.deposit(&c.table.common.Budget)
}

// Sleep stands in line until the next attempt may be sent, and returns how long that was.
func (c *Call) Sleep(ctx context.Context) (waited time.Duration, err error) {
	w, start := c.waiter, c.order.now
	c.waiter = nil // sleep takes it out of the line, whatever comes
	if err := c.order.sleep(ctx, &c.entry.queue, w); err != nil {
		c.undoHolds()
		return 0, err
	}
	// From here on w is read only: it has left the line.
	c.order.fill(w)
	c.order.sample = true // the lock was taken already, and what calls take decides who may wait
	if c.stage != noAttempt {
		c.settleBudget(true)
	}
	c.begun()
	return c.order.now.Sub(start), nil
}

// Held returns what held the call when it began to wait, and how long it was to wait; 0: unknown. Each is there
// if Config.Tell asks for it.
func (c *Call) Held() (by string, wait time.Duration) {
	if b := c.order.begins; b != nil {
		return b.by, b.wait
	}
	return "", 0
}

// begun notes that an attempt is under way.
func (c *Call) begun() { c.stage, c.held = underway, c.order.slot() }
