package usage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// traffic are bodies of about a megabyte, as they come. Those of Gemini have numbers in each event, and are written without white
// space, and with a space behind each colon as Gemini itself does.
func traffic() map[string]struct {
	typ  string
	body []byte
} {
	rnd := rand.New(rand.NewPCG(1, 1))
	words := strings.Fields(`The quick brown fox jumps over the lazy dog when tokens are often given to a model that "writes" a\tprogram`)
	var text, plain, floats, events strings.Builder
	for text.Len() < 1<<20-4000 {
		fmt.Fprintf(&text, "%s ", strings.ReplaceAll(words[rnd.IntN(len(words))], `"`, `\"`))
		if rnd.IntN(12) == 0 {
			text.WriteString(`\n`)
		}
	}
	for plain.Len() < 1<<20 {
		plain.WriteString("data: " + chunk + "\n\n")
	}
	for floats.Len() < 1<<20-4000 {
		fmt.Fprintf(&floats, "%.9g,", rnd.Float64()-0.5)
	}
	for events.Len() < 1<<20 {
		fmt.Fprintf(&events, "event: content_block_delta\ndata: %s\n\n", anthropicText)
	}
	return map[string]struct {
		typ  string
		body []byte
	}{
		"chat":      {asJSON, []byte(strings.Replace(chat, "The ", text.String(), 1))},
		"stream":    {asStream, []byte(plain.String() + sse(used, "[DONE]"))},
		"anthropic": {asStream, []byte(anthropic + events.String() + sse(anthropicDelta))},
		"gemini":    {asStream, []byte(strings.Repeat(sse(geminiChunk), 1<<20/len(geminiChunk)))},
		"spaces":    {asStream, []byte(strings.Repeat(spaced(sse(geminiChunk)), 1<<20/len(geminiChunk)))},
		"embedding": {asJSON, []byte(`{"data":[{"embedding":[` + strings.TrimSuffix(floats.String(), ",") + `]}],"usage":{"prompt_tokens":8}}`)},
	}
}

// pieces cuts a body into pieces of one size, or into events: 0.
func pieces(body []byte, size int) (all [][]byte) {
	if size == 0 {
		return bytes.SplitAfter(body, []byte("\n\n"))
	}
	return slices.Collect(slices.Chunk(body, size))
}

// The pieces are those that come from a connection. On a machine that others use, compare the best of several runs of two builds, taken
// in turns, with -cpu 1.
func BenchmarkWatcher(b *testing.B) {
	for name, t := range traffic() {
		header := http.Header{"Content-Type": {t.typ}}
		for _, size := range []int{0, 512, 4 << 10, 32 << 10} {
			all := pieces(t.body, size)
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(t.body)))
				b.ReportAllocs()
				for b.Loop() {
					w := Watch(header)
					for _, p := range all {
						w.Write(p)
					}
					if u, ok := w.Usage(); !ok {
						b.Fatal(u)
					}
				}
			})
		}
	}
}

// What a search for one word costs, to compare with.
func BenchmarkContains(b *testing.B) {
	body := traffic()["stream"].body
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		bytes.Contains(body, []byte(`"prompt_tokenz"`))
	}
}
