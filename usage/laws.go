package usage

// This file has the laws of providers. A law is what the provider's documentation says, or where it is silent
// what has been observed; the source stands with it. No number of a tier or model is here. Limits of requests
// need no law: each request is charged 1.

// OpenAI returns the law for OpenAI's limits of tokens (TPM, TPD): the larger of the bound of the output and an
// estimate of the input is held, and corrected to what was used. Failed requests count.
//
// Sources: platform.openai.com/docs/guides/rate-limits, "Reduce the max_tokens to match the size of your
// completions" and "unsuccessful requests contribute to your per-minute limit"; community.openai.com/t/973212.
func OpenAI() Law {
	return Law{Name: "tokens", Holds: HoldsLarger, Counts: Weights{Input: 1, Output: 1}, Failures: true}
}

// Azure returns the law for Azure OpenAI's limit of tokens (TPM): an estimate of the input and the bound of the
// output are added to a count that starts again each minute. It is not corrected. A request without a bound is
// charged the model's context; set Default to that.
//
// Source: learn.microsoft.com/azure/ai-services/openai/how-to/quota, Understanding rate limits.
func Azure() Law {
	return Law{Name: "tokens", Holds: HoldsSum, Counts: Weights{Input: 1, Output: 1}, Keeps: true}
}

// Anthropic returns the laws for Anthropic's limits of input tokens (ITPM) and output tokens (OTPM). An estimate of
// the input is held and corrected; what comes from the cache is free, what goes into it counts. Output is counted
// as it streams, and max_tokens does not matter. For older models that charge what comes from the cache, set
// Counts.CacheRead of the first to 1.
//
// Source: platform.claude.com/docs/en/api/rate-limits. Until 2025 the same page said that max_tokens is held as
// output.
func Anthropic() (in, out Law) {
	return Law{Name: "input-tokens", Holds: HoldsInput, Counts: Weights{Input: 1, CacheWrite: 1}},
		Law{Name: "output-tokens", Counts: Weights{Output: 1}, Streams: true}
}

// Bedrock returns the law for Amazon Bedrock's limits of tokens (TPM, TPD): input, cached or not, and the bound of
// the output are held. In the end reading from the cache is free, and output counts burndown times: 1 for most
// models, 5 for some. A burndown below 1 counts as 1. A request without a bound is charged the model's longest
// output; set Default to that.
//
// Source: docs.aws.amazon.com/bedrock/latest/userguide/quotas-token-burndown.html.
func Bedrock(burndown float64) Law {
	return Law{Name: "tokens", Holds: HoldsSum, Counts: Weights{Input: 1, CacheWrite: 1, Output: max(1, burndown)}}
}

// Mantle returns the laws for the limits of input tokens (ITPM) and output tokens (OTPM) of Amazon Bedrock's
// endpoints for OpenAI's APIs, named bedrock-mantle. The input and the bound of the output are held as input;
// what comes from the cache is free. Output is counted as it streams.
//
// Source: docs.aws.amazon.com/bedrock/latest/userguide/quotas-token-burndown.html.
func Mantle() (in, out Law) {
	return Law{Name: "input-tokens", Holds: HoldsSum, Counts: Weights{Input: 1, CacheRead: -1}},
		Law{Name: "output-tokens", Counts: Weights{Output: 1}, Streams: true}
}

// Gemini returns the law for Gemini's limit of tokens (TPM): input alone, cached or not. Failed requests count.
// The limit of requests in a day (RPD) begins again at midnight in America/Los_Angeles, see [NextDay].
//
// Sources: ai.google.dev/gemini-api/docs/rate-limits; the failures were observed, and are not documented.
func Gemini() Law {
	return Law{Name: "tokens", Holds: HoldsInput, Counts: Weights{Input: 1}, Failures: true}
}

// Groq returns the law for Groq's limits of tokens (TPM, TPD): input and output, but not what comes from the cache.
// What is held is not documented; Hold takes an estimate of the input.
//
// Source: console.groq.com/docs/rate-limits, console.groq.com/docs/prompt-caching.
func Groq() Law {
	return Law{Name: "tokens", Holds: HoldsInput, Counts: Weights{Input: 1, Output: 1, CacheRead: -1}}
}

// Telnyx returns the laws for Telnyx's three limits: of all input tokens, of those that did not come from the
// cache, and of output tokens. What is held is not documented; Hold takes an estimate of the input.
//
// Source: developers.telnyx.com, Inference, Rate limits.
func Telnyx() (in, uncached, out Law) {
	return Law{Name: "input-tokens", Holds: HoldsInput, Counts: Weights{Input: 1}},
		Law{Name: "uncached-input-tokens", Holds: HoldsInput, Counts: Weights{Input: 1, CacheRead: -1}},
		Law{Name: "output-tokens", Counts: Weights{Output: 1}}
}

// Shopify returns the law for Shopify's GraphQL APIs: the requested cost of a query is held, and corrected to the
// actual one. A request does not say its requested cost; set Default to what the program's queries cost, which
// answers tell under extensions.cost. Hold takes 1 point otherwise.
//
// Source: shopify.dev/docs/api/usage/limits.
func Shopify() Law { return Law{Name: "points", Default: 1, Counts: Weights{Points: 1}} }

// GitHub returns the law for GitHub's GraphQL API: points an hour, 1 for most queries. Only a query that asks for
// rateLimit{cost} gets to know its own.
//
// Source: docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api.
func GitHub() Law { return Law{Name: "points", Default: 1, Counts: Weights{Points: 1}} }

// DynamoDB returns the law for DynamoDB's capacity units, of a table's reads or of its writes: what a request costs
// is known afterwards, and only to requests with ReturnConsumedCapacity. Hold takes 1 unit.
//
// Source: docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html.
func DynamoDB() Law { return Law{Name: "capacity-units", Default: 1, Counts: Weights{Points: 1}} }
