package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttledebug"
	"github.com/go-throttle/throttle/throttletest"
)

// table is the table as somebody sees it: rows of texts.
func table(t *testing.T, tab context.Context) [][]string {
	t.Helper()
	return eval[[][]string](t, tab, `[...document.querySelectorAll("#keys tbody tr")].map(r => [...r.cells].map(c => c.textContent))`)
}

// text is that of an element.
func text(t *testing.T, tab context.Context, selector string) string {
	t.Helper()
	return eval[string](t, tab, fmt.Sprintf(`document.querySelector(%q).textContent`, selector))
}

// high counts the pixels of a chart that have the colour of its first line and lie above the lowest quarter. A line at
// zero has none, wherever it is in time.
func high(chart string) string {
	return fmt.Sprintf(`(() => {
		const canvas = document.querySelector("#%s canvas"), ctx = canvas.getContext("2d");
		const probe = document.createElement("canvas").getContext("2d");
		probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--a").trim();
		probe.fillRect(0, 0, 1, 1);
		const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
		const data = ctx.getImageData(0, 0, canvas.width, Math.round(canvas.height * .6)).data;
		let n = 0;
		for (let i = 0; i < data.length; i += 4)
			if (data[i + 3] > 200 && Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 40) n++;
		return n;
	})()`, chart)
}

// ticks is how many events have come.
const ticks = `Number(document.documentElement.dataset.ticks)`

// limits is the first line of the table of limits.
const limits = `[...(document.querySelector("#limits tbody tr") || { cells: [] }).cells].map((c) => c.textContent).join(" | ")`

// A page is opened, its table read, and a key chosen; its charts change when traffic does. Nothing can be changed.
func TestLive(t *testing.T) {
	up := new(upstream)
	tr := &throttle.Transport{Base: up, Key: byHeader, LimiterFor: func(string) throttle.Limiter { return throttle.NewFixedWindow(1_000_000, 24*time.Hour) }}
	call(t, tr, "quiet.test", 1)
	call(t, tr, "busy.test", 2)
	page := serve(t, throttledebug.Handler(map[string]*throttle.Transport{"api": tr}))
	tab := open(t, "405 (Method Not Allowed)")
	visit(t, tab, page)
	if rows := table(t, tab); len(rows) != 2 || rows[0][1] != "busy.test" || rows[0][5] != "2" || rows[1][1] != "quiet.test" {
		t.Fatalf("%q", rows)
	}
	if !eval[bool](t, tab, `document.getElementById("chosen").hidden && document.querySelectorAll("canvas").length === 0`) {
		t.Error("details without a chosen key")
	}

	do(t, tab, chromedp.Evaluate(`document.querySelector("#keys tbody tr a").click()`, nil))
	until(t, tab, `document.querySelectorAll("#charts canvas").length === 4`)
	until(t, tab, `document.querySelector("#chosen-key").textContent === "busy.test"`)
	if address := eval[string](t, tab, `location.search`); address != "?key=busy.test&name=api" {
		t.Errorf("the address says %s", address)
	}
	until(t, tab, limits+` === "limit | 1,000,000 in 1 d | 999,998 of 1,000,000 | 0 % | – | –"`)
	from := eval[int](t, tab, ticks)
	until(t, tab, fmt.Sprintf(`%s >= %d`, ticks, from+3))
	if n := eval[int](t, tab, high("chart-calls")); n != 0 {
		t.Errorf("without traffic %d pixels of the chart are high", n)
	}
	if n := eval[int](t, tab, high("chart-line")); n != 0 {
		t.Errorf("without waiting calls %d pixels of the chart are high", n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	workers.Go(func() {
		for ctx.Err() == nil {
			try(ctx, tr, "busy.test")
			time.Sleep(5 * time.Millisecond)
		}
	})
	until(t, tab, high("chart-calls")+` > 0`)
	until(t, tab, `Number(document.querySelector("#keys tbody tr").cells[5].textContent.replaceAll(",", "")) > 2`)
	until(t, tab, limits+`.includes(" of 1,000,000") && !`+limits+`.includes("999,998")`)
	tr.Pause("busy.test", time.Hour)
	until(t, tab, high("chart-line")+` > 0`)
	until(t, tab, `document.querySelector("#why").textContent.includes("gate:paused")`)
	until(t, tab, `document.querySelector("#keys tbody tr td.gate").textContent.startsWith("paused, ")`)
	if eval[bool](t, tab, `Boolean(document.querySelector("form[method=post], #pause, #resume"))`) {
		t.Error("a read-only page has buttons")
	}
	var status int
	do(t, tab, chromedp.Evaluate(`fetch("pause", {method: "POST", body: new URLSearchParams({name: "api", key: "quiet.test"})}).then((r) => r.status)`, &status, awaited))
	if status != http.StatusMethodNotAllowed {
		t.Errorf("POST to a read-only page: %d", status)
	}
	tr.Resume("busy.test")
	until(t, tab, `document.querySelector("#keys tbody tr td.gate").textContent === "open"`)
}

// The page says that a configured limit is too high, at the key for which it is.
func TestTooHigh(t *testing.T) {
	up := throttletest.NewServer(throttletest.Limit{N: 50, Burst: 5})
	tr := &throttle.Transport{Base: up, Key: byHeader, LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(100, 1) }}
	page := serve(t, throttledebug.Handler(map[string]*throttle.Transport{"api": tr}))
	call(t, tr, "right.test", 1)
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				try(ctx, tr, "high.test")
			}
		})
	}
	tab := open(t)
	visit(t, tab, page+"?name=api&key=high.test")
	until(t, tab, `/^You configured 100\/s; .*\/s are accepted\.$/.test(document.querySelector("#too-high").textContent) && document.querySelector("#too-high").offsetHeight > 0`)
	do(t, tab, chromedp.Evaluate(`[...document.querySelectorAll("#keys tbody a")].find((a) => a.textContent === "right.test").click()`, nil))
	until(t, tab, `document.querySelector("#chosen-key").textContent === "right.test"`)
	if !eval[bool](t, tab, `document.querySelector("#too-high").hidden`) {
		t.Errorf("of a limit that is right the page says %q", text(t, tab, "#too-high"))
	}
}

