package usage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// traffic are bodies of about a megabyte, as they come.
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
		"embedding": {asJSON, []byte(`{"data":[{"embedding":[` + strings.TrimSuffix(floats.String(), ",") + `]}],"usage":{"prompt_tokens":8}}`)},
	}
}

// The rest of a body's way is a copy at 10 GB/s at best, so the pieces are those that come from a connection.
func BenchmarkWatcher(b *testing.B) {
	for name, t := range traffic() {
		header := http.Header{"Content-Type": {t.typ}}
		for _, size := range []int{512, 4 << 10, 32 << 10} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(t.body)))
				b.ReportAllocs()
				for b.Loop() {
					w := Watch(header)
					for body := t.body; len(body) > 0; body = body[min(size, len(body)):] {
						w.Write(body[:min(size, len(body))])
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
