package hint

import "time"

// vendors are the rows for hosts whose fields do not follow the name pattern, or say less than their
// documentation. Nothing writes to it.
//
// Most vendors need no row. The pattern reads GitHub, GitLab, Discord, Okta, X, Reddit, OpenAI, Anthropic,
// Linear, Zendesk, Vimeo, Twitch, Intercom, Mastodon, Bluesky, Datadog, Mapbox, Crossref, RingCentral, Brevo
// and the proxies Kong, Envoy and Traefik. Slack, Notion and Stripe send Retry-After alone. Dataverse asks
// clients not to steer by its fields, and Hugging Face's policies are malformed.
var vendors = []Dialect{
	// shopify.dev/docs/api/admin-rest/usage/rate-limits: used/size of a leaky bucket,
	// which leaks 2 to 20 requests per second; throttles with 429 and Retry-After
	{Host: "*.myshopify.com", Used: "X-Shopify-Shop-Api-Call-Limit"},

	// developer.salesforce.com, REST API Developer Guide, Limit Info Header: used/limit
	// of a day
	{Host: "*.salesforce.com", Used: "Sforce-Limit-Info", Window: day},

	// developers.strava.com/docs/rate-limits: lists of two, for 15 minutes and a day,
	// of all requests and of those that upload nothing
	{Host: "www.strava.com", Limit: "X-Ratelimit-Limit", Used: "X-Ratelimit-Usage", Window: 15 * time.Minute},
	{Host: "www.strava.com", Limit: "X-Ratelimit-Limit", Used: "X-Ratelimit-Usage", Window: day, Index: 1},
	{Host: "www.strava.com", Limit: "X-Readratelimit-Limit", Used: "X-Readratelimit-Usage", Window: 15 * time.Minute, Name: "read"},
	{Host: "www.strava.com", Limit: "X-Readratelimit-Limit", Used: "X-Readratelimit-Usage", Window: day, Index: 1, Name: "read"},

	// developers.hubspot.com/docs/api/usage-details, Rate limits; changelog of
	// 2018-11-06. Interval is the window. Only private apps see the day.
	{Host: "api.hubapi.com", Limit: "X-Hubspot-Ratelimit-Max", Remaining: "X-Hubspot-Ratelimit-Remaining",
		Period: "X-Hubspot-Ratelimit-Interval-Milliseconds", Scale: time.Millisecond},
	{Host: "api.hubapi.com", Limit: "X-Hubspot-Ratelimit-Daily", Remaining: "X-Hubspot-Ratelimit-Daily-Remaining", Window: day},

	// learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling,
	// Remaining requests; Global is in recorded answers. The last words name the quota.
	// The pattern would read them as its unit, and then a throttled response would be about all.
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Reads", Name: "subscription-reads"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Writes", Name: "subscription-writes"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Deletes", Name: "subscription-deletes"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Global-Reads", Name: "subscription-global-reads"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Global-Writes", Name: "subscription-global-writes"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Global-Deletes", Name: "subscription-global-deletes"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Tenant-Reads", Name: "tenant-reads"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Tenant-Writes", Name: "tenant-writes"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Resource-Requests", Name: "subscription-resource-requests"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Tenant-Resource-Requests", Name: "tenant-resource-requests"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Subscription-Resource-Entities-Read", Name: "subscription-resource-entities-read"},
	{Host: "management.azure.com", Remaining: "X-Ms-Ratelimit-Remaining-Tenant-Resource-Entities-Read", Name: "tenant-resource-entities-read"},

	// developer-docs.amazon.com/sp-api/docs/usage-plans-and-rate-limits: requests per
	// second, with a fraction; sellingpartnerapi-eu and sandbox.sellingpartnerapi-eu
	{Host: "*.amazon.com", Rate: "X-Amzn-Ratelimit-Limit", Unit: "requests"},

	// developer.riotgames.com/docs/portal, hextechdocs.dev/rate-limiting (the portal's
	// page before): lists of n:seconds, of requests allowed and of requests made
	{Host: "*.api.riotgames.com", Limit: "X-App-Rate-Limit", Used: "X-App-Rate-Limit-Count", Name: "app"},
	{Host: "*.api.riotgames.com", Limit: "X-App-Rate-Limit", Used: "X-App-Rate-Limit-Count", Name: "app", Index: 1},
	{Host: "*.api.riotgames.com", Limit: "X-Method-Rate-Limit", Used: "X-Method-Rate-Limit-Count", Name: "method"},
	{Host: "*.api.riotgames.com", Limit: "X-Method-Rate-Limit", Used: "X-Method-Rate-Limit-Count", Name: "method", Index: 1},

	// developer.atlassian.com/cloud/trello/guides/rest-api/rate-limits; the fields in
	// community.developer.atlassian.com/t/30353. Interval is the window, 10 s.
	{Host: "api.trello.com", Limit: "X-Rate-Limit-Api-Key-Max", Remaining: "X-Rate-Limit-Api-Key-Remaining",
		Period: "X-Rate-Limit-Api-Key-Interval-Ms", Scale: time.Millisecond, Name: "api-key"},
	{Host: "api.trello.com", Limit: "X-Rate-Limit-Api-Token-Max", Remaining: "X-Rate-Limit-Api-Token-Remaining",
		Period: "X-Rate-Limit-Api-Token-Interval-Ms", Scale: time.Millisecond, Name: "api-token"},

	// developers.etsy.com/documentation/essentials/rate-limits, Rate Limit Headers:
	// the day is any 24 hours; throttles with 429
	{Host: "*.etsy.com", Limit: "X-Limit-Per-Second", Remaining: "X-Remaining-This-Second", Window: time.Second},
	{Host: "*.etsy.com", Limit: "X-Limit-Per-Day", Remaining: "X-Remaining-Today", Window: day},

	// kucoin.com/docs-new/rate-limit, Request Header: weight of 30 s, for some accounts
	// of 3 s; the reset is a span in milliseconds
	{Host: "*.kucoin.com", Limit: "Gw-Ratelimit-Limit", Remaining: "Gw-Ratelimit-Remaining",
		Reset: "Gw-Ratelimit-Reset", Scale: time.Millisecond, Unit: "weight"},

	// docs.bigcommerce.com/developer/docs/overview/api-fundamentals/rate-limits: spans
	// in milliseconds
	{Host: "api.bigcommerce.com", Limit: "X-Rate-Limit-Requests-Quota", Remaining: "X-Rate-Limit-Requests-Left",
		Reset: "X-Rate-Limit-Time-Reset-Ms", Period: "X-Rate-Limit-Time-Window-Ms", Scale: time.Millisecond},

	// bybit-exchange.github.io/docs/v5/rate-limit, API Rate Limit: per second; Status is
	// what is left. The reset is a moment in milliseconds: the present one if something is
	// left. api.bytick.com is the same.
	{Host: "api.by*", Limit: "X-Bapi-Limit", Remaining: "X-Bapi-Limit-Status",
		Reset: "X-Bapi-Limit-Reset-Timestamp", Window: time.Second},

	// gate.com/docs/developers/apiv4, Rate Limit: as Bybit, but the window is documented nowhere
	{Host: "api.gateio.ws", Limit: "X-Gate-Ratelimit-Limit", Remaining: "X-Gate-Ratelimit-Requests-Remain",
		Reset: "X-Gate-Ratelimit-Reset-Timestamp"},

	// developer.xero.com/faq/limits: of one tenant, and of the app with all tenants
	{Host: "api.xero.com", Remaining: "X-Minlimit-Remaining", Window: time.Minute},
	{Host: "api.xero.com", Remaining: "X-Daylimit-Remaining", Window: day},
	{Host: "api.xero.com", Remaining: "X-Appminlimit-Remaining", Window: time.Minute, Name: "app"},

	// docs.developer.yelp.com/docs/places-rate-limiting, Daily Rate Limiting
	{Host: "api.yelp.com", Limit: "Ratelimit-Dailylimit", Remaining: "Ratelimit-Remaining",
		Reset: "Ratelimit-Resettime", Window: day},
	{Host: "api.yelp.com", Limit: "Ratelimit-Resourcedailylimit", Remaining: "Ratelimit-Resourceremaining",
		Reset: "Ratelimit-Resettime", Window: day, Name: "resource"},

	// developers.freshdesk.com/api, Rate Limit: an hour or a minute, by plan;
	// community.freshworks.dev/t/1101: of Freshservice a minute
	{Host: "*.freshdesk.com", Limit: "X-Ratelimit-Total", Remaining: "X-Ratelimit-Remaining"},
	{Host: "*.freshservice.com", Limit: "X-Ratelimit-Total", Remaining: "X-Ratelimit-Remaining", Window: time.Minute},

	// apidocs.imgur.com, Rate Limits: credits; the user's reset is a second since 1970
	{Host: "api.imgur.com", Limit: "X-Ratelimit-Userlimit", Remaining: "X-Ratelimit-Userremaining",
		Reset: "X-Ratelimit-Userreset", Name: "user", Unit: "credits"},
	{Host: "api.imgur.com", Limit: "X-Ratelimit-Clientlimit", Remaining: "X-Ratelimit-Clientremaining",
		Window: day, Name: "client", Unit: "credits"},

	// marketplace.gohighlevel.com/docs/other/rate-limits: burst and day
	{Host: "services.leadconnectorhq.com", Limit: "X-Ratelimit-Max", Remaining: "X-Ratelimit-Remaining",
		Period: "X-Ratelimit-Interval-Milliseconds", Scale: time.Millisecond},
	{Host: "services.leadconnectorhq.com", Limit: "X-Ratelimit-Limit-Daily", Remaining: "X-Ratelimit-Daily-Remaining", Window: day},

	// X, of an endpoint that has a day's limit beside the one of 15 minutes: recorded
	// answers and SDKs (docs.rs/twapi-v2, its headers); docs.x.com does not have them
	{Host: "api.x.com", Limit: "X-User-Limit-24hour-Limit", Remaining: "X-User-Limit-24hour-Remaining",
		Reset: "X-User-Limit-24hour-Reset", Window: day, Name: "user"},
	{Host: "api.x.com", Limit: "X-App-Limit-24hour-Limit", Remaining: "X-App-Limit-24hour-Remaining",
		Reset: "X-App-Limit-24hour-Reset", Window: day, Name: "app"},
	{Host: "api.twitter.com", Limit: "X-User-Limit-24hour-Limit", Remaining: "X-User-Limit-24hour-Remaining",
		Reset: "X-User-Limit-24hour-Reset", Window: day, Name: "user"},
	{Host: "api.twitter.com", Limit: "X-App-Limit-24hour-Limit", Remaining: "X-App-Limit-24hour-Remaining",
		Reset: "X-App-Limit-24hour-Reset", Window: day, Name: "app"},

	// Those below say neither when a window ends nor how long it is; their documentation does.

	// api.data.gov/docs/rate-limits: any hour, behind api.nasa.gov, api.congress.gov and others
	{Host: "api.*.gov", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Window: time.Hour},
	{Host: "developer.nrel.gov", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Window: time.Hour},

	// unsplash.com/documentation, Rate Limiting
	{Host: "api.unsplash.com", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Window: time.Hour},

	// docs.foursquare.com/developer/reference/v2-rate-limits: the reset comes with a 403 alone
	{Host: "api.foursquare.com", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Reset: "X-Ratelimit-Reset", Window: time.Hour},

	// support.atlassian.com/bitbucket-cloud/docs/api-request-limits: any hour
	{Host: "api.bitbucket.org", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Window: time.Hour},

	// devcenter.heroku.com/articles/platform-api-reference, Rate limits: 4,500 an hour
	{Host: "api.heroku.com", Remaining: "Ratelimit-Remaining", Max: 4500, Window: time.Hour},

	// docs.abuseipdb.com, API Daily Rate Limits: the reset comes with a 429 alone
	{Host: "api.abuseipdb.com", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Reset: "X-Ratelimit-Reset", Window: day},

	// openskynetwork.github.io/opensky-api/rest.html, API credit usage: of a day
	{Host: "opensky-network.org", Remaining: "X-Rate-Limit-Remaining", RetryAfter: "X-Rate-Limit-Retry-After-Seconds", Window: day, Unit: "credits"},

	// api-football.com/documentation-v3, Rate limit: a minute, and a day
	{Host: "*.api-sports.io", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Window: time.Minute},
	{Host: "*.api-sports.io", Limit: "X-Ratelimit-Requests-Limit", Remaining: "X-Ratelimit-Requests-Remaining", Window: day},

	// developers.docusign.com/platform/resource-limits: bursts, beside an hour with a reset
	{Host: "*.docusign.net", Limit: "X-Burstlimit-Limit", Remaining: "X-Burstlimit-Remaining", Window: 30 * time.Second},

	// discogs.com/developers, Rate Limiting: any minute
	{Host: "api.discogs.com", Limit: "X-Discogs-Ratelimit", Remaining: "X-Discogs-Ratelimit-Remaining", Used: "X-Discogs-Ratelimit-Used", Window: time.Minute},

	// developers.webflow.com/data/reference/rate-limits
	{Host: "api.webflow.com", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Window: time.Minute},

	// docs.pyannote.ai/ratelimits: any minute; the reset comes with a 429 alone
	{Host: "api.pyannote.ai", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Reset: "X-Ratelimit-Reset", Window: time.Minute},

	// developers.greenhouse.io/harvest.html, Throttling: the reset comes with a 429 alone
	{Host: "harvest.greenhouse.io", Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Reset: "X-Ratelimit-Reset", Window: 10 * time.Second},

	// discord.com/developers/docs/topics/rate-limits, Invalid Request Limit: Cloudflare stops an
	// address before Discord sees it, by a 429 without any of its fields; Rate Limits: the buckets
	// of a route are counted apart by its major parameter
	{Host: "*discord.com", Global: true, Majors: discordMajors},
	{Host: "*discordapp.com", Global: true, Majors: discordMajors},

	// linear.app/developers/rate-limiting: throttles with 400; Retry-After as its SDK
	// reads it, packages/sdk/src/error.ts
	{Host: "api.linear.app", Refusal: 400, RetryAfter: "Retry-After"},
}