// Buttons pause and resume the chosen key, where they are enabled, and another site cannot press them.
func TestControls(t *testing.T) {
	tr := &throttle.Transport{Base: new(upstream), Key: byHeader}
	call(t, tr, "api.test", 1)
	call(t, tr, "other.test", 1)
	var mu sync.Mutex
	var posts []int // the statuses of answers to POST
	controls := throttledebug.Controls(map[string]*throttle.Transport{"api": tr})
	page := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			controls.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		controls.ServeHTTP(rec, r)
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes())
		mu.Lock()
		defer mu.Unlock()
		posts = append(posts, rec.Code)
	}))
	tab := open(t, "403", "ERR_BLOCKED_BY_RESPONSE", "ERR_FAILED", "CORS policy", "frame-ancestors", "favicon.ico") // of the other site
	visit(t, tab, page+"?name=api&key=api.test")
	do(t, tab, chromedp.SetValue(`#pause select`, "600"), chromedp.Click(`#pause button`))
	until(t, tab, `document.querySelector("#why").textContent.includes("paused")`)
	if s := stats(tr, "api.test"); s.Reason != "gate:paused" || s.ClosedFor > 10*time.Minute || s.ClosedFor < 5*time.Minute {
		t.Errorf("%q for %v, want paused for 10 minutes", s.Reason, s.ClosedFor)
	}
	if s := stats(tr, "other.test"); s.Reason != "" {
		t.Errorf("the other key is %s", s.Reason)
	}
	if answer := text(t, tab, "#answer"); answer != "" {
		t.Errorf("the page says %q", answer)
	}
	do(t, tab, chromedp.Click(`#resume button`))
	until(t, tab, `document.querySelector("#why").textContent === "Nobody waits."`)

	// Another site: the same host, but another port, which is another origin.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%spause"><input name="name" value="api"><input name="key" value="api.test"><button>win a prize</button></form>
			<img src="%[1]sicon.svg" id="picture"><iframe src="%[1]s"></iframe>`, page)
	}))
	defer other.Close()
	do(t, tab, chromedp.Navigate(strings.Replace(other.URL, "127.0.0.1", "localhost", 1)))
	for _, attempt := range []string{
		`fetch("%sstate.json").then(() => "read", () => "refused")`,
		`fetch("%sevents", {mode: "no-cors"}).then((r) => r.type + r.status, () => "refused")`,
		`fetch("%spause", {method: "POST", mode: "no-cors", body: new URLSearchParams({name: "api", key: "api.test"})}).then((r) => r.type + r.status, () => "refused")`,
	} {
		var got string
		do(t, tab, chromedp.Evaluate(fmt.Sprintf(attempt, page), &got, awaited))
		if got != "refused" {
			t.Errorf("%.20s: %s", attempt, got)
		}
	}
	if eval[bool](t, tab, `document.getElementById("picture").naturalWidth > 0`) {
		t.Error("another site shows the icon")
	}
	if s := stats(tr, "api.test"); s.Reason != "" {
		t.Errorf("another site has paused the key: %s", s.Reason)
	}
	do(t, tab, chromedp.Click("button"))
	until(t, tab, `document.body.innerText.includes("does not answer requests of other origins")`)
	if s := stats(tr, "api.test"); s.Reason != "" {
		t.Errorf("a form of another site has paused the key: %s", s.Reason)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []int{303, 303, 403, 403}; !slices.Equal(posts, want) {
		t.Errorf("answers to POST: %v, want %v", posts, want)
	}
}

// Keys are text, whatever is in them, in the table and in the details.
func TestHostileKeys(t *testing.T) {
	tr := &throttle.Transport{Base: new(upstream), Key: byHeader}
	hostile := map[string]string{
		`<script>pwned=1</script>`:        `<script>pwned=1</script>`,
		`<img src=x onerror="pwned=1">`:   `<img src=x onerror=\"pwned=1\">`,
		"line\nbreak":                     `line\nbreak`,
		strings.Repeat("שלום", 32):        strings.Repeat("שלום", 32),
		"\u202egnp.evil":                  `\u202egnp.evil`,
		"javascript:pwned=1":              "javascript:pwned=1",
		"a&b=c#d?e/../%2e+f":              "a&b=c#d?e/../%2e+f",
		"\xff":                            `\xff`,
		"</td></tr></table><h1>gone</h1>": "</td></tr></table><h1>gone</h1>",
		"__proto__":                       "__proto__",
	}
	for key := range hostile {
		call(t, tr, key, 1)
	}
	page := serve(t, throttledebug.Controls(map[string]*throttle.Transport{`"><script>pwned=1</script>`: tr, "nil": nil}))
	tab := open(t)
	visit(t, tab, page)
	rows := table(t, tab)
	if len(rows) != len(hostile) {
		t.Errorf("%d rows", len(rows))
	}
	for key, shown := range hostile {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[1] == shown && row[0] == `\"><script>pwned=1</script>` }) {
			t.Errorf("%q is not in the table as %s: %q", key, shown, rows)
		}
	}
	for i := range rows {
		do(t, tab, chromedp.Evaluate(fmt.Sprintf(`document.querySelectorAll("#keys tbody tr a")[%d].click()`, i), nil))
		until(t, tab, fmt.Sprintf(`document.querySelector("#chosen-key").textContent === %q && document.querySelector("#why").textContent === "Nobody waits."`, rows[i][1]))
	}
	if eval[bool](t, tab, `"pwned" in window || document.querySelectorAll("h1").length !== 1`) {
		t.Error("a key was run or taken for HTML")
	}
	// The long key and the one from right to left do not push the others out of sight.
	if wide := eval[bool](t, tab, `document.documentElement.scrollWidth > innerWidth`); wide {
		t.Error("the page is wider than the window")
	}
	if problem := text(t, tab, ".problem"); problem != `The Transport "nil" is nil.` {
		t.Errorf("it says %q", problem)
	}
}

