// Package usage reads what an HTTP response says it has cost: tokens of language models, points of GraphQL
// APIs, capacity units of DynamoDB. It needs the standard library alone, and is useful without the rest of the
// module.
//
//	u, ok := usage.Parse(resp.Header.Get("Content-Type"), body)
//	if ok {
//		fmt.Println(u.Input, "tokens in,", u.Output, "out")
//	}
//
// # Usage
//
// [Parse] reads a body that is in memory. A [Watcher] reads one as it passes, and neither delays, keeps nor
// changes a byte of it:
//
//	w := usage.Watch(resp.Header)
//	resp.Body = struct {
//		io.Reader
//		io.Closer
//	}{io.TeeReader(resp.Body, w), resp.Body}
//
// Both understand JSON, JSON lines, event streams (text/event-stream) and Bedrock's binary streams. They know where
// OpenAI, Azure, Anthropic, Gemini, Bedrock, Groq, Mistral, xAI, DeepSeek, Moonshot, Cohere, OpenRouter, Ollama and others put
// tokens, and Shopify, GitHub and DynamoDB their units. These places stand in a table, one [Dialect] a row. A [Parser] adds
// rows for the APIs that you know, as its example shows.
//
// Some APIs refuse a request for a limit after they have answered 200: by an error event in a stream, by a
// 429 in a document, or by GraphQL's errors. [Watcher.Refusal] returns what they say.
//
// A [Law] is how a provider charges one of its limits: what it holds when a request arrives, and what it has
// charged in the end. Its methods Hold and Settle compute both.
//
// # Concurrency
//
// Everything but a Watcher is safe for concurrent use. A Watcher belongs to one goroutine at a time, as a reader
// does. Nothing in this package starts a goroutine.
//
// # Expected behaviour
//
// A number counts only in its place: usage in a string, in a tool's arguments or elsewhere in a document is
// data. A number that is negative or beyond 64 bits is unknown, a fraction is rounded up, and null says nothing.
// A document that is not JSON says nothing. One that was cut off says what it had said by then, but is not Final.
//
// A line or a document may be as long as it likes: what is not kept is passed over, and at most 512 bytes of a name or a value
// are kept. Nothing is known about a body that is encoded (gzip, br) or of another type, but for what a header of Bedrock's
// says.
//
// # Testing
//
// Nothing here reads a clock or a network, so a test needs only bytes.
package usage
