package upstream

import (
	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/gate"
)

// An Outcome is what an attempt says of the upstream.
type Outcome = gate.Outcome

// The outcomes.
const (
	Success    = gate.Success
	Cancelled  = gate.Cancelled
	Neutral    = gate.Neutral
	Failure    = gate.Failure
	Overloaded = gate.Overloaded
	Throttled  = gate.Throttled

	ErrorsToCount = gate.ErrorsToCount // 500s in a row that do not count as failures
)

// ClassOf is the status that stands for another: a client treats a status that it does not know as the x00 of its class,
// and one above 599 as a 5xx (RFC 9110 §15). What gateways say of an origin that they do not reach, or that does not
// answer, is a 502. Others stand for themselves.
//
// An example: Cloudflare answers 522 while it cannot connect to the origin, so 522 counts, and is sent again, as 502 is.
// A 555 is as good as a 500.
func ClassOf(status int) int {
	switch {
	case status <= 508 || status == 510 || status == 511: // all that IANA has
		return status
	case 520 <= status && status <= 524, status == 527, status == 530, status == 598, status == 599:
		return 502
	}
	return 500
}

// OutcomeOf is what an answer with that status and that hint says of the upstream. A 529 or 418 that names no time is about
// its own trouble. A 500 is neutral, because it may well be the fault of one request; the gate counts them. The 5xx that no
// retry mends (501, 505 to 508, 510 and 511) are final for their own call. They are not successes, because whoever stands
// in front of the upstream may have sent them.
func OutcomeOf(status int, h *hint.Hint) Outcome {
	switch {
	case h.Throttled && h.RetryAfter <= 0 && (status == 529 || status == 418):
		return Overloaded
	case h.Throttled, status == 429:
		return Throttled
	}
	switch status = ClassOf(status); {
	case 502 <= status && status <= 504:
		return Failure
	case status == 500:
		return Neutral
	case status > 500:
		return Cancelled
	}
	return Success
}
