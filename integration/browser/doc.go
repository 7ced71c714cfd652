// Package browser holds the tests of the page of throttledebug in a real browser: Chromium, driven by chromedp. It is a
// module of its own, outside the workspace, because of what a browser's driver needs; .ci/run tests it. Without
// Chromium its tests skip, unless THROTTLE_REQUIRE_SERVERS is 1. With THROTTLE_SCREENSHOTS=DIR they leave pictures of
// the page in DIR, to look at:
//
//	cd integration/browser && GOWORK=off THROTTLE_SCREENSHOTS=shots go test -run TestScreenshots .
//
// The tests wait for what the page shows and for nothing else, so they pass on a slow machine, only later.
package browser