// A page that cannot have a stream says so, has its table all the same, and is live as soon as it can. A connection that
// breaks comes back.
func TestReconnect(t *testing.T) {
	tr := &throttle.Transport{Base: new(upstream), Key: byHeader}
	call(t, tr, "api.test", 1)
	server := httptest.NewServer(throttledebug.Handler(map[string]*throttle.Transport{"api": tr}))
	defer server.Close()
	defer server.CloseClientConnections()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 8 {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events", nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	tab := open(t, "503 (Service Unavailable)", "ERR_")
	do(t, tab, chromedp.Navigate(server.URL))
	until(t, tab, `document.querySelector("#live").textContent.includes("too many pages are open")`)
	if rows := table(t, tab); len(rows) != 1 || rows[0][1] != "api.test" || eval[bool](t, tab, ticks+` > 0`) {
		t.Errorf("%q", rows)
	}
	leave()
	until(t, tab, `document.querySelector("#live").textContent === "live"`)
	call(t, tr, "api.test", 1)
	until(t, tab, `document.querySelector("#keys tbody tr").cells[5].textContent === "2"`)
	server.CloseClientConnections()
	call(t, tr, "api.test", 1)
	until(t, tab, `document.querySelector("#keys tbody tr").cells[5].textContent === "3"`)
}

// 10,000 keys: a hundred are in view, sorted and searched as asked, by the script and without.
func TestManyKeys(t *testing.T) {
	tr := &throttle.Transport{Base: new(upstream), Key: byHeader}
	for i := range 10000 {
		call(t, tr, fmt.Sprintf("host-%05d.test", i), 1)
	}
	call(t, tr, "host-07777.test", 4)
	page := serve(t, throttledebug.Handler(map[string]*throttle.Transport{"api": tr}))
	tab := open(t)
	visit(t, tab, page)
	if got := text(t, tab, "#range"); got != "1 to 100 of 10,000" || len(table(t, tab)) != 100 {
		t.Errorf("%s in %d rows", got, len(table(t, tab)))
	}
	do(t, tab, chromedp.Click(`th.sent a`))
	until(t, tab, `document.querySelector("#keys tbody tr").cells[1].textContent === "host-07777.test"`)
	do(t, tab, chromedp.Click(`th.key a`))
	until(t, tab, `document.querySelector("#keys tbody tr").cells[1].textContent === "host-00000.test"`)
	do(t, tab, chromedp.Click(`th.key a`))
	until(t, tab, `document.querySelector("#keys tbody tr").cells[1].textContent === "host-09999.test"`)
	if got := eval[string](t, tab, `document.querySelector("th.key").getAttribute("aria-sort")`); got != "descending" {
		t.Error(got)
	}
	do(t, tab, chromedp.Click(`#after`))
	until(t, tab, `document.querySelector("#range").textContent === "101 to 200 of 10,000"`)
	do(t, tab, chromedp.SendKeys(`#search input[type=search]`, "HOST-0123"))
	until(t, tab, `document.querySelector("#range").textContent === "1 to 10 of 10"`)
	if rows := table(t, tab); len(rows) != 10 || rows[0][1] != "host-01239.test" {
		t.Errorf("%q", rows)
	}
	do(t, tab, chromedp.NavigateBack())
	until(t, tab, ticks+` >= 1`)

	// Without script the same links and the form do it.
	do(t, tab, emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(page))
	do(t, tab, chromedp.Click(`th.sent a`))
	wait := func(selector string) { do(t, tab, chromedp.WaitVisible(selector, chromedp.ByQuery)) }
	wait(`th.sent[aria-sort=descending]`)
	do(t, tab, chromedp.SendKeys(`#search input[type=search]`, "07777\r"))
	wait(`input[value="07777"]`)
	do(t, tab, chromedp.Click(`#keys tbody a`))
	wait(`#chosen #facts`)
	var facts, key string
	do(t, tab, chromedp.Text(`#facts`, &facts), chromedp.Text(`#chosen-key`, &key))
	if key != "host-07777.test" || !strings.Contains(strings.Join(strings.Fields(facts), " "), "Sent 5") {
		t.Errorf("%s: %q", key, facts)
	}
}
