package throttleotel

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The attributes. http.* and error.type are those of the semantic conventions.
const (
	policyAttr  = attribute.Key("throttle.policy")
	keyAttr     = attribute.Key("throttle.key")
	outcomeAttr = attribute.Key("throttle.outcome")
	reasonAttr  = attribute.Key("throttle.reason")
	sourceAttr  = attribute.Key("throttle.limit.source")
	limitAttr   = attribute.Key("throttle.limit")
	afterAttr   = attribute.Key("throttle.retry_after")
	waitAttr    = attribute.Key("throttle.wait")
	statusAttr  = attribute.Key("http.response.status_code")
	errorAttr   = attribute.Key("error.type")
	resendAttr  = attribute.Key("http.request.resend_count")
)

// others is the key that stands for those beyond Options.MaxKeys, and for the words beyond maxWords.
const others = "_other"

// maxWords bounds the words of one key, those of all attributes together: reasons, statuses, types of errors. What an
// upstream or a limiter makes up must not make series without end.
const maxWords = 32

// A series is what belongs to one key, or to all others.
type series struct {
	name   string               // throttle.key
	attrs  []attribute.KeyValue // throttle.policy and throttle.key
	set    metric.MeasurementOption
	record []metric.RecordOption // set, as a slice that need not be made for each measurement

	refused [outcomes]atomic.Uint64 // attempts that were not sent, by outcome
	sent    tally                   // these three under client.mu
	resent  tally
	meters  map[string]*settlement // by reason

	mu   sync.Mutex
	sets map[word][]metric.AddOption // with one or two attributes more
}

// A word is what an attribute set has beside policy and key: a text, or of statusAttr a number and throttle.retry_after.
type word struct {
	key   attribute.Key
	text  string
	code  int
	after bool
}

// newSeries makes the series of a key.
func newSeries(policy, key string) *series {
	s := &series{name: key, attrs: []attribute.KeyValue{policyAttr.String(policy), keyAttr.String(key)}}
	s.set = metric.WithAttributeSet(attribute.NewSet(s.attrs...))
	s.record = []metric.RecordOption{s.set}
	return s
}

// with is the attribute set of the key and one value more.
func (s *series) with(kv attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(s.attrs[:2:2], kv)...))
}

// add returns the prepared options for a word. They are made at its first use. Beyond maxWords it is those of "_other"
// or, for a status, of 0.
func (s *series) add(w word) []metric.AddOption {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opts, ok := s.sets[w]; ok {
		return opts
	}
	if len(s.sets) >= maxWords {
		if w.code = 0; w.key != statusAttr {
			w.text = others
		}
		if opts, ok := s.sets[w]; ok {
			return opts
		}
	}
	attrs := s.attrs[:2:2]
	if w.key == statusAttr {
		attrs = append(attrs, w.key.Int(w.code), afterAttr.Bool(w.after))
	} else {
		attrs = append(attrs, w.key.String(w.text))
	}
	opts := []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attrs...))}
	if s.sets == nil {
		s.sets = map[word][]metric.AddOption{}
	}
	s.sets[w] = opts
	return opts
}

// A table has the series of the first keys, and of the others. Looking up takes no lock: the map is never changed, only
// replaced by one with a key more, at most MaxKeys times.
type table struct {
	policy string
	most   int
	other  *series
	mu     sync.Mutex // held by who replaces keys
	keys   atomic.Pointer[map[string]*series]
}

// newTable makes an empty table.
func newTable(policy string, most int) *table {
	t := &table{policy: policy, most: most, other: newSeries(policy, others)}
	t.keys.Store(&map[string]*series{})
	return t
}

// of returns the series of a key. The first most keys that come get their own.
func (t *table) of(key string) *series {
	known := *t.keys.Load()
	if s := known[key]; s != nil {
		return s
	}
	if key == others || len(known) >= t.most {
		return t.other
	}
	return t.add(key)
}

// add gives a key a series, if there is still one to give. Of keys that would have one name, such as "\xff" and "\xfe", it
// is the first: a series that followed the counts of two would take the smaller one for a key that has come back when the
// larger one is dropped.
func (t *table) add(key string) *series {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := *t.keys.Load()
	if s := known[key]; s != nil {
		return s
	}
	if len(known) >= t.most {
		return t.other
	}
	name := strings.ToValidUTF8(key, "\uFFFD")
	if strings.ContainsRune(name, utf8.RuneError) {
		for _, s := range known {
			if s.name == name {
				return t.other
			}
		}
	}
	more := maps.Clone(known)
	more[key] = newSeries(t.policy, name)
	t.keys.Store(&more)
	return more[key]
}

// each visits the series of the keys, and last that of the others.
func (t *table) each(visit func(*series)) {
	for _, s := range *t.keys.Load() {
		visit(s)
	}
	visit(t.other)
}

// A tally follows a count of a key that the Transport forgets when it drops the key.
//
// An example: collections see 10, 30, nothing because the key was dropped, 5 and 6. The tally is 10, 30, 30, 35, 36. If
// the key was dropped at 34, the 4 are among the others: their tally is the count of all attempts without those of
// the keys that have their own.
type tally struct{ total, last uint64 }

// follow takes in what a collection sees; 0 if the key is not there. A count that is a little lower than before is that
// of a start which was taken back; one below half of it is that of a key that was dropped and has come back.
func (t *tally) follow(now uint64) {
	switch {
	case now >= t.last:
		t.total += now - t.last
	case now >= t.last/2:
		return // it will grow beyond last again
	default:
		t.total += now
	}
	t.last = now
}

// rest makes t what all have without what keys have, and never less than before.
func (t *tally) rest(all, keys uint64) {
	if all > keys {
		t.total = max(t.total, all-keys)
	}
}
