package usage

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// FuzzPieces: however a body is cut, the pieces say what the whole says; the numbers make sense; and the reader of
// the body gets every byte.
func FuzzPieces(f *testing.F) {
	for _, b := range bodies {
		if len(b.body) < 5000 {
			f.Add(b.typ, []byte(b.body), uint64(len(b.body)/3), uint64(7))
		}
	}
	f.Add(asStream, []byte("data: {\"a\":[\r\rdata: {\"usage\":\rdata:{\"prompt_tokens\":1}}\r\n\r\ndata: [DONE]\n\n"), uint64(9), uint64(4))
	f.Add(asJSON, []byte(`{"error":{"code":503,"type":"slow_down"},"code":429,"message":"limit"}{"a":1}`), uint64(40), uint64(2))
	f.Add(asStream, []byte("data:  [DONE]\ndata: [DONE ]\ndata:[ DONE]\n\ndata: "+used), uint64(3), uint64(1))
	f.Fuzz(func(t *testing.T, typ string, body []byte, first, size uint64) {
		header := http.Header{"Content-Type": {typ}}
		want, known := Parse(typ, body)
		if known != (want != unknown) || slices.Min([]int64{want.Input, want.Output, want.CacheRead, want.CacheWrite, want.Reasoning, want.Points}) < -1 {
			t.Fatalf("%+v, %v", want, known)
		}
		w, n := Watch(header), int(first%uint64(len(body)+1))
		tee := io.TeeReader(bytes.NewReader(body), w)
		var got []byte
		for buf := make([]byte, max(n, 1)); ; buf = make([]byte, 1+size%97) {
			n, err := tee.Read(buf)
			if got = append(got, buf[:n]...); err != nil {
				break
			}
			w.Usage()
			w.Refusal()
		}
		if !bytes.Equal(got, body) {
			t.Fatal("the body has changed")
		}
		if u, ok := w.Usage(); u != want || ok != known {
			t.Fatalf("%+v, %v in pieces; %+v, %v at once", u, ok, want, known)
		}
		one := Watch(header)
		one.Write(body)
		refusal, refused := one.Refusal()
		if r, ok := w.Refusal(); r != refusal || ok != refused || r.RetryAfter < 0 || ok != (r.Code != "") {
			t.Fatalf("%+v, %v in pieces; %+v, %v at once", r, ok, refusal, refused)
		}
	})
}

