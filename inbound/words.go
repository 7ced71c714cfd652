package inbound

import (
	"fmt"
	"strings"

	"github.com/go-throttle/throttle/internal/limit"
)

// newLaws reads limits. Example: {"10/s, 100/m", "5000/d window"} are three laws. They keep their order, which is that of
// their names in RateLimit-Policy.
func newLaws(texts []string) (laws []law, err error) {
	laws = []law{}
	for _, text := range texts {
		some, err := parseLaws(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		for _, l := range some {
			l.at = wordsOf(laws)
			laws = append(laws, l)
		}
	}
	if len(laws) > maxLaws {
		return nil, fmt.Errorf("%d limits in %q; a key has memory for %d", len(laws), texts, maxLaws)
	}
	return laws, nil
}

// parseLaws reads one text: limits in the words of throttle.Limit, and those that only servers have.
func parseLaws(text string) (laws []law, err error) {
	if low := strings.ToLower(text); !strings.Contains(low, "once") && !strings.Contains(low, "in ") {
		return specLaws(text)
	}
	for part := range strings.SplitSeq(text, ",") {
		some, err := parseLaw(part)
		if err != nil {
			return nil, err
		}
		laws = append(laws, some...)
	}
	return laws, nil
}

// parseLaw reads one limit.
func parseLaw(text string) ([]law, error) {
	for _, read := range []func(string) (law, bool, error){newAtOnce, newCalendar} {
		if l, ok, err := read(text); ok {
			return []law{l}, err
		}
	}
	return specLaws(text)
}

// specLaws reads limits in the words of throttle.Limit.
func specLaws(text string) (laws []law, err error) {
	specs, err := limit.ParseSpecs(text)
	if err != nil {
		return nil, err
	}
	for _, s := range specs {
		l, err := newLaw(s)
		if err != nil {
			return nil, err
		}
		laws = append(laws, l)
	}
	return laws, nil
}
