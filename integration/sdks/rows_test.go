package sdks

import (
	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/usage"
)

var _ = ownRows

// ownRows reads the bodies of a vendor that no row knows.
func ownRows(t *throttle.Transport, law *usage.Law) {
	p := &usage.Parser{Dialects: []usage.Dialect{{Input: "meta.billed.in", Output: "meta.billed.out", Bound: "limits.tokens"}}}
	law.Parser, t.Usage = p, p // law.Hold reads requests with it, and t the bodies of answers
}