// FuzzDocument compares documents with what encoding/json finds in the same places.
func FuzzDocument(f *testing.F) {
	for _, b := range bodies {
		if len(b.body) < 5000 && kindOf(b.typ) == document {
			f.Add([]byte(b.body))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) || bytes.Contains(body, []byte(`\`)) || kindIs(body) != document {
			return // names with escapes are not looked for
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		want := unknown
		e := event{}
		walk(d, "$", 0, &want, &e)
		want.Final = true
		got, _ := Parse(asJSON, body)
		if want.Final = want != final(); got != want {
			t.Fatalf("%s\n%+v, by encoding/json %+v", body, got, want)
		}
	})
}

// kindIs says how a body of an unknown type is read.
func kindIs(body []byte) kind {
	if b := bytes.TrimLeft(body, " \t\r\n"); len(b) > 0 && (b[0] == '{' || b[0] == '[') {
		return document
	}
	return stream
}

// places are the places of numbers, by the rows.
var places = sync.OnceValue(func() map[string]node {
	all := map[string]node{}
	add := func(home string, d *Dialect, weak bool) {
		for i, path := range [...]string{d.Input, d.Output, d.CacheRead, d.CacheWrite, d.Reasoning, d.Points, d.Total} {
			if place := home + path; path != "" && all[place].role == nothing {
				all[place] = node{role: input + role(i), sum: d.Sum, weak: weak}
			}
		}
	}
	for _, d := range providers {
		add("", &d, false)
	}
	for _, d := range objects {
		for _, home := range homes {
			add(home+".", &d, false)
		}
		for _, home := range counted {
			add(home+".", &d, true)
		}
	}
	return all
})

// placed returns the row of a place: usage objects are alike wherever they stand.
func placed(path string) node {
	all := places()
	n := all[path]
	for _, home := range homes {
		if rest, found := strings.CutPrefix(path, home+"."); found && n.role == nothing {
			n = all["usage."+rest]
		}
	}
	for _, home := range counted {
		if rest, found := strings.CutPrefix(path, home+"."); found && n.role == nothing {
			n = all["usage.tokens."+rest]
		}
	}
	return n
}

// walk reads a value at path with encoding/json, and takes the numbers that the rows name. Levels beyond those
// that a scanner enters are left out.
func walk(d *json.Decoder, path string, depth int, u *Usage, e *event) {
	token, err := d.Token()
	if err != nil {
		return
	}
	deep := "\x00" + path
	if depth < maxLevels {
		deep = path
	}
	switch v := token.(type) {
	case json.Delim:
		for d.More() {
			inner := deep
			if v == '{' {
				name, _ := d.Token()
				inner = deep + "." + strings.ReplaceAll(name.(string), ".", "\x00")
			}
			walk(d, inner, depth+1, u, e)
		}
		d.Token()
	case json.Number:
		n := placed(strings.TrimPrefix(path, "$."))
		if n.role == nothing {
			return
		}
		to := []*int64{&u.Input, &u.Output, &u.CacheRead, &u.CacheWrite, &u.Reasoning, &u.Points, &u.Total}[n.role-input]
		v64, said := ceil(string(v)), e.said[n.role]
		if said && (n.weak || v64 == 0 && *to > 0 && !n.sum) {
			return
		}
		if n.sum && said {
			if v64 += *to; *to < 0 || v64 < *to {
				v64 = -1
			}
		}
		*to, e.said[n.role] = v64, true
	}
}

// ceil reads a number, rounded up; -1: it makes no sense.
func ceil(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil {
		return max(n, -1)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f == 0 && s[0] == '-' || math.Ceil(f) >= math.MaxInt64 || len(s) > maxText {
		return -1
	}
	return int64(math.Ceil(f))
}

// FuzzFinder: no word is missed, and what is found is a piece of one.
func FuzzFinder(f *testing.F) {
	f.Add("usage tokens ab", []byte("xxusagtokens"))
	f.Add("_tokens", []byte("xx_tokens"))
	f.Add("_tokens", []byte("_tokens"))
	f.Add(`"prompt_tokens" "rateLimit"`, []byte(`{"rateLimi","rateLimit"}`))
	f.Fuzz(func(t *testing.T, list string, text []byte) {
		words := slices.DeleteFunc(strings.Fields(list), func(w string) bool { return len(w) < 2 })
		if len(words) == 0 || len(list) > 200 {
			return
		}
		finder := find(words)
		at := finder.in(text)
		for _, w := range words {
			if first := bytes.Index(text, []byte(w)); first >= 0 && (at < 0 || at > first+len(w)-2) {
				t.Fatalf("%q in %q: at %d, want %q at %d", words, text, at, w, first)
			}
		}
		if at >= 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, string(text[at:at+finder.size])) }) {
			t.Fatalf("%q in %q: at %d is none", words, text, at)
		}
	})
}

// A body arrives as it was sent, in whatever pieces it is read.
func TestBodyIsUnchanged(t *testing.T) {
	for _, b := range bodies {
		readers := []func(io.Reader) io.Reader{iotest.HalfReader, iotest.DataErrReader, iotest.OneByteReader}
		if len(b.body) > 50_000 {
			readers = readers[:2]
		}
		for _, reader := range readers {
			w := Watch(http.Header{"Content-Type": {b.typ}})
			hash := sha256.New()
			if _, err := io.Copy(hash, io.TeeReader(reader(strings.NewReader(b.body)), w)); err != nil {
				t.Fatal(err)
			}
			if want := sha256.Sum256([]byte(b.body)); !bytes.Equal(hash.Sum(nil), want[:]) {
				t.Errorf("%s: the body has changed", b.name)
			}
			if u, _ := w.Usage(); u != b.want {
				t.Errorf("%s: %+v, want %+v", b.name, u, b.want)
			}
		}
	}
}