// discordMajors are the segments before the major parameters of Discord's paths.
var discordMajors = []string{"channels", "guilds", "webhooks"}

// spent are rows for errors that no wait cures. They stand apart from vendors because only Parsers that look
// into bodies need them. A code belongs to its host: insufficient_quota means a limit of tokens per minute
// in Alibaba's Model Studio (alibabacloud.com/help/en/model-studio/rate-limit).
var spent = []Dialect{
	// help.openai.com/en/articles/5955604, Identify the cause: billing errors have one of
	// these codes, or the type insufficient_quota alone. The first was the only one until
	// 2026, the last is that of images.
	{Host: "api.openai.com", Final: []string{"insufficient_quota", "credit_balance_exhausted", "organization_usage_limit_exceeded",
		"organization_spend_limit_exceeded", "project_spend_limit_exceeded", "billing_hard_limit_reached"}},

	// platform.claude.com/docs/en/api/rate-limits, Spend limits: a 429 without a
	// Retry-After; platform.claude.com/docs/en/api/errors: billing_error is a 402
	{Host: "api.anthropic.com", Final: []string{"enforced_spend_limit_reached", "billing_error"}},

	// platform.moonshot.ai/docs, Error codes: a 429 of an account without balance
	{Host: "api.moonshot.*", Final: []string{"exceeded_current_quota_error"}},
}
