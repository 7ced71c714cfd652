package hint

import "time"

// vendors are the rows for hosts whose fields do not follow the name pattern, or
// tell less than their documentation. It is never written to.
//
// Most vendors need no row. The pattern reads GitHub, GitLab, Discord, Okta, X,
// Reddit, OpenAI, Anthropic, Linear, Zendesk, Vimeo, Twitch, Intercom, Mastodon,
// Bluesky and the proxies Kong, Envoy and Traefik; Slack, Notion and Stripe tell
// Retry-After alone.
var vendors = []Dialect{
	// shopify.dev/docs/api/admin-rest/usage/rate-limits: used/size of a leaky bucket
	{Host: "*.myshopify.com", Used: "X-Shopify-Shop-Api-Call-Limit"},

	// Salesforce REST API Developer Guide, Limit Info Header: used/limit in 24 h
	{Host: "*.salesforce.com", Used: "Sforce-Limit-Info", Window: day},

	// developers.strava.com/docs/rate-limits: 15 minutes, day
	{Host: "www.strava.com", Limit: "X-Ratelimit-Limit", Used: "X-Ratelimit-Usage", Window: 15 * time.Minute},
	{Host: "www.strava.com", Limit: "X-Ratelimit-Limit", Used: "X-Ratelimit-Usage", Window: day, Index: 1},
	{Host: "www.strava.com", Limit: "X-Readratelimit-Limit", Used: "X-Readratelimit-Usage", Window: 15 * time.Minute, Name: "read"},
	{Host: "www.strava.com", Limit: "X-Readratelimit-Limit", Used: "X-Readratelimit-Usage", Window: day, Index: 1, Name: "read"},

	// developers.hubspot.com/docs, API usage guidelines. Interval is the window.
	{Host: "api.hubapi.com", Limit: "X-Hubspot-Ratelimit-Max", Remaining: "X-Hubspot-Ratelimit-Remaining",
		Period: "X-Hubspot-Ratelimit-Interval-Milliseconds", Scale: time.Millisecond},
	{Host: "api.hubapi.com", Limit: "X-Hubspot-Ratelimit-Daily", Remaining: "X-Hubspot-Ratelimit-Daily-Remaining", Window: day},

	// docs.datadoghq.com/api/latest/rate-limits: seconds
	{Host: "*.datadoghq.com", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining",
		Reset: "X-Ratelimit-Reset", Period: "X-Ratelimit-Period", NamedBy: "X-Ratelimit-Name", Scale: time.Second},
	{Host: "*.datadoghq.eu", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining",
		Reset: "X-Ratelimit-Reset", Period: "X-Ratelimit-Period", NamedBy: "X-Ratelimit-Name", Scale: time.Second},

	// learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling:
	// the last words name the quota
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Reads", Name: "subscription-reads"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Writes", Name: "subscription-writes"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Deletes", Name: "subscription-deletes"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Tenant-Reads", Name: "tenant-reads"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Tenant-Writes", Name: "tenant-writes"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Resource-Requests", Name: "subscription-resource-requests"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Tenant-Resource-Requests", Name: "tenant-resource-requests"},

	// developer-docs.amazon.com/sp-api, usage plans and rate limits: requests per second
	{Host: "sellingpartnerapi-*.amazon.com", Rate: "X-Amzn-Ratelimit-Limit", Unit: "requests"},

	// developer.riotgames.com/docs/portal: n:seconds lists
	{Host: "*.api.riotgames.com", Limit: "X-App-Rate-Limit", Used: "X-App-Rate-Limit-Count", Name: "app"},
	{Host: "*.api.riotgames.com", Limit: "X-App-Rate-Limit", Used: "X-App-Rate-Limit-Count", Name: "app", Index: 1},
	{Host: "*.api.riotgames.com", Limit: "X-Method-Rate-Limit", Used: "X-Method-Rate-Limit-Count", Name: "method"},

	// developer.atlassian.com/cloud/trello/guides/rest-api/rate-limits
	{Host: "api.trello.com", Limit: "X-Rate-Limit-Api-Key-Max", Remaining: "X-Rate-Limit-Api-Key-Remaining",
		Period: "X-Rate-Limit-Api-Key-Interval-Ms", Scale: time.Millisecond, Name: "api-key"},
	{Host: "api.trello.com", Limit: "X-Rate-Limit-Api-Token-Max", Remaining: "X-Rate-Limit-Api-Token-Remaining",
		Period: "X-Rate-Limit-Api-Token-Interval-Ms", Scale: time.Millisecond, Name: "api-token"},

	// developers.etsy.com/documentation/essentials/rate-limits
	{Host: "*.etsy.com", Limit: "X-Limit-Per-Second", Remaining: "X-Remaining-This-Second", Window: time.Second},
	{Host: "*.etsy.com", Limit: "X-Limit-Per-Day", Remaining: "X-Remaining-Today", Window: day},

	// kucoin.com/docs/basic-info/request-rate-limit: reset is a span in milliseconds
	{Host: "*.kucoin.com", Limit: "Gw-Ratelimit-Limit", Remaining: "Gw-Ratelimit-Remaining",
		Reset: "Gw-Ratelimit-Reset", Scale: time.Millisecond},

	// linear.app/developers/rate-limiting: refuses with 400
	{Host: "api.linear.app", Refusal: 400},
}
