package lab_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// This file has long windows whose end no answer says, as upstreams write them.

// An endless quota is advertised by fields whose values hold %L, the limit, %R, what remains, and %U, what is used.
type endless struct {
	host   string // "": any
	limit  int
	window time.Duration
	fields string // name: value, one a line
}

const day = 24 * time.Hour

var endlessQuotas = []endless{
	// docs.docker.com/docker-hub/usage/pulls: 100 in six hours
	{"registry-1.docker.io", 100, 6 * time.Hour, "Ratelimit-Limit: %L;w=21600\nRatelimit-Remaining: %R;w=21600"},
	// docs.konghq.com/hub/kong-inc/rate-limiting, Headers sent to the client
	{"", 1000, time.Hour, "X-RateLimit-Limit-Hour: %L\nX-RateLimit-Remaining-Hour: %R"},
	{"", 10000, day, "X-RateLimit-Limit-Day: %L\nX-RateLimit-Remaining-Day: %R"},
	{"", 100000, 30 * day, "X-RateLimit-Limit-Month: %L\nX-RateLimit-Remaining-Month: %R"},
	{"", 100, time.Minute, "X-RateLimit-Limit-Minute: %L\nX-RateLimit-Remaining-Minute: %R"},
	// the same page, if more than one limit is set
	{"", 10000, day, "X-RateLimit-Limit-Second: 500\nX-RateLimit-Remaining-Second: 499\nX-RateLimit-Limit-Day: %L\nX-RateLimit-Remaining-Day: %R"},
	// docs.konghq.com, rate-limiting-advanced: another window is a number of seconds
	{"", 200, 300 * time.Second, "X-RateLimit-Limit-300: %L\nX-RateLimit-Remaining-300: %R"},
	// developers.strava.com/docs/rate-limits: a quarter of an hour and a day
	{"www.strava.com", 100, 15 * time.Minute, "X-RateLimit-Limit: %L,1000\nX-RateLimit-Usage: %U,%U"},
	{"www.strava.com", 1000, day, "X-RateLimit-Limit: 5000,%L\nX-RateLimit-Usage: %U,%U"},
	{"www.strava.com", 100, 15 * time.Minute, "X-ReadRateLimit-Limit: %L,1000\nX-ReadRateLimit-Usage: %U,%U"},
	// developers.etsy.com/documentation/essentials/rate-limits: any 24 hours
	{"openapi.etsy.com", 10000, day, "X-Limit-Per-Day: %L\nX-Remaining-Today: %R"},
	{"openapi.etsy.com", 10000, day, "X-Limit-Per-Second: 150\nX-Remaining-This-Second: 149\nX-Limit-Per-Day: %L\nX-Remaining-Today: %R"},
	// developer.salesforce.com, REST API Developer Guide, Limit Info Header
	{"a.my.salesforce.com", 100000, day, "Sforce-Limit-Info: api-usage=%U/%L"},
	{"a.my.salesforce.com", 15000, day, "Sforce-Limit-Info: api-usage=%U/%L; per-app-api-usage=17/250(appName=a)"},
	// developers.hubspot.com/docs/api/usage-details, and with the ten seconds beside it
	{"api.hubapi.com", 250000, day, "X-HubSpot-RateLimit-Daily: %L\nX-HubSpot-RateLimit-Daily-Remaining: %R"},
	{"api.hubapi.com", 250000, day, "X-HubSpot-RateLimit-Daily: %L\nX-HubSpot-RateLimit-Daily-Remaining: %R\nX-HubSpot-RateLimit-Max: 1900\nX-HubSpot-RateLimit-Remaining: 1880\nX-HubSpot-RateLimit-Interval-Milliseconds: 10000"},
	// draft-ietf-httpapi-ratelimit-headers-08 and later, 3.1.3: t is optional
	{"", 10000, day, "RateLimit-Policy: \"daily\";q=%L;w=86400\nRateLimit: \"daily\";r=%R"},
	{"", 10000, day, "RateLimit-Policy: \"burst\";q=500;w=1, \"daily\";q=%L;w=86400\nRateLimit: \"burst\";r=400, \"daily\";r=%R"},
	{"", 100000, day, "RateLimit-Policy: \"t\";q=%L;w=86400;qu=\"content-bytes\"\nRateLimit: \"t\";r=%R"},
	// draft 07, 2.2: a policy alone, in a list
	{"", 1000, time.Hour, "RateLimit-Policy: 500;w=1, %L;w=3600"},
	// draft 06: the reset is required, and left out by some; 03: policies in RateLimit-Limit
	{"", 5000, time.Hour, "RateLimit-Limit: %L\nRateLimit-Remaining: %R\nRateLimit-Policy: %L;w=3600"},
	{"", 5000, time.Hour, "RateLimit-Limit: %L, %L;w=3600\nRateLimit-Remaining: %R"},
	// developer.whoop.com/docs/developing/rate-limiting: what remains and the reset are the minute's
	{"api.prod.whoop.com", 10000, day, "X-RateLimit-Limit: 100, 100;window=60, %L;window=86400\nX-RateLimit-Remaining: 98\nX-RateLimit-Reset: 3"},
	// draft-polli-ratelimit-headers-00 has the same form, and no reset in some answers
	{"", 1000, time.Hour, "X-RateLimit-Limit: %L, %L;window=3600\nX-RateLimit-Remaining: %R"},
	// developers.klaviyo.com/en/docs/rate_limits_and_error_handling: the minute is a policy alone
	{"a.klaviyo.com", 150, time.Minute, "RateLimit-Limit: 50, 50;w=1, %L;w=60\nRateLimit-Remaining: 49\nRateLimit-Reset: 1"},
	// github.com/mistralai/client-ts/issues/169
	{"api.mistral.ai", 720, time.Minute, "x-ratelimit-limit-req-minute: %L\nx-ratelimit-remaining-req-minute: %R\nx-ratelimit-limit-tokens-minute: 5000000\nx-ratelimit-remaining-tokens-minute: 4999911"},
	{"api.mistral.ai", 100000, 30 * day, "x-ratelimit-limit-req-month: %L\nx-ratelimit-remaining-req-month: %R"},
	// contentful.com/developers/docs/references/content-management-api: the reset is the second's
	{"api.contentful.com", 36000, time.Hour, "X-Contentful-RateLimit-Hour-Limit: %L\nX-Contentful-RateLimit-Hour-Remaining: %R"},
	// developer.xero.com/documentation/guides/oauth2/limits: no limit, only what remains
	{"api.xero.com", 5000, day, "X-DayLimit-Remaining: %R"},
	// marketplace.gohighlevel.com/docs/other/rate-limits
	{"services.leadconnectorhq.com", 200000, day, "X-RateLimit-Limit-Daily: %L\nX-RateLimit-Daily-Remaining: %R"},
	// apidocs.imgur.com, Rate Limits
	{"api.imgur.com", 12500, day, "X-RateLimit-ClientLimit: %L\nX-RateLimit-ClientRemaining: %R"},
	// help.sap.com, Tracking Your API Usage; docs.tomorrow.io/reference/rate-limiting
	{"", 300, day, "X-RateLimit-Limit-day: %L\nX-RateLimit-Remaining-day: %R\nX-RateLimit-Limit-second: 500\nX-RateLimit-Remaining-second: 499"},
	// learning.postman.com/docs/developer/postman-api/postman-api-rate-limits
	{"api.getpostman.com", 10000, 30 * day, "RateLimit-Limit-Month: %L\nRateLimit-Remaining-Month: %R"},
	// pipedrive.readme.io/docs/core-api-concepts-rate-limiting: tokens of a day. The fields are in clients' code only
	{"api.pipedrive.com", 150000, day, "x-daily-ratelimit-token-limit: %L\nx-daily-ratelimit-token-remaining: %R"},
	// the API of 42, as many clients of api.intra.42.fr read it: 1,200 an hour; the window stands before the pattern
	{"api.intra.42.fr", 1200, time.Hour, "X-Hourly-RateLimit-Limit: %L\nX-Hourly-RateLimit-Remaining: %R"},
	// Open Targets' first REST API, in its source (CTTVResponse), without its reset. The four below are in the source of small services, of
	// which no documentation is known
	{"", 1000, time.Hour, "X-RateLimit-Limit-1h: %L\nX-RateLimit-Remaining-1h: %R"},
	{"", 100, 15 * time.Minute, "X-RateLimit-Limit-15m: %L\nX-RateLimit-Remaining-15m: %R"},
	{"", 100, day, "X-RateLimit-Limit-24h: %L\nX-RateLimit-Remaining-24h: %R"},
	{"", 700, 7 * day, "X-RateLimit-Limit-7d: %L\nX-RateLimit-Remaining-7d: %R"},
	{"", 100, 5 * time.Minute, "X-RateLimit-Limit-5min: %L\nX-RateLimit-Remaining-5min: %R"},
	// in the source of a gateway without documentation: X-Rate-Limit-Daily is the limit
	{"", 10000, day, "X-Rate-Limit-Daily: %L\nX-Rate-Limit-Remaining-Daily: %R"},
	// docs.urlscan.io/pages/api-rate-limits, without its reset: the window is a word
	{"urlscan.io", 1000, day, "X-Rate-Limit-Scope: user\nX-Rate-Limit-Window: day\nX-Rate-Limit-Limit: %L\nX-Rate-Limit-Remaining: %R"},
	// docs.composio.dev/reference/rate-limits
	{"backend.composio.dev", 20000, 10 * time.Minute, "X-RateLimit: %L\nX-RateLimit-Remaining: %R\nX-RateLimit-Window-Size: 600s"},
	// docs.datadoghq.com/api/latest/rate-limits, without its reset
	{"api.datadoghq.com", 300, time.Hour, "X-RateLimit-Limit: %L\nX-RateLimit-Remaining: %R\nX-RateLimit-Period: 3600"},
	// api.data.gov/docs/rate-limits, developer.nrel.gov/docs/rate-limits
	{"api.nasa.gov", 1000, time.Hour, "X-RateLimit-Limit: %L\nX-RateLimit-Remaining: %R"},
	{"developer.nrel.gov", 1000, time.Hour, "X-RateLimit-Limit: %L\nX-RateLimit-Remaining: %R"},
	// unsplash.com/documentation, and github.com/hbagdi/go-unsplash/issues/1: no time to resume
	{"api.unsplash.com", 5000, time.Hour, "X-Ratelimit-Limit: %L\nX-Ratelimit-Remaining: %R"},
	// docs.foursquare.com/developer/reference/v2-rate-limits
	{"api.foursquare.com", 500, time.Hour, "X-RateLimit-Limit: %L\nX-RateLimit-Remaining: %R"},
	// support.atlassian.com/bitbucket-cloud/docs/api-request-limits: the limit alone
	{"api.bitbucket.org", 1000, time.Hour, "X-RateLimit-Limit: %L\nX-RateLimit-Resource: api\nX-RateLimit-NearLimit: false"},
	// devcenter.heroku.com/articles/platform-api-reference, Rate limits
	{"api.heroku.com", 4500, time.Hour, "RateLimit-Remaining: %R"},
	// docs.abuseipdb.com, API Daily Rate Limits
	{"api.abuseipdb.com", 1000, day, "X-RateLimit-Limit: %L\nX-RateLimit-Remaining: %R"},
	// openskynetwork.github.io/opensky-api/rest.html
	{"opensky-network.org", 4000, day, "X-Rate-Limit-Remaining: %R"},
	// api-football.com/documentation-v3, Rate limit
	{"v3.football.api-sports.io", 7500, day, "x-ratelimit-requests-limit: %L\nx-ratelimit-requests-remaining: %R\nX-RateLimit-Limit: 300\nX-RateLimit-Remaining: 299"},
	// developers.docusign.com/platform/resource-limits
	{"demo.docusign.net", 200, 30 * time.Second, "X-BurstLimit-Limit: %L\nX-BurstLimit-Remaining: %R"},
	// discogs.com/developers, Rate Limiting
	{"api.discogs.com", 100, time.Minute, "X-Discogs-Ratelimit: %L\nX-Discogs-Ratelimit-Used: %U\nX-Discogs-Ratelimit-Remaining: %R"},
	// developers.webflow.com/data/reference/rate-limits
	{"api.webflow.com", 120, time.Minute, "X-RateLimit-Limit: %L\nX-RateLimit-Remaining: %R"},
	// docs.pyannote.ai/ratelimits: a sliding minute
	{"api.pyannote.ai", 100, time.Minute, "X-RateLimit-Limit: %L\nX-RateLimit-Remaining: %R"},
	// developers.greenhouse.io/harvest.html, Throttling
	{"harvest.greenhouse.io", 100, 10 * time.Second, "X-RateLimit-Limit: %L\nX-RateLimit-Remaining: %R"},
}

