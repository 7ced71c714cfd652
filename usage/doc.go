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
// Both understand JSON and event streams (text/event-stream) of OpenAI (chat, responses, embeddings), Azure,
// Anthropic, Gemini, Bedrock, Groq and Mistral, and JSON of Shopify, GitHub and DynamoDB. The places where these
// APIs put their numbers stand in a table, one [Dialect] a row. A [Parser] adds rows for the APIs that you know.
//
// Some APIs refuse a request for a limit after they have answered 200: by an error event in a stream, or by
// GraphQL's errors. [Watcher.Refusal] returns what they say.
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
// At most 64 KiB of a stream's line and 1 MiB of a JSON body are read. A longer line is skipped, and about a
// longer body nothing is known, nor about one that is encoded (gzip, br) or of another type, such as Bedrock's
// binary event stream.
//
// # Testing
//
// Nothing here reads a clock or a network, so a test needs only bytes.
package usage
