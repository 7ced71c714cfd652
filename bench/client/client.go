// Package client sets up the libraries that are compared, one file each, through their public API and
// as their own documentation recommends. Where a library gives up after a few attempts by default, its
// retries are raised until Job.Patience is over.
package client

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// A Job is what a client knows before it starts.
type Job struct {
	Base     http.RoundTripper // what to send over
	Limits   []Limit           // what the upstream admits; empty: the client has to find out
	Meter    *Meter            // in scenarios of meters, the one limit that the upstream has
	InFlight int               // calls that the upstream works on at once; 0: unknown
	Usual    time.Duration     // in scenarios of limits that adapt: nine of ten calls take no longer if all is well
	Even     bool              // starts should be spaced evenly
	Patience time.Duration     // how long a call may take in all
	Workers  int               // callers at once

	// Gate is called by Start, by a client that can tell whether it holds all calls back because the
	// upstream throttles or fails, with a func that tells. Nil: nobody wants to know.
	Gate func(closed func() bool)
}

// A Limit is N units in any Per; Burst of them may go at once.
type Limit struct {
	N      int
	Per    time.Duration
	Burst  int  // at least 1
	Window bool // N in any Per is strict; otherwise the limit is a token bucket, where Burst comes on top of it
}

// Rate is the units per second.
func (l Limit) Rate() float64 { return float64(l.N) / l.Per.Seconds() }

// A Doer sends requests. It is safe for concurrent use. *http.Client is one.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// A Client is one library in one setup.
type Client struct {
	Name    string // as shown in tables: "failsafe-go: retry and limiter"
	Limits  bool   // it waits for its turn if Job.Limits is set
	Retries bool   // it sends a throttled or failed call again
	Bubble  bool   // it can live in a testing/synctest bubble
	Told    bool   // without a limit it is the same as another client
	Metered bool   // it is given Job.Meter, and runs in scenarios of meters alone
	Adapts  bool   // it is given Job.Usual, and runs in scenarios of limits that adapt alone
	Fleet   bool   // it shares a limit among processes, and runs in scenarios of fleets alone
	Start   func(Job) (Doer, error)

	// Urgent marks the context of a call that should go before others. Nil: the client knows no priorities.
	Urgent func(context.Context) context.Context
}

// All are the clients that are compared, the library last.
func All() []Client {
	return []Client{
		bare(),
		timeRate(),
		uberRatelimit(),
		retryable(),
		retryableRate(),
		failsafeRetry(),
		failsafeLimited(),
		failsafeThrottler(),
		rehttpRetry(),
		restyClient(),
		githubRatelimit(),
		awsAdaptive(),
		throttleLimited(),
		throttleQueued(),
		throttleZero(),
	}
}

// Find returns the client of a name.
func Find(name string) (Client, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Client) bool { return c.Name == name })
	if i < 0 {
		return Client{}, false
	}
	return all[i], true
}
