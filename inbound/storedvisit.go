package inbound

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file is what a visit does with parts whose units are in a store. They are asked last, when all that is known here
// lets the request in, and all at once: a request waits for one round trip, however many of its limits are in stores.

// keep notes the key of a part that has a store.
func (v *visit) keep(i int, key string) {
	if v.held == nil {
		v.held = new([maxParts]held)
	}
	v.held[i].key = key
}

// askStored asks one part that has a store for what is known here.
//
//go:noinline
func (v *visit) askStored(i int, m mode) {
	a, h := &v.asked[i], &v.held[i]
	v.core.parts[i].stored.ask(a.hash, a.tier, a.cost, m, &a.verdict, h)
	a.took = m == take && a.verdict.wait == 0 && !h.open
}

// askStores asks for what is open.
func (v *visit) askStores(ctx context.Context) {
	var asks [maxParts]*ask
	now := time.Now()
	for i, p := range v.core.parts {
		if a, h := &v.asked[i], &v.held[i]; h.open {
			asks[i] = p.stored.join(a.hash, a.tier, h, a.cost, false, now)
		}
	}
	for i, a := range asks {
		if a != nil {
			v.core.parts[i].stored.link.send(now)
		}
	}
	for i, p := range v.core.parts {
		a, h := &v.asked[i], &v.held[i]
		if !h.open {
			continue
		}
		if h.open = false; asks[i] != nil {
			asks[i].await(ctx, now, &a.verdict, h)
		} else {
			p.stored.decide(a.hash, a.tier, a.cost, &a.verdict, h)
		}
		if a.took = a.verdict.wait == 0; !p.shadow {
			v.wait = max(v.wait, a.verdict.wait)
		}
	}
}

// useStore has the units of a part in the Limit's Store, if it has one.
func (p *part) useStore(l *Limit) (err error) {
	if l.Store == nil {
		return nil
	}
	if p.stored, err = newStored(l.Store, l.Name, l.Mode, l.Servers, p.table, p.tierNames()); err == nil && (l.Plan != nil || l.Settle != nil) {
		err = errors.New("with a Store there are no Plan and no Settle")
	}
	if err != nil {
		return fmt.Errorf("inbound.Limit: %w", err)
	}
	return nil
}

// tierNames are the names of a part's tiers, by number.
func (p *part) tierNames() []string {
	names := make([]string, len(p.table.laws))
	for name, i := range p.tiers {
		names[i] = name
	}
	return names
}
