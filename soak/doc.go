// Package soak holds tests alone. They mix all that the library has, at random and in virtual time,
// before upstreams that fail and lie, and look at it from outside: what upstreams, limiters and callers
// count must agree with what the library says, and nobody may break a limit, get lost or be left.
//
// What only the inside can see is checked by the library itself, in builds with the tag
// throttle_invariants. Soak with it:
//
//	go test -tags throttle_invariants -run 'TestSoak$' ./soak -soak.duration 1h -soak.seeds 20 -timeout 1h
//
// TestVerbsAtOnce has the verbs of an operator (Pause, Resume, Shutdown, all that sets limits) meet calls at the same
// moments, under -race.
//
// TestSoakCatches shows what this finds: it plants faults into copies of the source.
package soak
