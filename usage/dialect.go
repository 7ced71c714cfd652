package usage

// Dialect is one row of the table: where one API puts its numbers in a JSON document, or in the documents of its
// event stream. Every part of it is optional.
//
// A place is a path of member names with dots between them: "usage.prompt_tokens" is 12 in
//
//	{"usage": {"prompt_tokens": 12}}
//
// Arrays have no name in it: "errors.type" is the type of each error in a list of errors. Only this very place
// counts, so the same names deeper in a document are data. A name may have up to 64 bytes, and a place up to 8
// names.
//
// For an API that sends {"meta": {"billed": {"in": 12, "out": 5}}}, the row is
//
//	usage.Dialect{Input: "meta.billed.in", Output: "meta.billed.out"}
type Dialect struct {
	// Input, Output, CacheRead, CacheWrite, Reasoning and Points are the places of these numbers of [Usage]. If a
	// place occurs several times, the last one counts. Strings are not numbers.
	Input, Output, CacheRead, CacheWrite, Reasoning, Points string

	// Sum adds up what Points says if its place occurs several times in a document.
	Sum bool

	// Last is a place that the closing document of a stream has, and that is null or missing in earlier ones with
	// numbers of this row. "": each document with numbers may be the closing one.
	Last string

	// More is a place whose null says that a document of a stream is not the closing one.
	More string

	// Code is the place of the code of an error, a string.
	Code string

	// Throttled are the codes that mean: refused for a limit. Overloaded are those that mean: the upstream is in
	// trouble, whatever the rate of requests. A code has up to 64 bytes.
	Throttled, Overloaded []string

	// Message is the place of an error's text. "Try again in 1.5s" and "retry after 20 seconds" in its first 512
	// bytes are the wait. Delay is the place of a wait on its own, such as "39s".
	Message, Delay string

	// Wanted, Available and Rate are the places of what a refused request would have cost, what is left, and what
	// comes back in a second. The wait is (Wanted - Available) / Rate.
	Wanted, Available, Rate string
}

// limits and overloads are the codes of OpenAI and Anthropic, and of those who speak as they do: limits mean that
// there was too much of ours, overloads that there is too much for the upstream. A spent account has other codes
// (insufficient_quota), because no wait cures it.
var (
	limits    = []string{"rate_limit_exceeded", "rate_limit_error"}
	overloads = []string{"overloaded_error", "server_is_overloaded", "slow_down"}
)