// base answers each call after 10 ms with what remains, used units having gone before the first.
func (q *endless) base(used int) http.RoundTripper {
	var n atomic.Int64
	n.Store(int64(used))
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		time.Sleep(10 * time.Millisecond)
		used := int(n.Add(1))
		var fields []string
		for _, line := range strings.Split(q.fields, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			fields = append(fields, name, strings.NewReplacer("%L", fmt.Sprint(q.limit), "%R", fmt.Sprint(q.limit-used), "%U", fmt.Sprint(used)).Replace(value))
		}
		return answer(req, http.StatusOK, fields...), nil
	})
}

// took is how long n calls take, one after the other, when so many have gone before.
func (q *endless) took(t *testing.T, used, n int, factor float64) (d time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: q.base(used), WindowFactor: factor}
		begun := time.Now()
		for range n {
			if code, err := get(t.Context(), tr, "http://"+cmp.Or(q.host, "a.test")+"/"); err != nil || code != http.StatusOK {
				t.Fatal(code, err)
			}
		}
		d = time.Since(begun)
	})
	return d
}

// A long window whose end is not advertised is used as one whose end is: at once while three quarters remain, and what is left
// of it at the end still lasts. WindowFactor 1 spaces its calls from the start.
func TestWindowWithoutReset(t *testing.T) {
	for _, q := range endlessQuotas {
		t.Run(q.host+" "+strings.Split(q.fields, "\n")[0], func(t *testing.T) {
			even := q.window / time.Duration(q.limit)
			if d := q.took(t, 0, 20, 0); d > time.Second {
				t.Errorf("20 of %d take %v, want them at once", q.limit, d)
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if served := crowd(ctx, &throttle.Transport{Base: q.base(0)}, 20, "http://"+cmp.Or(q.host, "a.test")+"/"); served != 20 {
					t.Errorf("of a batch of 20 of %d with a deadline of 2 s %d are served", q.limit, served)
				}
			})
			if d := q.took(t, 0, 20, 1); d < 18*even {
				t.Errorf("evenly spaced, 20 of %d take %v, want %v", q.limit, d, 19*even)
			}
			if strings.Contains(q.fields, "%L") && (strings.Contains(q.fields, "%R") || strings.Contains(q.fields, "%U")) {
				if d := q.took(t, q.limit*19/20, 4, 0); d < 2*19*even {
					t.Errorf("with 5 %% left 4 calls take %v, want them to last: %v", d, 3*20*even)
				}
			}
		})
	}
}
