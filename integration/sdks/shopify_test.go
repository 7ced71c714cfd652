package sdks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

func queryShopify(ctx context.Context, throttled *http.Client, shop, token, query string, data any) error {
	body, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "https://"+shop+"/admin/api/2026-07/graphql.json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Shopify-Access-Token", token)
	resp, err := throttled.Do(req) // a THROTTLED in a 200 is sent again, when the points are there
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct{ Data, Errors any }{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Errors != nil {
		return fmt.Errorf("GraphQL: %v", answer.Errors)
	}
	return nil
}

var shopify = api{
	name:   "shopify",
	stream: "{",
	// 100 points a second, and 2,000 at once. Every answer is a 200.
	fake: func() fake {
		s := throttletest.NewServer(throttletest.Limit{N: 100, Burst: 2000, Cost: func(r *http.Request) int { return shopifyCost(r.Body) }})
		s.Latency, s.Identify, s.Status = way, byBody, http.StatusTooManyRequests
		s.Advertise.Dialect = func(h http.Header, states []throttletest.State, _ time.Time) {
			h.Set("Points", fmt.Sprint(states[0].Remaining))
		}
		return fake{Server: s, front: shopifyFront(s)}
	},
	use: func(throttled *http.Client) caller {
		return func(ctx context.Context, i int) error {
			var data struct{ Products struct{ Nodes []any } }
			err := queryShopify(ctx, throttled, "a.myshopify.com", "token", fmt.Sprintf("{ products(first: %d) { nodes { id } } } # call %d", shopifyPoints(i), i), &data)
			if err == nil && data.Products.Nodes == nil {
				err = errors.New("an answer without data")
			}
			return err
		}
	},
	calls: 400, workers: 16, ideal: (400*100 - 2000) * 10 * time.Millisecond, slack: 1.3,
}

// shopifyPoints is what the i-th query costs, 100 points on average.
func shopifyPoints(i int) int { return 50 + 50*(i%3) }

// shopifyCost is what the query in a body costs.
func shopifyCost(body io.Reader) (points int) {
	b, err := io.ReadAll(body)
	if _, rest, found := strings.Cut(string(b), "first: "); err == nil && found {
		if _, err := fmt.Sscanf(rest, "%d", &points); err == nil {
			return points
		}
	}
	return 1
}

// shopifyFront makes of each answer a 200 that says in its body whether it is a refusal, and what is left.
func shopifyFront(s *throttletest.Server) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		asked, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		resp, err := s.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		what := `"data":{"products":{"nodes":[]}}`
		if resp.StatusCode != http.StatusOK {
			what = `"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]`
		}
		body := fmt.Sprintf(`{%s,"extensions":{"cost":{"requestedQueryCost":%d,"throttleStatus":{"maximumAvailable":2000.0,"currentlyAvailable":%s,"restoreRate":100.0}}}}`,
			what, shopifyCost(asked), resp.Header.Get("Points"))
		resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
		resp.Header = http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Date": resp.Header["Date"]}
		resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(body)), -1
		return resp, nil
	})
}
