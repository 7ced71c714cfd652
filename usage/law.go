package usage

import (
	"math"
	"net/http"
)

// Law is how a provider charges one of its limits, as data: what it holds when a request arrives, and what it has
// charged when the answer has ended. [OpenAI], [Anthropic] and others return the laws of providers, and a program
// may change what it gets. The zero Law holds nothing and counts nothing.
//
// A law says nothing of how large a limit is: that depends on the account and the model, and is advertised or
// known to the user.
//
// Hold and Settle have the form of the fields of the same name of a meter:
//
//	law := usage.OpenAI()
//	held := law.Hold(req)      // units to take before req is sent
//	cost := law.Settle(held, u) // units that it has cost
type Law struct {
	// Name is the provider's name for the limit, as in its header fields: "tokens", "input-tokens".
	Name string

	// Holds is what the provider holds when a request arrives.
	Holds Holding

	// Default is what a request may cost that does not say it: the bound of the output where it has none, and all
	// of the hold if Holds is HoldsNothing. Where a provider takes the model's context for a missing bound, that
	// is a good Default. 0: nothing.
	Default int

	// Counts are the weights of what is charged in the end. Fields of [Usage] are as the provider reports them,
	// so a weight may be negative: if Input contains what came from the cache and that is free, CacheRead has -1.
	Counts Weights

	// Keeps means that the provider does not correct what it held.
	Keeps bool

	// Failures means that failed and throttled requests are charged what was held for them.
	Failures bool

	// Streams means that the provider charges output while it streams, instead of when it ends.
	Streams bool

	// Parser has rows for requests that the built-in ones do not know: [Dialect.Bound] and [Dialect.Answers]. nil: the
	// built-in rows alone.
	Parser *Parser
}

// Holding is what a provider holds when a request arrives.
type Holding int

const (
	// HoldsNothing: what a request costs is charged when it is known.
	HoldsNothing Holding = iota

	// HoldsInput: an estimate of the request's input.
	HoldsInput

	// HoldsSum: an estimate of the input, and the bound of the output.
	HoldsSum

	// HoldsLarger: the larger of these two.
	HoldsLarger
)

// Weights say how much a unit of each field of [Usage] is charged. For example, {Input: 1, Output: 5} charges 150
// for 100 tokens of input and 10 of output.
type Weights struct {
	// Each is the weight of the field of the same name. 0: it is not charged.
	Input, Output, CacheRead, CacheWrite, Reasoning, Points float64
}

// Hold returns how many units the provider will hold for req: at least 0, and at most 2³¹-1.
//
// Providers estimate the input by its length, as does Hold: a token for each 4 bytes of the JSON body, and 1000
// for each file in it, such as an image, wherever it stands. The bound of the output counts for each answer that req asks
// for (n, candidateCount, several prompts). Hold reads all of a copy of the body, which it asks req.GetBody for. Without
// GetBody the length alone counts, and the bound of the output is Default. Bodies that are not JSON are not estimated. req
// is not changed.
func (l Law) Hold(req *http.Request) int {
	if l.Holds == HoldsNothing {
		return clamp(float64(l.Default))
	}
	switch r := l.Parser.read(req); l.Holds {
	case HoldsInput:
		return clamp(r.input)
	case HoldsSum:
		return clamp(r.input + r.output(l.Default))
	default:
		return clamp(max(r.input, r.output(l.Default)))
	}
}

// Most returns the most that req may be charged, as far as can be known before it is sent: its input by the estimate of
// [Law.Hold] and the bound of its output, Default if it sets none, by their weights in Counts. It is at least what Hold
// returns, and at most 2³¹-1. It reads the body as Hold does.
func (l Law) Most(req *http.Request) int {
	r, out := l.Parser.read(req), 0.0
	if l.Counts.Output > 0 {
		out = r.output(l.Default)
	}
	return max(clamp(max(0, l.Counts.Input)*r.input+l.Counts.Output*out), l.Hold(req))
}

// Learns reports whether the provider charges output that it does not hold, for Meter.Learn of package throttle. Then a client
// need not hold all that a request may cost: what requests usually cost is enough. Use Most in place of Hold if it does.
func (l Law) Learns() bool {
	return l.Counts.Output > 0 && (l.Holds == HoldsNothing || l.Holds == HoldsInput)
}

// Bound returns the bound of the output that req sets (max_tokens and its kin), of all answers that it asks for, and
// false if it sets none. It reads the body as [Law.Hold] does.
func Bound(req *http.Request) (int, bool) {
	r := (*Parser)(nil).read(req)
	return clamp(r.output(0)), r.bound >= 0
}

// Settle returns what a request has cost, rounded up, if it has cost u and held units were held for it: at least
// 0, and at most 2³¹-1. It is held if u says nothing that the law counts. If u is not Final, Settle returns the
// cost of what had been said by then.
//
// Where u has a Total, it says what else is unknown: a total alone is input, and what is in the total beside input and
// output is output, as the reasoning is that xAI and Gemini do not count in Output.
func (l Law) Settle(held int, u Usage) int {
	if l.Keeps {
		return held
	}
	u = u.whole(l.Counts.Reasoning == 0)
	w := &l.Counts
	cost, known := 0.0, false
	for _, part := range [...]struct {
		weight float64
		n      int64
	}{{w.Input, u.Input}, {w.Output, u.Output}, {w.CacheRead, u.CacheRead}, {w.CacheWrite, u.CacheWrite}, {w.Reasoning, u.Reasoning}, {w.Points, u.Points}} {
		if part.weight != 0 && part.n >= 0 {
			cost += part.weight * float64(part.n)
			known = known || part.weight > 0
		}
	}
	if !known {
		return held
	}
	return clamp(cost)
}

// clamp returns f as a number of units, rounded up.
func clamp(f float64) int {
	if !(f > 0) { // NaN too
		return 0
	}
	return int(math.Ceil(min(f, math.MaxInt32)))
}

// whole returns u with what its other fields say of Input and Output. beside: Output takes reasoning that it does not
// contain.
func (u Usage) whole(beside bool) Usage {
	switch {
	case u.Total < 0:
	case u.Input < 0 && u.Output < 0:
		u.Input = u.Total
	case u.Input < 0:
		u.Input = max(0, u.Total-u.Output)
	case u.Output < 0 && u.Total > u.Input:
		u.Output = u.Total - u.Input
	}
	if u.Output < 0 || !beside {
		return u
	}
	// What remains is the cache's where Input is without it, as Bedrock's is.
	rest := u.Total - u.Output - max(0, u.Input)
	more := rest - max(0, u.CacheRead) - max(0, u.CacheWrite)
	if u.Reasoning > u.Output || u.Reasoning <= rest {
		more = max(more, u.Reasoning)
	}
	u.Output = max(u.Output, u.Output+more) // nothing if the sum overflows
	return u
}
