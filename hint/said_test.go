package hint

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A refusalRow is what one API answers.
type refusalRow struct {
	status    int
	body      string
	throttled bool
	wait      string // "": none
}

const (
	secondary403 = `"documentation_url": "https://docs.github.com/free-pro-team@latest/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"`
)

// refusals are answers of APIs, each from the documentation or the thread beside it. The zero Parser reads them but for those with
// status 200, which have to be asked for.
var refusals = []refusalRow{
	// Waits in members.
	{429, `{"message":"You are being rate limited.","retry_after":64.57,"global":false}`, true, "64.57s"},                                                              // discord.com/developers/docs/topics/rate-limits
	{429, `{"message":"You are being rate limited.","retry_after":6457,"global":false}`, true, "6.457s"},                                                               // discord/discord-api-docs#268: milliseconds until API v8
	{429, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 35","parameters":{"retry_after":35}}`, true, "35s"},                              // core.telegram.org/bots/api#responseparameters
	{429, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 35"}`, true, "35s"},                                                              // yagop/node-telegram-bot-api#199: the sentence alone
	{429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"39.5s"}]}}`, true, "39.5s"}, // google.aip.dev/193
	{429, `[{"error":{"code":429,"message":"Resource has been exhausted","details":[{"retryDelay":"21s"}]}}]`, true, "21s"},                                            // google-gemini/gemini-cli#6454: a list
	{429, `{"error":{"details":[{"retryDelay":{"seconds":9,"nanos":500000000}}]}}`, true, "9s"},                                                                        // protobuf.dev, google.protobuf.Duration without its JSON mapping
	{429, `{"kind":"Status","status":"Failure","reason":"TooManyRequests","details":{"retryAfterSeconds":10},"code":429}`, true, "10s"},                                // kubernetes.io/docs/reference/kubernetes-api, Status
	{429, `{"errors":[{"message":"Too many requests","extensions":{"code":"TOO_MANY_REQUESTS","retryAfter":9}}]}`, true, "9s"},                                         // the-guild.dev/graphql/yoga-server, rate limits
	{429, `{"error_message":"Complexity budget exhausted","errors":[{"extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":15}}]}`, true, "15s"},       // developer.monday.com/api-reference/docs/rate-limits
	{429, `{"error_summary":"too_many_requests/..","error":{"reason":{".tag":"too_many_requests"},"retry_after":15}}`, true, "15s"},                                    // dropbox.com/developers/documentation/http, RateLimitError
	{429, `{"detail":"Request was throttled. Your rate limit resets in ~9s.","status":429,"retry_after":9}`, true, "9s"},                                               // replicate.com/docs/topics/predictions/rate-limits
	{429, `{"errors":["You've performed this action too many times."],"error_type":"rate_limit","extras":{"wait_seconds":26,"time_left":"26 seconds"}}`, true, "26s"},  // exercism/website#5358
	{429, `{"error":"Too many requests","retryAfter":40}`, true, "40s"},                                                                                                // sekine-1113/Negotole#61
	{429, `{"msg":"API usage exceeded rate limit","retry-after":28.706807374954224,"result":"error","code":"RATE_LIMIT_HIT"}`, true, "28.706807375s"},                  // zulip.com/api/rest-error-handling
	{429, `{"msg":"API usage exceeded rate limit, try again in 15.314237833 secs","result":"error"}`, true, "15.314237833s"},                                           // zulip/zulip#4831
	{429, `{"code":"RATE_LIMITED","message":"Rate limit exceeded.","details":{"tryAgainIn":5400000}}`, true, "1h30m0s"},                                                // better-auth/better-auth#6036: milliseconds
	{429, `{"consumedPoints":6,"remainingPoints":0,"msBeforeNext":8500,"isFirstInDuration":false}`, true, "8.5s"},                                                      // animir/node-rate-limiter-flexible, RateLimiterRes
	{429, `{"error":{"message":"slow down","retry_after_ms":1500}}`, true, "1.5s"},                                                                                     // openai/openai-go, internal/requestconfig, by its header's name
	{429, `{"error":"rate_limited","retryAfterMs":"1500"}`, true, "1.5s"},                                                                                              // vercel/next.js examples, api-routes-rate-limit
	{429, `{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"plus","resets_in_seconds":1234}}`, true, "20m34s"},         // router-for-me/CLIProxyAPI#1666
	{429, `{"error":{"type":"usage_limit_reached","resets_at":1768046460}}`, true, "1m0s"},                                                                             // james-6-23/codex2api#9
	{429, `{"rateLimitNext":"2026-01-10T12:00:49Z","title":"Account Rate Limit Exceeded","rateLimitRemaining":0,"status":429}`, true, "49s"},                           // techdocs.akamai.com, 429
	{429, `{"detail":"Quota has been exhausted. You can submit the request after 49 seconds","status":429}`, true, "49s"},                                              // the same
	{429, `{"error":"TooManyRequestsError","metadata":{"periodInMinutes":1,"recommendedRetryTime":"2026-01-10T12:00:29Z"}}`, true, "29s"},                              // metaapi.cloud/docs/client/models/tooManyRequestsError
	{429, `{"statusCode":429,"error":"Rate limit exceeded","reset_at":"2026-01-10T12:00:30Z","limit":100}`, true, "30s"},                                               // api-evangelist/test-rate-limit-check
	{429, `{"errorMessage":"Too many","wait":{"seconds":12}}`, true, "12s"},                                                                                            // made up: in a value of its own
	{429, `{"retry":{"after":"9s"}}`, true, "9s"},                                                                                                                    // made up
	{429, `{"code":"THROTTLING_TOO_MANY_REQUESTS","message":"Too many","retryAfter":30}`, true, "30s"},                                                               // secure.adobesign.com/public/docs/restapi, rate limits
	{429, `{"error":{"code":1015},"retryable":true,"retry_after":30,"error_category":"rate_limit"}`, true, "30s"},                                                    // developers.cloudflare.com/support/troubleshooting, 1015
	{429, `{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"rate","data":{"rate":{"allowed_rps":1,"backoff_seconds":24,"current_rps":1.4}}}}`, true, "24s"}, // docs.infura.io, ratelimits
	{429, `{"Reason":"ReservedFunctionConcurrentInvocationLimitExceeded","Type":"User","message":"Rate Exceeded.","retryAfterSeconds":"3"}`, true, "3s"},             // docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
	{429, `{"cooldown":"1m30s"}`, true, "1m30s"},                                                                                                                     // made up: Go's durations
	{429, `{"retryAfter":"PT9S"}`, true, "9s"},                                                                                                                       // ISO 8601, as of java.time
	{429, `{"retryAfter":"00:00:09"}`, true, "9s"},                                                                                                                   // .NET's TimeSpan
	{429, `{"retryAfter":"Sat, 10 Jan 2026 12:00:09 GMT"}`, true, "9s"},
	{429, `{"limit":60,"remaining":0,"reset":1768046460000}`, true, "1m0s"},
	{429, `{"retry_after":null,"retryAfter":false,"wait":"soon"}`, true, ""},
	{429, `{"retry_count":7,"max_retries":9,"retry_limit":5,"next":3,"timeout":30,"window":60,"limit_remaining":4,"reset_interval":60,"time":5}`, true, ""},
	{429, `{"requests_remaining":9,"errors_left":9,"limits_remaining":9,"attempts_remaining":9,"attempt":2,"can_retry":true,"retry_allowed":true}`, true, ""}, // counts: their s is no second
	{429, `{"retry_after_s":9}`, true, "9s"},
	{429, `{"can_retry_at":"2026-01-10T12:00:09Z"}`, true, "9s"}, // made up, as the three below
	{429, `{"next_allowed_at":1768046409}`, true, "9s"},
	{429, `{"next_attempt_in":9}`, true, "9s"},
	{429, `{"retry_allowed_after":9}`, true, "9s"},
	{403, `{"attempts":2,"can_retry":false,"allowed":false}`, false, ""},
	{429, `{"retry_after":-5,"wait":1e9,"delay":99999999999999999999}`, true, ""},
	{529, `{"error":{"type":"overloaded_error"},"retry_after":4}`, true, "4s"},
	{418, `{"code":-1003,"msg":"Way too much request weight used; IP banned until 1768046700000. Please use WebSocket Streams."}`, true, "5m0s"}, // developers.binance.com, Error codes
	{503, `{"error":"Model is currently loading","estimated_time":20.5}`, true, "20.5s"},                                                         // huggingface.co/docs/api-inference, faq
	{503, `{"error":{"code":"503","message":"The service is unavailable. Please retry after 8 seconds."}}`, true, "8s"},                          // learn.microsoft.com/azure/ai-services/openai
	{503, `{"error":"down for maintenance"}`, false, ""},

	{429, `{"info":"rate limit","retryAfter":900000,"code":429,"errno":114,"retryAfterLocalized":"in 10 days","error":"Too Many Requests"}`, true, "15m0s"},          // mozilla/fxa#3920: milliseconds, by mistake
	{429, `{"ErrorCode":1672,"ThrottleSeconds":10,"ErrorStatus":"ThrottleLimitExceededMinutes"}`, true, "10s"},                                                       // Bungie-net/api#1051
	{429, `{"error":{"message":"You exceeded your current quota. Please retry in 58.934310785s.","details":[{"retryDelay":"58s"}]}}`, true, "58.934310785s"},         // googleapis/python-genai#2114
	{429, `{"error":{"message":"{\n  \"error\": {\"code\": 429, \"details\": [{\"retryDelay\": \"21s\"}]}}","code":429,"status":"Too Many Requests"}}`, true, "21s"}, // google-gemini/gemini-cli#14811: JSON in JSON

	// Waits in sentences.
	{429, `{"error":{"message":"Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 14143, Requested 19737. Please try again in 7.76s.","type":"tokens","code":"rate_limit_exceeded"}}`, true, "7.76s"}, // openai/codex#88
	{429, `{"error":{"message":"Rate limit reached. Limit 3 / min. Please try again in 20s. Contact us","code":"rate_limit_exceeded"}}`, true, "20s"},
	{429, `{"error":{"message":"Please try again in 120ms.","code":"rate_limit_exceeded"}}`, true, "120ms"},
	{429, `{"error":{"message":"Limit 500000, Used 500417. Please try again in 7m12.346s.","type":"tokens"}}`, true, "7m12.346s"},                                           // console.groq.com/docs/rate-limits
	{429, `{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation have exceeded call rate limit. Please retry after 7 seconds."}}`, true, "7s"}, // microsoft/action-python#12
	{429, `{"statusCode":429,"message":"Rate limit is exceeded. Try again in 26 seconds."}`, true, "26s"},                                                                   // learn.microsoft.com/azure/api-management/rate-limit-policy
	{403, `{"statusCode":403,"message":"Out of call volume quota. Quota will be replenished in 00:06:12."}`, true, "6m12s"},                                                 // learn.microsoft.com/azure/api-management/quota-policy
	{403, `{"statusCode":403,"message":"Out of call volume quota. Quota will be replenished in 2.05:00:00."}`, true, "53h0m0s"},
	{429, `{"error":{"code":"SubscriptionRequestsThrottled","message":"Number of requests exceeded the limit of '12000' for time interval '01:00:00'. Please try again after '10' seconds."}}`, true, "10s"}, // learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
	{429, `{"detail":"Request was throttled. Expected available in 53 seconds."}`, true, "53s"},                                                                                                              // django-rest-framework.org/api-guide/throttling
	{429, `{"detail":"Request was throttled. Expected available in 1 second."}`, true, "1s"},
	{429, `{"detail":"Request was throttled. Expected available in 831.0 seconds."}`, true, "13m51s"},                                                                                          // PokeAPI/pokeapi#248
	{429, `{"detail":"Request was throttled. Rate limit exceeded: 5/min. Expected available in 49 seconds."}`, true, "49s"},                                                                    // freelawproject/courtlistener#7655
	{429, `{"error":{"message":"Rate limit reached for 10KTPM-200RPM on tokens per min. Limit: 10000 / min. Please try again in 6ms. Contact us"}}`, true, "6ms"},                              // Pythagora-io/gpt-pilot#53
	{429, `{"error":{"message":"You exceeded your current quota. Please retry in 39.123456s.","status":"RESOURCE_EXHAUSTED"}}`, true, "39.123456s"},                                            // ai.google.dev/gemini-api/docs/rate-limits
	{429, `{"success":false,"error":"Rate limit exceeded. Consumed (req/min): 11, Remaining (req/min): 0. please retry after 25s, resets at Wed Oct 23 2024 23:13:13 GMT+0000"}`, true, "25s"}, // firecrawl/firecrawl#819
	{429, `{"message":"Too many login attempts. Please try again in 60 seconds."}`, true, "60s"},                                                                                               // laravel.com/docs, auth.throttle
	{429, `{"errors":["You’ve performed this action too many times. Please wait 26 seconds before trying again."]}`, true, "26s"},                                                              // pydiscourse/pydiscourse#11
	{429, `{"message":"Looks like you've been doing that a lot. Take a break for 9 minutes before trying again."}`, true, "9m0s"},                                                              // praw-dev/praw, ratelimit
	{429, `{"message":"Try again in 1 minute, 30 seconds"}`, true, "1m30s"},
	{429, `{"message":"Try again in about 2 minutes and 5 secs."}`, true, "2m5s"},
	{429, `{"message":"Try again in a few seconds."}`, true, "1s"},
	{429, `{"message":"Please wait a minute."}`, true, "1m0s"},
	{429, `{"message":"Try again in an hour"}`, true, "1h0m0s"},
	{429, `{"error_code":"ComplexityException","status_code":429,"error_message":"Complexity budget exhausted, query cost 30001 budget remaining 29995 out of 30000 reset in 9 seconds"}`, true, "9s"}, // developer.monday.com/api-reference/docs/rate-limits
	{429, `{"message":"Blocked until 2026-01-10T12:00:30Z."}`, true, "30s"},
	{429, `{"error":"Too many requests, please try again later."}`, true, ""},                                                         // express-rate-limit, message
	{429, `{"errors":"Exceeded 2 calls per second for api client. Reduce request rates to resume uninterrupted service."}`, true, ""}, // shopify.dev/docs/api/usage/limits
	{429, `{"message":"The limit is 100 requests in 60 seconds, for 3 users, after 5 failed attempts"}`, true, ""},
	{429, `{"message":"Wait for 3 other jobs. Retry after 2 attempts."}`, true, ""},
	{429, `{"message":"Try again in 99999999999999999999 hours"}`, true, ""},
	{429, `{"message":"Try again in 9999.9999:9999:9999.9999999999999999999999999999"}`, true, ""},

	// A 403 that is a limit.
	{403, `{"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`, true, "1m0s"},                                                                      // docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
	{403, `{"message": "You have exceeded a secondary rate limit and have been temporarily blocked from content creation. Please retry your request again later.", ` + secondary403 + `}`, true, "1m0s"}, // peter-evans/create-pull-request#855
	{429, `{"message": "You have exceeded a secondary rate limit and have been temporarily blocked from content creation. Please retry your request again later."}`, true, "1m0s"},                       // the same page: 403 or 429
	{200, `{"errors":[{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}]}`, true, "1m0s"},                                                          // docs.github.com/graphql, rate limits: 200 or 403
	{200, `{"data":{"issue":{"body":"You have exceeded a secondary rate limit."}},"errors":[{"type":"NOT_FOUND","message":"Could not resolve"}]}`, false, ""},
	{400, `{"message":"about-secondary-rate-limits is no page"}`, false, ""},
	{403, `{"message": "Blocked.", ` + secondary403 + `}`, true, "1m0s"},                                                                                                                                           // google/go-github, isSecondaryRateLimit: by the address alone
	{403, `{"message":"You have triggered an abuse detection mechanism. Please wait a few minutes before you try again.","documentation_url":"https://developer.github.com/v3/#abuse-rate-limits"}`, true, "1m0s"}, // docs.github.com, Best practices, of 2019
	{403, `{"message":"API rate limit exceeded for 192.0.2.1. (But here's the good news: Authenticated requests get a higher rate limit.)"}`, true, ""},                                                            // docs.github.com, Getting started
	{403, `{"error":{"code":403,"message":"Rate Limit Exceeded","errors":[{"domain":"usageLimits","reason":"rateLimitExceeded","message":"Rate Limit Exceeded"}]}}`, true, ""},                                     // developers.google.com/drive/api/guides/handle-errors
	{403, `{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}]}}`, true, ""},
	{403, `{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"dailyLimitExceeded"}]}}`, true, ""},                                                                                // developers.google.com/bid-manager/quotas
	{403, `{"error":{"code":403,"errors":[{"domain":"youtube.quota","reason":"quotaExceeded","message":"The request cannot be completed because you have exceeded your quota."}]}}`, true, ""}, // developers.google.com/youtube/v3/docs/errors
	{403, `{"error":{"code":403,"errors":[{"domain":"global","reason":"quotaExceeded","message":"Quota exceeded: Your project exceeded quota for concurrent queries"}]}}`, true, ""},           // cloud.google.com/bigquery/docs/error-messages
	{403, `{"error":{"code":403,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded for quota metric 'Queries'"}}`, true, ""},                                                              // google.aip.dev/194
	{403, `{"error":{"code":403,"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED"}]}}`, true, ""},                                                  // cloud.google.com/apis/design/errors
	{403, `[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]`, true, ""},                                                                                      // developer.salesforce.com, REST API, Status Codes
	{403, `{"error":{"message":"(#4) Application request limit reached","type":"OAuthException","is_transient":true,"code":4,"fbtrace_id":"E"}}`, true, ""},                                    // developers.facebook.com/docs/graph-api/overview/rate-limiting
	{403, `{"serviceErrorCode":101,"message":"Throttle limit for calls to this resource is reached.","status":403}`, true, ""},                                                                 // learn.microsoft.com/linkedin/shared/api-guide/concepts/rate-limits
	{403, `{"error":"Forbidden","retry_after":30}`, true, "30s"},                                                                                                                               // as a Retry-After there
	{403, `{"errors":[{"message":"Rate limit exceeded","code":88}]}`, true, ""},                                                                                                                // developer.x.com, Error codes

	// A 403 that is not.
	{403, `{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/rest/actions/secrets#get"}`, false, ""}, // docs.github.com, Troubleshooting the REST API
	{403, `{"message":"Must have admin rights to Repository.","rate":{"limit":5000,"remaining":0,"reset":1768046460}}`, false, ""},
	{403, `{"error":{"code":403,"status":"PERMISSION_DENIED","errors":[{"domain":"global","reason":"forbidden","message":"Forbidden"}]}}`, false, ""},                                             // google.aip.dev/193
	{403, `{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"accessNotConfigured","message":"Access Not Configured. Wait a few minutes for our systems to retry."}]}}`, false, ""}, // developers.google.com/drive: enable the API
	{403, `{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"quotaExceeded","message":"Quota 'CPUS' exceeded.  Limit: 24.0 in region us-central1."}]}}`, false, ""},                // cloud.google.com/compute/docs/troubleshooting: of machines
	{403, `{"error":{"code":403,"errors":[{"domain":"global","reason":"storageQuotaExceeded","message":"The user's Drive storage quota has been exceeded."}]}}`, false, ""},                       // developers.google.com/drive/api/guides/handle-errors
	{403, `{"error":{"message":"(#10) Application does not have permission","type":"OAuthException","code":10,"fbtrace_id":"E"}}`, false, ""},
	{403, `{"error":{"code":4,"message":"no"}}`, false, ""},
	{403, `{"message":"Account locked. Try again in 15 minutes."}`, false, ""},
	{403, `{"message":"You may not change the rate limit of this project."}`, false, ""},
	{403, `[{"message":"insufficient access rights","errorCode":"INSUFFICIENT_ACCESS"}]`, false, ""},

	// A 400 that is a limit, and some that are not.
	{400, `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"Rate of requests exceeds the allowed throughput."}`, true, ""}, // docs.aws.amazon.com/amazondynamodb, Error handling
	{400, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}`, true, ""},
	{400, `{"__type":"ThrottlingException","message":"Rate exceeded"}`, true, ""}, // botocore, retries/standard.py
	{400, `{"__type":"LimitExceededException"}`, true, ""},
	{400, `{"__type":"com.amazon.coral.service#AccessDeniedException"}`, false, ""},
	{400, `{"__type":"ServiceQuotaExceededException"}`, false, ""},
	{400, `{"error":{"message":"(#17) User request limit reached","type":"OAuthException","code":17,"error_subcode":2446079,"fbtrace_id":"E"}}`, true, ""},         // developers.facebook.com/docs/marketing-api/overview/rate-limiting
	{400, `{"error":{"message":"(#80004) There have been too many calls to this ad-account. Wait a bit and try again.","code":80004,"fbtrace_id":"E"}}`, true, ""}, // facebook/facebook-for-woocommerce#1343
	{400, `{"error":{"message":"(#32) Page request limit reached","code":32,"fbtrace_id":"E"}}`, true, ""},                                                         // facebookarchive/php-graph-sdk#634
	{400, `{"error":{"message":"Calls to this api have exceeded the rate limit.","code":613,"fbtrace_id":"E"}}`, true, ""},
	{400, `{"error":{"message":"Invalid parameter","type":"OAuthException","code":100,"fbtrace_id":"E"}}`, false, ""},
	{400, `{"errors":[{"message":"Rate limit exceeded","extensions":{"code":"RATELIMITED","userError":true}}]}`, true, ""},                             // linear.app/developers/rate-limiting
	{400, `{"errorCode":"HOURLY_APIINVOCATION_LIMIT_EXCEEDED","message":"The maximum number of hourly API invocations has been exceeded."}`, true, ""}, // developers.docusign.com/docs/esign-rest-api/esign101/rules-and-limits
	{400, `{"errorCode":"BURST_APIINVOCATION_LIMIT_EXCEEDED"}`, true, ""},
	{400, `{"error_id":502,"error_message":"too many requests from this IP, more requests available in 17524 seconds","error_name":"throttle_violation"}`, true, "4h52m4s"}, // mudassir0909/stackoverflow-card#6
	{400, `{"error_type":"RATE_LIMIT_EXCEEDED","error_code":"TRANSACTIONS_LIMIT"}`, true, ""},                                                                               // plaid.com/docs/errors/rate-limit-exceeded
	{400, `{"error":{"message":"Provider returned error","code":429}}`, true, ""},                                                                                           // litellm#8448, as a 400
	{400, `{"error":"invalid_rate_limit","message":"Too many requests in one batch: 21, at most 20"}`, false, ""},
	{400, `{"error":{"code":400,"message":"rate_limit must be positive. Please try again in 5 seconds."}}`, false, ""},

	// A 200 that is a refusal, and some that are not. A row with Body asks for them.
	{200, `{"error":{"message":"Rate limit exceeded","code":429,"metadata":{"headers":{"X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1768046460000"}}},"user_id":"u"}`, true, "1m0s"},             // everruns/everruns#2280
	{200, `{"id":"g","object":"chat.completion","choices":[{"message":{"content":null}}],"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"error code: 1015"}}}`, true, ""}, // BerriAI/litellm#8448
	{200, `{"error":{"code":"429","message":"slow"}}`, true, ""},
	{200, `{"error":{"code":402}}`, false, ""},
	{200, `{"error":{"code":400}}`, false, ""},
	{200, `{"code":429,"items":[]}`, false, ""},
	{200, `{"data":{"error":{"code":429}},"retry_after":5}`, false, ""},
	{200, `{"choices":[{"message":{"content":"{\"error\":{\"code\":429}}"}}]}`, false, ""},
	{200, `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`, true, ""},                    // shopify.dev/docs/api/usage/limits
	{200, `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`, true, ""},                  // docs.github.com/graphql
	{200, `{"errors":[{"message":"x","extensions":{"code":"rate-limit-exceeded","retryAfter":3}}]}`, true, "3s"}, // hasura.io/docs, API limits
	{200, `{"data":null,"errors":[{"message":"x","extensions":{"code":"NOT_FOUND"}}]}`, false, ""},
	{200, `{"ok":false,"error":"ratelimited"}`, true, ""},  // api.slack.com/methods, Errors
	{200, `{"ok":false,"error":"rate_limited"}`, true, ""}, // api.slack.com/methods/chat.postMessage
	{200, `{"ok":true,"messages":[{"text":"ratelimited"}]}`, false, ""},
	{200, `{"status":"OVER_QUERY_LIMIT","results":[],"error_message":"You have exceeded your rate-limit for this API."}`, true, ""}, // developers.google.com/maps/documentation/geocoding
	{200, `{"status":"OK","results":[]}`, false, ""},
	{200, `{"error":["EService:Throttled: 1768046460"]}`, true, "1m0s"}, // docs.kraken.com/api/docs/guides/spot-errors
	{200, `{"error":["EQuery:Unknown asset pair"]}`, false, ""},
	{200, `{"error":{"error_code":6,"error_msg":"Too many requests per second"}}`, true, ""},                                           // dev.vk.com/api/api-requests, error 6
	{200, `{"error":{"code":"maxlag","info":"Waiting for db1: 6 seconds lagged.","lag":6}}`, true, ""},                                 // mediawiki.org/wiki/Manual:Maxlag_parameter
	{200, `{"error":{"code":"ratelimited","info":"You've exceeded your rate limit. Please wait some time and try again."}}`, true, ""}, // mediawiki.org/wiki/API:Errors_and_warnings
	{200, `{"error_code":"ComplexityException","error_message":"Complexity budget exhausted","status_code":429}`, true, ""},
	{402, `{"error":{"code":429,"message":"Insufficient credits"}}`, false, ""},
}

// The end of a window in a body is no news beside a quota in the header that ends, and a member that orders a wait is.
func TestBodyBesideQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for body, want := range map[string]time.Duration{`{"reset_at":"2026-01-10T12:00:30Z"}`: 0, `{"retry_after":7}`: 7 * time.Second} {
			resp, _ := jsonResponse(429, strings.NewReader(body))
			with(resp.Header, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30")
			if h := Parse(resp, noon); h.RetryAfter != want || len(h.Quotas) != 1 {
				t.Errorf("%s: %+v", body, h)
			}
		}
	})
}

// In a bubble, so that a body is never too slow on a busy machine.
func TestWhatBodiesSay(t *testing.T) { synctest.Test(t, lookWhatBodiesSay) }

func lookWhatBodiesSay(t *testing.T) {
	if len(refusals) < 100 {
		t.Errorf("%d rows", len(refusals))
	}
	for _, tt := range refusals {
		parse := Parse
		if tt.status == 200 || tt.status == 402 {
			parse = looking.Parse
		}
		for range 3 { // the order of a map's members is random
			resp, _ := jsonResponse(tt.status, strings.NewReader(tt.body))
			h := parse(resp, noon)
			want, _ := time.ParseDuration(tt.wait)
			if h.Throttled != tt.throttled || h.RetryAfter != want {
				t.Errorf("%d %s\ngot %v, %v; want %v, %v", tt.status, tt.body, h.Throttled, h.RetryAfter, tt.throttled, want)
				break
			}
			if got, err := io.ReadAll(resp.Body); string(got) != tt.body || err != nil {
				t.Errorf("%s: the body became %q, %v", tt.body, got, err)
			}
		}
	}
}
