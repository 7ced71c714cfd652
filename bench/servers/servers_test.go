package servers

import (
	"testing"
	"time"
)

// TestPeers: each of them limits, and ours keeps what it promises.
func TestPeers(t *testing.T) {
	for i, p := range Peers {
		h := p.New(5, time.Hour, nothing)
		w, all := &sink{header: map[string][]string{}}, requests(2)
		for n := range 8 {
			if code := w.call(h, all[0]); (code == 200) != (n < 5) {
				t.Errorf("%s: request %d of 5: %d", p.Name, n, code)
			}
		}
		if code := w.call(h, all[1]); code != 200 {
			t.Errorf("%s: another client: %d", p.Name, code)
		}
		var r Row
		r.flood(p, 1000)
		r.Spoofed = spoof(p.New, "192.0.2.1:80")
		if i < 3 && (r.Own != "50 of 50" || r.Spoofed != "100") {
			t.Errorf("%s: %+v", p.Name, r)
		}
	}
}
