package browser

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttledebug"
)

// TestScreenshots leaves pictures for somebody to look at. It has something to look at: traffic of ten seconds with a
// pause in it.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("THROTTLE_SCREENSHOTS")
	if dir == "" {
		t.Skip("THROTTLE_SCREENSHOTS names no directory")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	up := new(upstream)
	tr := &throttle.Transport{Base: up, Key: byHeader, LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(20, 10) }}
	for i := range 240 {
		call(t, tr, fmt.Sprintf("host-%03d.example.com", i), 1+i%7)
	}
	up.set(200, http.Header{"Ratelimit": {`"day";r=4180;t=3600, "minute";r=55;t=30`}, "Ratelimit-Policy": {`"day";q=5000;w=86400, "minute";q=100;w=60`}})
	tr.Pause("payments.example.com", 95*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	for i := range 6 {
		workers.Go(func() {
			flow := throttle.WithFlow(ctx, []string{"invoices", "mails", "sync"}[i%3])
			for ctx.Err() == nil {
				try(flow, tr, "api.example.com")
			}
		})
	}
	for range 3 {
		workers.Go(func() { try(ctx, tr, "payments.example.com") })
	}
	page := serve(t, throttledebug.Controls(map[string]*throttle.Transport{"billing": tr, "search": {Base: up}}))
	tab := open(t)
	do(t, tab, chromedp.EmulateViewport(1280, 1000))
	visit(t, tab, page+"?name=billing&key=api.example.com")
	ticks := func(n int) { until(t, tab, fmt.Sprintf(`Number(document.documentElement.dataset.ticks) >= %d`, n)) }
	ticks(5)
	tr.Pause("api.example.com", 2*time.Second)
	ticks(12)
	scheme := func(name string) chromedp.Action {
		return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}})
	}
	shoot := func(name string) {
		var png []byte
		do(t, tab, chromedp.CaptureScreenshot(&png))
		if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	do(t, tab, scheme("light"))
	ticks(14)
	shoot("light")
	do(t, tab, scheme("dark"))
	ticks(16)
	shoot("dark")
	do(t, tab, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	ticks(18)
	shoot("phone-dark")
	if wide := eval[int](t, tab, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("the page is %d wide on a phone of 390", wide)
	}
	do(t, tab, scheme("light"), chromedp.Click("#close"), chromedp.Sleep(0))
	until(t, tab, `document.getElementById("chosen").hidden`)
	shoot("phone-light")
	do(t, tab, chromedp.EmulateViewport(1280, 1000))
	until(t, tab, `innerWidth === 1280`)
	shoot("table")
	if got := eval[string](t, tab, `document.getElementById("totals").textContent`); !strings.Contains(got, "242 keys") {
		t.Error(got)
	}
}
