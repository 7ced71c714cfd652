package usage

// Dialect is one row of the table: where one API puts its numbers in a JSON document, or in the documents of its
// event stream, and where its requests say how long an answer may be. Every part of it is optional.
//
// A place is a path of member names with dots between them: "usage.prompt_tokens" is 12 in
//
//	{"usage": {"prompt_tokens": 12}}
//
// Arrays have no name in it: "errors.type" is the type of each error in a list of errors. Only this very place
// counts, so the same names deeper in a document are data. A name may have up to 64 bytes, and a place up to 8
// names.
//
// For an API that sends {"meta": {"billed": {"in": 12, "out": 5}}} and is asked with {"limits": {"tokens": 500}}, the
// row is
//
//	usage.Dialect{Input: "meta.billed.in", Output: "meta.billed.out", Bound: "limits.tokens"}
type Dialect struct {
	// Input, Output, Total, CacheRead, CacheWrite, Reasoning and Points are the places of these numbers of [Usage].
	// If a place occurs several times, the last one counts, but 0 says nothing after a larger number. Strings are not
	// numbers.
	Input, Output, Total, CacheRead, CacheWrite, Reasoning, Points string

	// Sum adds up what Points says if its place occurs several times in a document.
	Sum bool

	// Last is a place that the closing document of a stream has, and that is null or missing in earlier ones with
	// numbers of this row. "": each document with numbers may be the closing one.
	Last string

	// More is a place whose null says that a document of a stream is not the closing one.
	More string

	// Code is the place of the code of an error, a string or a number.
	Code string

	// Throttled are the codes that mean: refused for a limit. Overloaded are those that mean: the upstream is in
	// trouble, whatever the rate of requests. A code has up to 64 bytes. "429" is the number too, and "rate_limit*" is
	// each code that begins so, in capitals or not.
	Throttled, Overloaded []string

	// Message is the place of an error's text. "Try again in 1.5s" and "retry after 20 seconds" in its first 512
	// bytes are the wait. Delay is the place of a wait on its own, such as "39s", or a number of seconds.
	Message, Delay string

	// Wanted, Available and Rate are the places of what a refused request would have cost, what is left, and what
	// comes back in a second. The wait is (Wanted - Available) / Rate.
	Wanted, Available, Rate string

	// Bound is the place in a request that bounds the output, in tokens, and Answers the place of how many answers it
	// asks for, each with that bound. They are for [Law.Hold].
	Bound, Answers string

	weak   bool // numbers of this row count only if the document has not said them otherwise
	worded bool // codes of this row, which may be data, count only if Message speaks of a limit
}
