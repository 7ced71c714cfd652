// Graphql asks a shop of Shopify's many questions of different cost, with and without throttle, against a fake of Shopify's
// GraphQL API, and prints a table of both.
//
// Run it from the root of the repository:
//
//	go run ./examples/graphql
//
// The fake counts points: a bucket of 1,000, into which 500 come back a second. Each answer has status 200 and says in its
// body how many are left, also one that refuses, with the error THROTTLED. Package hint reads that, so with the zero
// throttle.Transport queries wait until the points are there, and refused ones are sent again.
//
// Flags:
//
//	-brief  fewer calls
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-throttle/throttle/examples/internal/sides"
	"github.com/go-throttle/throttle/throttletest"
)

// The bucket of the fake, in points, and what comes back in a second. A query costs 20 to 60, 40 on average.
const size, restored, average = 1000, 500, 40

func main() {
	sides.Main("graphql", "Graphql asks a shop of Shopify's, with and without throttle.", story)
}

// story is the run: 150 queries, or with brief 75.
func story(brief bool) sides.Story {
	n := 150
	if brief {
		n = 75
	}
	ideal := time.Duration(n*average-size) * time.Second / restored
	return sides.Story{Calls: n, Workers: 12, Ideal: ideal, Fake: fake, User: products}
}

// ask is the text of the i-th query, and cost what a request costs.
func ask(i int) string {
	return fmt.Sprintf("{ products(first: %d) { nodes { id } } }", average+20*(i%3-1))
}

func cost(r *http.Request) (points int) {
	text, err := io.ReadAll(r.Body)
	if _, rest, found := strings.Cut(string(text), "first: "); err == nil && found {
		if _, err := fmt.Sscanf(rest, "%d", &points); err == nil {
			return points
		}
	}
	return 1
}

// fake is Shopify: a Server that counts points, and front before it, which writes its answers.
func fake() sides.Fake {
	s := throttletest.NewServer(throttletest.Limit{N: restored, Burst: size, Cost: cost})
	s.Latency = throttletest.Span{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}
	s.Advertise.Dialect = func(h http.Header, states []throttletest.State, _ time.Time) {
		h.Set("Points", fmt.Sprint(states[0].Remaining))
	}
	return sides.Fake{Server: s, Front: front}
}

// front makes of each answer a 200 whose body says what there is to say.
func front(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	copied := req.WithContext(req.Context())
	copied.Body = io.NopCloser(bytes.NewReader(text))
	resp, err := base.RoundTrip(copied)
	if err != nil {
		return nil, err
	}
	what := `"data": {"products": {"nodes": []}}`
	if resp.StatusCode != http.StatusOK {
		what = `"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]`
	}
	copied.Body = io.NopCloser(bytes.NewReader(text))
	body := fmt.Sprintf(`{%s, "extensions": {"cost": {"requestedQueryCost": %d, "throttleStatus": {"maximumAvailable": %d, "currentlyAvailable": %s, "restoreRate": %d}}}}`,
		what, cost(copied), size, resp.Header.Get("Points"), restored)
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Header = http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	resp.Body, resp.ContentLength, resp.Request = io.NopCloser(strings.NewReader(body)), int64(len(body)), req
	return resp, nil
}
