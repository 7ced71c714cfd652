package usage

// This file is the table of what providers write. Nothing writes to it. A row's source stands with it; the tests name
// those of single forms.

// limits and overloads are the codes of OpenAI and Anthropic, and of those who speak as they do: limits mean that
// there was too much of ours, overloads that there is too much for the upstream.
var (
	limits = []string{
		"rate_limit_exceeded", "rate_limit_error", "rate_limit*", // OpenAI, Anthropic; Mistral's rate_limited, Moonshot's rate_limit_reached_error
		"429",                // OpenRouter, Gemini, vLLM as a number, Azure and LiteLLM as a string
		"ratelimit*",         // Azure's RateLimitReached, Volcengine's RateLimitExceeded.EndpointTPMExceeded
		"too_many_requests*", // and those below: Cerebras, DashScope, AWS
		"toomanyrequests*", "throttl*", "limit_requests", "limit_burst_rate",
		"RESOURCE_EXHAUSTED",
		"1302", "1303", // Zhipu: docs.bigmodel.cn/cn/api/api-code
	}
	overloads = []string{"overloaded_error", "server_is_overloaded", "slow_down", "529", "engine_overloaded_error", "UNAVAILABLE"}
)

// spent are codes of an account that has nothing left. No wait cures that, whatever else an error says.
var spent = []string{"insufficient_quota", "exceeded_current_quota_error", "insufficient_user_quota", "billing_hard_limit_reached"}

// objects are what providers write into usage objects, by the names in these. A name is in one row only, so it does
// not matter who speaks. homes are the places of the objects.
var objects = []Dialect{
	// platform.openai.com/docs/api-reference/chat/object, and all who speak so; OpenRouter's cache_write_tokens:
	// openrouter.ai/docs/guides/best-practices/prompt-caching
	{Input: "prompt_tokens", Output: "completion_tokens", Total: "total_tokens", CacheRead: "prompt_tokens_details.cached_tokens",
		CacheWrite: "prompt_tokens_details.cache_write_tokens", Reasoning: "completion_tokens_details.reasoning_tokens"},
	// platform.openai.com/docs/api-reference/responses/object, and its realtime and audio APIs; Cohere, DashScope
	{Input: "input_tokens", Output: "output_tokens", CacheRead: "input_tokens_details.cached_tokens", Reasoning: "output_tokens_details.reasoning_tokens"},
	// platform.claude.com/docs/en/api/messages
	{CacheRead: "cache_read_input_tokens", CacheWrite: "cache_creation_input_tokens"},
	// api-docs.deepseek.com/guides/kv_cache; platform.moonshot.ai/docs/api/chat and docs.perplexity.ai/api-reference
	{CacheRead: "prompt_cache_hit_tokens"},
	{CacheRead: "cached_tokens", Reasoning: "reasoning_tokens"},
	// docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html; metrics of InvokeModel
	{Input: "inputTokens", Output: "outputTokens", Total: "totalTokens", CacheRead: "cacheReadInputTokens", CacheWrite: "cacheWriteInputTokens"},
	{Input: "inputTokenCount", Output: "outputTokenCount", CacheRead: "cacheReadInputTokenCount", CacheWrite: "cacheWriteInputTokenCount"},
	// ai.google.dev/api/generate-content#UsageMetadata, the same by Python's SDK, .../api/live#usagemetadata, .../api/interactions-api
	{Input: "promptTokenCount", Output: "candidatesTokenCount", Total: "totalTokenCount", CacheRead: "cachedContentTokenCount", Reasoning: "thoughtsTokenCount"},
	{Input: "prompt_token_count", Output: "candidates_token_count", Total: "total_token_count", CacheRead: "cached_content_token_count", Reasoning: "thoughts_token_count"},
	{Output: "responseTokenCount"},
	{Input: "total_input_tokens", Output: "total_output_tokens", CacheRead: "total_cached_tokens", Reasoning: "total_thought_tokens"},
	// cloud.tencent.com/document/api/1729/105701
	{Input: "PromptTokens", Output: "CompletionTokens", Total: "TotalTokens"},
}

// homes are the places of usage objects. The first is the one that all others are like.
var homes = []string{
	"usage",
	"response.usage",                               // OpenAI: .../api-reference/responses-streaming; realtime
	"message.usage",                                // Anthropic's message_start
	"delta.usage",                                  // Cohere's message-end
	"choices.usage",                                // Moonshot (northes/go-moonshot#17), Together
	"choices.delta.usage", "choices.message.usage", // gateways
	"x_groq.usage",                                              // console.groq.com/docs/api-reference
	"usageMetadata", "usage_metadata", "response.usageMetadata", // Gemini; Code Assist wraps an answer
	"interaction.usage",       // ai.google.dev/api/interactions-api
	"metadata.usage",          // Bedrock's ConverseStream as SDKs write it; docs.dify.ai, message_end
	"result.usage",            // developers.cloudflare.com/workers-ai
	"payload.usage.text",      // xfyun.cn/doc/spark/Web.html
	"Usage", "Response.Usage", // Tencent
	"amazon-bedrock-invocationMetrics",                                      // docs.aws.amazon.com/bedrock/latest/userguide/inference-invoke.html
	"usage.billed_units", "meta.billed_units", "response.meta.billed_units", // docs.cohere.com/reference/chat
}