// providers are the built-in rows. Nothing writes to it. An API that speaks as one of them needs no row: Azure
// OpenAI, Mistral, Groq (but for one place), DeepSeek, xAI, vLLM and most proxies speak as OpenAI does, and
// Anthropic's models on Bedrock and Vertex as Anthropic's own API.
var providers = []Dialect{
	// platform.openai.com/docs/api-reference/chat/object and .../chat/streaming: with
	// stream_options.include_usage, the last chunk has no choices and the usage; those before have null.
	// vLLM's continuous_usage_stats has numbers in each chunk. Embeddings have prompt_tokens alone
	// (.../embeddings/create).
	{Input: "usage.prompt_tokens", Output: "usage.completion_tokens", CacheRead: "usage.prompt_tokens_details.cached_tokens",
		Reasoning: "usage.completion_tokens_details.reasoning_tokens", More: "choices.finish_reason"},

	// platform.openai.com/docs/api-reference/responses/object: the response itself. Its numbers stand where
	// Anthropic's do.
	{CacheRead: "usage.input_tokens_details.cached_tokens", Reasoning: "usage.output_tokens_details.reasoning_tokens"},

	// platform.openai.com/docs/api-reference/responses-streaming: response.completed, .incomplete and .failed
	// have the whole response; in those before, its usage is null
	{Input: "response.usage.input_tokens", Output: "response.usage.output_tokens",
		CacheRead: "response.usage.input_tokens_details.cached_tokens",
		Reasoning: "response.usage.output_tokens_details.reasoning_tokens"},

	// platform.openai.com/docs/api-reference/audio/transcript-text-done-event: a transcript's stream. Its numbers
	// stand where Anthropic's do.
	{Last: "text"},

	// console.groq.com/docs/api-reference: as OpenAI; streams have it in the last chunk too, under x_groq
	{Input: "x_groq.usage.prompt_tokens", Output: "x_groq.usage.completion_tokens",
		CacheRead: "x_groq.usage.prompt_tokens_details.cached_tokens", More: "choices.finish_reason"},

	// platform.claude.com/docs/en/api/messages, usage; .../build-with-claude/streaming: message_start has what
	// was read; message_delta has cumulative counts, and may come several times
	{Input: "usage.input_tokens", Output: "usage.output_tokens", CacheRead: "usage.cache_read_input_tokens",
		CacheWrite: "usage.cache_creation_input_tokens", Last: "delta.stop_reason"},
	{Input: "message.usage.input_tokens", Output: "message.usage.output_tokens", CacheRead: "message.usage.cache_read_input_tokens",
		CacheWrite: "message.usage.cache_creation_input_tokens", Last: "delta.stop_reason"},

	// ai.google.dev/api/generate-content#UsageMetadata: in each chunk of a stream; an array of chunks if the
	// request does not ask for alt=sse
	{Input: "usageMetadata.promptTokenCount", Output: "usageMetadata.candidatesTokenCount",
		CacheRead: "usageMetadata.cachedContentTokenCount", Reasoning: "usageMetadata.thoughtsTokenCount", Last: "candidates.finishReason"},

	// docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html. ConverseStream is binary.
	{Input: "usage.inputTokens", Output: "usage.outputTokens", CacheRead: "usage.cacheReadInputTokens",
		CacheWrite: "usage.cacheWriteInputTokens"},

	// shopify.dev/docs/api/usage/limits: a throttled query has no actual cost, and status 200
	//
	//	{"errors": [{"extensions": {"code": "THROTTLED"}}], "extensions": {"cost": {"requestedQueryCost": 202,
	//	"actualQueryCost": null, "throttleStatus": {"maximumAvailable": 1000, "currentlyAvailable": 118, "restoreRate": 50}}}}
	{Points: "extensions.cost.actualQueryCost", Code: "errors.extensions.code", Throttled: []string{"THROTTLED"},
		Wanted: "extensions.cost.requestedQueryCost", Available: "extensions.cost.throttleStatus.currentlyAvailable",
		Rate: "extensions.cost.throttleStatus.restoreRate"},

	// docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api: if the query asks
	{Points: "data.rateLimit.cost", Code: "errors.type", Throttled: []string{"RATE_LIMITED"}},

	// linear.app/developers/rate-limiting
	{Code: "errors.extensions.code", Throttled: []string{"RATELIMITED"}},

	// {"ConsumedCapacity": [{"TableName": "a", "CapacityUnits": 3}, {"TableName": "b", "CapacityUnits": 0.5}]}:
	// docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ConsumedCapacity.html: if the request asks;
	// one for each table in batches and transactions
	{Points: "ConsumedCapacity.CapacityUnits", Sum: true},

	// Errors in a 200. OpenAI's chunks (openai/codex#10055, pomerium/mcp-app-demo#156), its event error, at
	// the top or under error, and response.failed (earendil-works/pi#1458)
	{Code: "error.code", Throttled: limits, Overloaded: overloads, Message: "error.message"},
	{Code: "code", Throttled: limits, Overloaded: overloads, Message: "message"},
	{Code: "response.error.code", Throttled: limits, Overloaded: overloads, Message: "response.error.message"},

	// platform.claude.com/docs/en/api/errors: overloaded_error may come in a stream
	//
	//	{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
	{Code: "error.type", Throttled: limits, Overloaded: overloads, Message: "error.message"},

	// ai.google.dev/gemini-api/docs/troubleshooting, google.aip.dev/193
	//
	//	{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "39s"}]}}
	{Code: "error.status", Throttled: []string{"RESOURCE_EXHAUSTED"}, Overloaded: []string{"UNAVAILABLE"}, Message: "error.message",
		Delay: "error.details.retryDelay"},
}
