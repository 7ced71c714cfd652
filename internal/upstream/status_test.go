package upstream

import (
	"testing"

	"github.com/go-throttle/throttle/hint"
)

// TestStatuses: every status stands for one that is known, and says one thing. None above 499 is a success.
func TestStatuses(t *testing.T) {
	want := map[Outcome][]int{
		Success: {100, 101, 200, 204, 206, 226, 301, 304, 399, 400, 401, 403, 404, 408, 409, 418, 425, 451, 460, 463, 499},
		// Cloudflare: 520 to 524, 527 and 530. 598 and 599: proxies that cannot read or connect.
		Failure: {502, 503, 504, 520, 521, 522, 523, 524, 527, 530, 598, 599},
		// 509 of cPanel, 525 and 526 of Cloudflare (TLS), 529 if the Hint does not take it for throttling, 540 of Pantheon, 561 of AWS ELB,
		// 999 of LinkedIn: RFC 9110 15 takes what is not of a class for a 5xx.
		Neutral:   {500, 509, 512, 519, 525, 526, 528, 529, 531, 540, 561, 597, 600, 999},
		Cancelled: {501, 505, 506, 507, 508, 510, 511},
		Throttled: {429},
	}
	seen := map[int]bool{}
	for outcome, all := range want {
		for _, status := range all {
			if seen[status] = true; OutcomeOf(status, &hint.Hint{}) != outcome {
				t.Errorf("%d is %v, want %v", status, OutcomeOf(status, &hint.Hint{}), outcome)
			}
		}
	}
	for status := range 1200 {
		class := ClassOf(status)
		if class != ClassOf(class) || class > 511 || status < 500 && class != status {
			t.Errorf("%d stands for %d", status, class)
		}
		if o := OutcomeOf(status, &hint.Hint{}); status >= 500 && (o == Success || o > Failure) || status >= 500 && !seen[status] && o != Neutral {
			t.Errorf("%d is %v", status, o)
		}
		if o := OutcomeOf(status, &hint.Hint{Throttled: true}); o != Throttled && (o != Overloaded || status != 529 && status != 418) {
			t.Errorf("%d, throttled, is %v", status, o)
		}
	}
}