// counted are places of usage objects whose numbers count only where no other has them: what Cohere has counted, beside what
// it bills.
var counted = []string{"usage.tokens", "meta.tokens", "response.meta.tokens"}

// providers are the rows of all else: what ends a stream, and what refuses.
var providers = []Dialect{
	// platform.openai.com/docs/api-reference/chat/streaming: with stream_options.include_usage, the last chunk has no
	// choices and the usage; those before have null. vLLM's continuous_usage_stats has numbers in each chunk.
	{More: "choices.finish_reason"},

	// platform.claude.com/docs/en/build-with-claude/streaming: message_start has what was read; message_delta has
	// cumulative counts, and may come several times. Alibaba's DashScope has numbers in each event.
	{Input: "message.usage.input_tokens", Output: "message.usage.output_tokens", CacheRead: "message.usage.cache_read_input_tokens",
		CacheWrite: "message.usage.cache_creation_input_tokens", Last: "delta.stop_reason", More: "delta.stop_reason"},
	{More: "output.finish_reason"},
	{More: "output.choices.finish_reason"},

	// ai.google.dev/api/generate-content: in each chunk of a stream; an array of chunks if the request does not ask for
	// alt=sse
	{Input: "usageMetadata.promptTokenCount", Output: "usageMetadata.candidatesTokenCount", Total: "usageMetadata.totalTokenCount",
		CacheRead: "usageMetadata.cachedContentTokenCount", Reasoning: "usageMetadata.thoughtsTokenCount", Last: "candidates.finishReason"},

	// github.com/ollama/ollama/blob/main/docs/api.md
	{Input: "prompt_eval_count", Output: "eval_count"},

	// docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-meta.html
	{Input: "prompt_token_count", Output: "generation_token_count", More: "stop_reason"},

	// huggingface.co/docs/text-generation-inference, details of the last event; dataplatform.cloud.ibm.com, watsonx.ai
	{Output: "details.generated_tokens"},
	{Input: "results.input_token_count", Output: "results.generated_token_count"},

	// shopify.dev/docs/api/usage/limits: a throttled query has no actual cost, and status 200
	//
	//	{"errors": [{"extensions": {"code": "THROTTLED"}}], "extensions": {"cost": {"requestedQueryCost": 202,
	//	"actualQueryCost": null, "throttleStatus": {"maximumAvailable": 1000, "currentlyAvailable": 118, "restoreRate": 50}}}}
	{Points: "extensions.cost.actualQueryCost", Wanted: "extensions.cost.requestedQueryCost",
		Available: "extensions.cost.throttleStatus.currentlyAvailable", Rate: "extensions.cost.throttleStatus.restoreRate"},

	// docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api: if the query asks
	{Points: "data.rateLimit.cost"},

	// {"ConsumedCapacity": [{"TableName": "a", "CapacityUnits": 3}, {"TableName": "b", "CapacityUnits": 0.5}]}:
	// docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ConsumedCapacity.html: if the request asks;
	// one for each table in batches and transactions
	{Points: "ConsumedCapacity.CapacityUnits", Sum: true},

	// Errors of GraphQL: Shopify, Linear (linear.app/developers/rate-limiting) and GitHub in this order; Apollo's and
	// others' with the status; JSON:API
	{Code: "errors.extensions.code", Throttled: limits, Message: "errors.message"},
	{Code: "errors.type", Throttled: limits, Delay: "errors.extensions.retryAfter"},
	{Code: "errors.extensions.status", Throttled: []string{"429"}},
	{Code: "errors.extensions.statusCode", Throttled: []string{"429"}},
	{Code: "errors.extensions.http.status", Throttled: []string{"429"}},
	{Code: "errors.code", Throttled: []string{"429"}},
	{Code: "errors.status", Throttled: []string{"429"}},

	// Errors in a 200. OpenAI's chunks (openai/codex#10055, pomerium/mcp-app-demo#156), its event error under error,
	// response.failed (earendil-works/pi#1458); Anthropic's overloaded_error (platform.claude.com/docs/en/api/errors);
	// Gemini's (google.aip.dev/193), OpenRouter's beside choices and in one (openrouter.ai/docs/api/errors)
	//
	//	{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
	//	{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "39s"}]}}
	{Code: "error.code", Throttled: limits, Overloaded: overloads, Message: "error.message", Delay: "error.details.retryDelay"},
	{Code: "error.type", Throttled: limits, Overloaded: overloads, Delay: "error.retry_after"},
	{Code: "error.status", Throttled: limits, Overloaded: overloads, Delay: "error.metadata.retry_after_seconds"},
	{Code: "error.statusCode", Throttled: []string{"429"}},
	{Code: "error.status_code", Throttled: []string{"429"}},
	{Code: "error.error.code", Throttled: limits, Overloaded: overloads, Message: "error.error.message"},
	{Code: "error.error.type", Throttled: limits, Overloaded: overloads},
	{Code: "response.error.code", Throttled: limits, Overloaded: overloads, Message: "response.error.message"},
	{Code: "response.error.type", Throttled: limits, Overloaded: overloads},
	{Code: "choices.error.code", Throttled: limits, Overloaded: overloads, Message: "choices.error.message"},

	// At the top: OpenAI's event error; gateways, as Azure's API Management: {"statusCode": 429, "message": "Rate limit is
	// exceeded. Try again in 38 seconds."}. What has another message is data.
	{Code: "code", Throttled: []string{"rate_limit_exceeded", "rate_limit_error"}, Overloaded: []string{"overloaded_error", "server_is_overloaded"},
		Message: "message"},
	{Code: "code", Throttled: []string{"429"}, Message: "message", Delay: "retry_after", worded: true},
	{Code: "code", Throttled: []string{"429"}, Message: "error", worded: true},
	{Code: "statusCode", Throttled: []string{"429"}, Message: "message", worded: true},
	{Code: "status", Throttled: []string{"429"}, Message: "message", worded: true},

	// platform.minimaxi.com/document/error-codes: 1002 too many requests, 1039 too many tokens
	{Code: "base_resp.status_code", Throttled: []string{"1002", "1039"}},
}

