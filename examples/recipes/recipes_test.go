package recipes

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// TestShort: a recipe is at most 15 lines of code, and all programs are there that a user may look for. OfOneCall is three
// of them. TestLimit, which is the README's, is a unit test that does not sleep.
func TestShort(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]int)
	for _, name := range files {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && (name == "unit_test.go" || !strings.HasSuffix(name, "_test.go")) {
				lines[f.Name.Name] = set.Position(f.Body.Rbrace).Line - set.Position(f.Body.Lbrace).Line - 1
			}
		}
	}
	for name, n := range lines {
		if ast.IsExported(name) && name != "TestReadme" && n > 15 {
			t.Errorf("%s has %d lines, want at most 15", name, n)
		}
	}
	for _, name := range []string{
		"TenASecond", "TenASecondThousandAnHour", "FromYAML", "EachAPIKey", "Crawl", "Webhooks", "OfOneCall", "LongWaits", "TestLimit",
		"Backfill", "Work", "Admin", "InteractiveFirst", "Mail", "Tenants", "Plans", "CrawlAll", "Serve", "Streams", "Again",
	} {
		if lines[name] == 0 {
			t.Errorf("there is no %s", name)
		}
	}
}

// get is a call of a test.
func get(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// all makes n calls at once and returns how long they took together.
func all(t *testing.T, n int, call func(i int) error) time.Duration {
	t.Helper()
	start := time.Now()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			if err := call(i); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	calls.Wait()
	return time.Since(start)
}

// none checks that an upstream has throttled nobody, and how many it has admitted.
func none(t *testing.T, upstream *throttletest.Server, admitted int) {
	t.Helper()
	if got := upstream.Ledger().Tally(); got.Throttled > 0 || got.Admitted != admitted {
		t.Errorf("%d admitted and %d throttled, want %d and none", got.Admitted, got.Throttled, admitted)
	}
}

// perSecond is a limit that counts exactly.
func perSecond(n int) throttletest.Limit {
	return throttletest.Limit{Kind: throttletest.Sliding, N: n, Per: time.Second}
}

func TestTenASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(10))
		client := TenASecond(upstream)
		if took := all(t, 101, func(int) error { return status(client.Get("http://api.test/")) }); took != 10*time.Second {
			t.Errorf("101 calls took %v, want 10s", took)
		}
		none(t, upstream, 101)
	})
}

func TestTenASecondThousandAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(10), throttletest.Limit{Kind: throttletest.Sliding, N: 1000, Per: time.Hour})
		client := TenASecondThousandAnHour(upstream)
		took := all(t, 1100, func(int) error { return status(client.Get("http://api.test/")) })
		if want := time.Hour + 9900*time.Millisecond; took != want {
			t.Errorf("1,100 calls took %v, want %v", took, want)
		}
		none(t, upstream, 1100)
	})
}

func TestFromYAML(t *testing.T) {
	if _, err := FromYAML(nil, []byte("limits: {api.test: 10 a second}")); err == nil || !strings.Contains(err.Error(), "10") {
		t.Errorf("a limit that cannot be read: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(10))
		client, err := FromYAML(upstream, []byte("limits:\n  api.test: 10/s, 1000/h sliding\n"))
		if err != nil {
			t.Fatal(err)
		}
		if took := all(t, 11, func(int) error { return status(client.Get("http://api.test/")) }); took != time.Second {
			t.Errorf("11 calls took %v, want 1s", took)
		}
		time.Sleep(time.Second)
		if took := all(t, 10, func(int) error { return status(client.Get("http://other.test/")) }); took != 0 {
			t.Errorf("calls without a limit took %v, want no time", took)
		}
		none(t, upstream, 21)
	})
}

func TestEachAPIKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := perSecond(10)
		limit.Key = func(req *http.Request) string { return req.Header.Get("X-Api-Key") }
		upstream := throttletest.NewServer(limit)
		client := EachAPIKey(upstream)
		keys := []string{"one", "two", "three"}
		took := all(t, 3*21, func(i int) error {
			req := get(t, "http://api.test/")
			req.Header.Set("X-Api-Key", keys[i%3])
			return status(client.Do(req))
		})
		if took != 2*time.Second {
			t.Errorf("21 calls of each key took %v, want 2s", took)
		}
		none(t, upstream, 63)
		for s := range client.Transport.(*throttle.Transport).Stats() {
			if strings.Contains(s.Key, "one") || strings.Contains(s.Key, "two") || strings.Contains(s.Key, "three") {
				t.Errorf("the line %q shows its key", s.Key)
			}
		}
	})
}
