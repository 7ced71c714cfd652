package inbound_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/inbound"
)

// answers is a handler that answers with the status that the request wants, "panic" or "103" before 200.
var answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	switch want := r.Header.Get("X-User"); want {
	case "":
	case "panic":
		panic("bad")
	case "body":
		io.WriteString(w, "body")
	case "103":
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
	case "twice":
		w.WriteHeader(http.StatusNotModified)
		w.WriteHeader(http.StatusTeapot)
	case "tokens":
		w.WriteHeader(http.StatusOK)
		w.Header().Set("X-Tokens", "7")
	default:
		status, _ := strconv.Atoi(want)
		w.WriteHeader(status)
	}
})

// onlyFailures counts attempts that fail, as those of a log-in.
func onlyFailures(_ *http.Request, status int, _ http.Header) int {
	if status == http.StatusUnauthorized {
		return 1
	}
	return 0
}

// TestCountingByTheAnswer: what is left of 10 after one request, as the next one sees it before it is counted itself.
func TestCountingByTheAnswer(t *testing.T) {
	tokens := func(_ *http.Request, _ int, h http.Header) int {
		n, err := strconv.Atoi(h.Get("X-Tokens"))
		if err != nil {
			return -1
		}
		return n
	}
	for _, c := range []struct {
		settle func(*http.Request, int, http.Header) int
		want   string
		left   int
	}{
		{onlyFailures, "401", 9},
		{onlyFailures, "200", 10},
		{onlyFailures, "", 10},
		{onlyFailures, "304", 10},
		{onlyFailures, "panic", 9},
		{func(_ *http.Request, status int, _ http.Header) int { return status % 100 }, "", 10},
		{func(_ *http.Request, status int, _ http.Header) int { return status % 10 }, "body", 10},
		{func(_ *http.Request, status int, _ http.Header) int { return status % 10 }, "103", 2}, // 418
		{func(_ *http.Request, status int, _ http.Header) int { return status % 10 }, "twice", 6},
		{tokens, "tokens", 3},
		{tokens, "200", 9},
		{func(r *http.Request, _ int, _ http.Header) int { panicIf(user(r) != ""); return 1 }, "200", 9},
		{func(*http.Request, int, http.Header) int { return 15 }, "200", 0},
	} {
		for _, limit := range []string{"10/1h window", "1/1h burst 10", "10/1h sliding"} {
			l := inbound.Limit{Limits: []string{limit}, Settle: c.settle}
			h := l.Handler(answers)
			recovered(func() { get(h, alice, "X-User", c.want) })
			l2 := get(h, alice)
			if got := l2.Header().Get("RateLimit"); !strings.Contains(got, ";r="+itoa(max(0, c.left-1))+";") {
				t.Errorf("%s: after %q: %d %s, want one less than %d left", limit, c.want, l2.Code, got, c.left)
			}
		}
	}
}

// TestLogins: who knows the password may log in as often as it likes, and who does not has five attempts, also if they come at
// once.
func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"5/1h window"}, Settle: onlyFailures}
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			answers(w, r)
		})
		h := l.Handler(slow)
		for range 20 {
			if w := get(h, alice, "X-User", "200"); w.Code != 200 {
				t.Fatalf("a log-in that succeeds: %d", w.Code)
			}
		}
		for _, want := range []struct {
			status         string
			served, second int
		}{{"200", 5, 5}, {"401", 5, 0}} {
			for _, served := range []int{want.served, want.second} {
				n := 0
				var mu sync.Mutex
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						w := get(h, alice, "X-User", want.status)
						mu.Lock()
						defer mu.Unlock()
						n += bit(w.Code != 429)
					})
				}
				if all.Wait(); n != served {
					t.Errorf("status %s: %d of 8 at once were served, want %d", want.status, n, served)
				}
			}
		}
	})
}

// TestSettledUnitsWakeTheLine: a request that waits for units goes when they come back, and not when they would have.
func TestSettledUnitsWakeTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"2/1m window"}, Settle: onlyFailures, Wait: time.Hour}
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { time.Sleep(300 * time.Millisecond) }))
		var all sync.WaitGroup
		var visitors []*visitor
		for range 5 {
			visitors = append(visitors, send(&all, h, alice))
		}
		all.Wait()
		for i, v := range visitors {
			if want := time.Duration(1+i/2) * 300 * time.Millisecond; v.served != want {
				t.Errorf("request %d was served after %v, want %v", i, v.served, want)
			}
		}
	})
}

// TestSettleOfAll: each Limit of And settles by its own function, and the first one the shared limits with it.
func TestSettleOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := throttle.NewBucket(1, 100)
		failures := &inbound.Limit{Limits: []string{"3/1h window"}, Key: user, Settle: onlyFailures, Name: "failed"}
		l := inbound.Limit{
			Limits: []string{"100/1h window"}, Cost: func(*http.Request) int { return 10 }, And: []*inbound.Limit{failures},
			Settle: func(_ *http.Request, status int, _ http.Header) int { return status / 100 }, Shared: []throttle.Limiter{shared},
		}
		h := l.Handler(answers)
		for range 3 {
			get(h, alice, "X-User", "401")
		}
		get(h, alice, "X-User", "200")
		if w := get(h, alice, "X-User", "401"); w.Code != 429 || !contains(w.Header()["Ratelimit"], `"h";r=86`) {
			t.Errorf("%d %v, want the fourth failure refused and 14 used", w.Code, w.Header())
		}
		if left := shared.Tokens(); left != 86 {
			t.Errorf("%v are left of the shared limit, want 86", left)
		}
	})
}

// TestSettleKeepsTheConnection: what a handler can do with its ResponseWriter it can do with Settle, and it can do no more.
func TestSettleKeepsTheConnection(t *testing.T) {
	seen := make(chan int, 10)
	l := inbound.Limit{Limits: []string{"1000/1h window"}, Settle: func(_ *http.Request, status int, _ http.Header) int {
		seen <- status
		return -1
	}}
	s := httptest.NewServer(l.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hijack":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "mine\n")
		case "/controller":
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		case "/flush":
			w.(http.Flusher).Flush()
			io.WriteString(w, "streamed")
		case "/file":
			f, err := os.Open("answer_test.go")
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			io.Copy(w, f)
		}
	}))
	defer s.Close()
	for _, path := range []string{"/controller", "/flush", "/file"} {
		resp, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if status := <-seen; status != 200 || path == "/flush" && string(body) != "streamed" || path == "/file" && len(body) < 1000 {
			t.Errorf("%s: status %d, %d bytes", path, status, len(body))
		}
	}
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "mine\n" {
		t.Errorf("%q %v", line, err)
	}
	if status := <-seen; status != http.StatusSwitchingProtocols {
		t.Errorf("of a connection that was taken over the status is %d", status)
	}
	h := l.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		if hijacks || flushes {
			t.Errorf("it flushes: %v, and can be taken over: %v", flushes, hijacks)
		}
	})
	h.ServeHTTP(&nobody{http.Header{}}, request(alice))
}

// TestSettleAfterAFailedCopy: a copy that has failed before its first byte has sent no status yet.
func TestSettleAfterAFailedCopy(t *testing.T) {
	status := 0
	l := inbound.Limit{Settle: func(_ *http.Request, s int, _ http.Header) int { status = s; return -1 }}
	server := httptest.NewServer(l.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.Copy(w, failing{}); err != nil {
			http.Error(w, "no data", http.StatusBadGateway)
		}
	}))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway || status != http.StatusBadGateway {
		t.Errorf("Settle was called with %d; the client has got %d", status, resp.StatusCode)
	}
}

// failing is a file that cannot be read.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("no such block") }