// asking are the places where requests bound their output and say how many answers they want. Of several the largest
// counts.
var asking = []Dialect{
	{Bound: "max_completion_tokens", Answers: "n"},                                                          // OpenAI's chat
	{Bound: "max_tokens", Answers: "best_of"},                                                               // its completions; Anthropic and their kin
	{Bound: "max_output_tokens"},                                                                            // OpenAI's responses
	{Bound: "max_tokens_to_sample"},                                                                         // Anthropic's text completions
	{Bound: "generationConfig.maxOutputTokens", Answers: "generationConfig.candidateCount"},                 // Gemini
	{Bound: "generation_config.max_output_tokens", Answers: "generation_config.candidate_count"},            // as protobuf's JSON may have it
	{Bound: "request.generationConfig.maxOutputTokens", Answers: "request.generationConfig.candidateCount"}, // Code Assist
	{Bound: "parameters.maxOutputTokens", Answers: "parameters.candidateCount"},                             // Vertex AI's PaLM
	{Bound: "inferenceConfig.maxTokens"},                                                                    // Bedrock's Converse
	{Bound: "inferenceConfig.max_new_tokens"},                                                               // Amazon Nova by InvokeModel
	{Bound: "textGenerationConfig.maxTokenCount"},                                                           // Amazon Titan
	{Bound: "max_gen_len"},                                                                                  // Meta's models on Bedrock
	{Bound: "maxTokens", Answers: "numResults"},                                                             // AI21's Jurassic
	{Bound: "parameters.max_new_tokens", Answers: "parameters.num_return_sequences"},                        // Hugging Face, watsonx.ai
	{Bound: "max_new_tokens", Answers: "num_return_sequences"},                                              // the same by other servers
	{Bound: "parameters.max_tokens", Answers: "parameters.n"},                                               // DashScope
	{Answers: "parameters.best_of"},                                                                         // text-generation-inference
	{Answers: "num_generations"},                                                                            // Cohere's generate
	{Bound: "options.num_predict"},                                                                          // Ollama
	{Bound: "n_predict"},                                                                                    // llama.cpp
}

// texts are names of members whose strings are text, wherever they stand in a request: whoever asks with base64 there
// pays for text.
var texts = []string{"text", "content", "prompt", "input", "message", "system", "inputText", "query"}

// files are places where requests have files in strings, or their addresses, wherever they stand. Files that are in
// the request itself are found anywhere else too, see event.string.
var files = []string{
	"image_url", "image_url.url", "video_url", "video_url.url", "audio_url", "audio_url.url", "input_audio.data", "document_url", // OpenAI's chat, vLLM, Mistral
	"file_data", "file_url", "file_id", // OpenAI's responses, Anthropic's files
	"source.data", "source.url", "source.bytes", "s3Location.uri", // Anthropic, Bedrock
	"inlineData.data", "inline_data.data", "fileUri", "file_uri", // Gemini
}
