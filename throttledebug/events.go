package throttledebug

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

const (
	maxEvent = 32 << 10         // bytes
	patience = 10 * time.Second // that a reader may take for one event
)

// An event is what a stream sends at each tick. The rows are the cells of the table, already in words. If nothing but
// the time has changed since the event before, only that is sent: it keeps proxies from closing a quiet stream, and
// moves the charts on.
//
// Two events of a quiet page:
//
//	data: {"time":1777896000000,"totals":"1 key, 0 waiting, ...","found":1,"from":0,"rows":[["api",...]],"chosen":null}
//
//	data: {"time":1777896001000}
type event struct {
	// Time is that of the sample, in milliseconds since 1970.
	Time int64 `json:"time"`

	// Totals are of all keys, Found are those that match the search, From is how many of them come before the rows.
	Totals string `json:"totals,omitzero"`
	Found  int    `json:"found"`
	From   int    `json:"from"`

	// Rows are the cells, each row encoded already, because its size decides whether it fits. Chosen is null if no key
	// is chosen.
	Rows   []json.RawMessage `json:"rows"`
	Chosen *details          `json:"chosen"`
}

// events is the stream of one browser. The goroutine is the request's own: it sleeps until the next tick, writes, and
// ends when the reader has gone or is too slow. What can happen at once:
//
//	the reader goes while it sleeps     its ctx ends, and so does the stream
//	the reader goes while it writes     the write fails
//	the reader does not read            the write waits for its deadline, then fails; ticks missed meanwhile are skipped
//
// In each case the deferred leave makes a place for another stream.
func (p *page) events(w http.ResponseWriter, r *http.Request) {
	if !p.board.join() {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "too many pages are open already")
		return
	}
	defer p.board.leave()
	s := stream{w: w, out: http.NewResponseController(w), view: parseView(r.URL.Query())}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would wait for more

	// The first event comes at once, and shows this moment; the next ones come with those of the other streams.
	if s.send(p.board.now()) != nil {
		return
	}
	timer := time.NewTimer(untilTick())
	defer timer.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-timer.C:
		}
		if s.send(p.board.tick()) != nil {
			return
		}
		timer.Reset(untilTick())
	}
}

// untilTick, asked at 12:00:00.3, is 700 ms: the time until the next whole interval of the clock, which is the same for all streams.
func untilTick() time.Duration {
	now := time.Now()
	return now.Truncate(interval).Add(interval).Sub(now)
}

// A stream is one that is open. Its view does not change: for another one the browser opens another stream. last is the
// newest full event without its time, to see whether anything has changed since.
type stream struct {
	w    http.ResponseWriter
	out  *http.ResponseController
	view view
	last []byte
}

// send writes one event. Every event has a deadline of its own, because a server's WriteTimeout counts from the
// beginning of the request. Where there is no deadline to be set (a middleware, HTTP in a test) there is none. Without
// Flush the event could not leave: the stream ends, and the browser asks again after three seconds.
func (s *stream) send(sample *sample) error {
	var text bytes.Buffer
	text.WriteString("data: ")
	text.Write(s.text(sample))
	text.WriteString("\n\n")
	s.out.SetWriteDeadline(time.Now().Add(patience))
	if _, err := s.w.Write(text.Bytes()); err != nil {
		return err
	}
	return s.out.Flush()
}

// text is the JSON of one event: all of it, or the time alone if the rest is as it was. Both are compared as text, because
// what looks the same is the same to the reader.
func (s *stream) text(sample *sample) []byte {
	e := eventOf(sample, s.view)
	full := encode(e)
	if s.last != nil && bytes.Equal(s.last, full) {
		return encode(struct {
			Time int64 `json:"time"`
		}{sample.at.UnixMilli()})
	}
	s.last = full
	e.Time = sample.at.UnixMilli()
	return encode(e)
}

// eventOf makes the event of a view, without its time. Rows are added until the event is full: 100 hosts take about
// 9 KiB, 100 keys of 256 control characters each would take 130. If fewer rows fit than 100, the script's link to the next
// ones begins after the last that came, so that none is left out.
func eventOf(s *sample, v view) *event {
	e := &event{Totals: s.totals.String(), From: v.from, Rows: []json.RawMessage{}, Chosen: s.detailsOf(v)}
	left := maxEvent - 256 - len(encode(e))
	rows, found := v.rows(s, maxRows)
	for _, r := range rows {
		text := encode(r.cells(s.at))
		if left -= len(text) + 1; left < 0 {
			break
		}
		e.Rows = append(e.Rows, text)
	}
	e.Found = found
	return e
}

// encode is JSON on one line, as an event needs it: a line break in a key is \n in the JSON and \\n in what quoted makes of
// it. It is never read as HTML, so < stays one byte.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(errors.Join(errors.New("throttledebug: a value of its own does not fit JSON"), err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
