package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/console"
)

const unknown = "-" // in place of an unknown value

// print writes the table as it stands now, in so many columns; 0: 80.
func (s *session) print(out io.Writer, columns int) error {
	lines := slices.SortedFunc(s.transport.Stats(), func(a, b throttle.KeyStats) int { return cmp.Compare(a.Key, b.Key) })
	title := word(s.cfg.url) + ": " + s.progress().text(s.cfg.calls, time.Since(s.began))
	fmt.Fprintf(out, "%s\n\n", console.Fill(title, columns, "  "))
	if err := printLearned(out, columns, lines); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return printLines(out, columns, lines)
}

// text is "30 of 60 calls after 1.5 s: 29 x 200, 1 x 404".
func (p progress) text(calls int, after time.Duration) string {
	text := fmt.Sprintf("%d of %d calls after %s", p.over, calls, span(after))
	separator := ": "
	for _, status := range slices.Sorted(maps.Keys(p.statuses)) {
		text += fmt.Sprintf("%s%d x %d", separator, p.statuses[status], status)
		separator = ", "
	}
	return text
}

// printLearned writes what the upstream says about its limits.
func printLearned(out io.Writer, columns int, lines []throttle.KeyStats) error {
	rows := [][]string{{"source", "name", "unit", "limit", "remaining", "resets in", "window", "pace"}}
	for _, line := range lines {
		for _, l := range line.Learned {
			rows = append(rows, []string{word(l.Source), word(l.Name), word(l.Unit), count(l.Limit), count(l.Remaining), span(l.Reset), window(l.Window), pace(l.Rate)})
		}
	}
	if len(rows) == 1 {
		_, err := fmt.Fprintln(out, "nothing is known of a limit")
		return err
	}
	return console.Print(out, columns, false, rows)
}

// printLines writes what the client does.
func printLines(out io.Writer, columns int, lines []throttle.KeyStats) error {
	rows := [][]string{{"line", "pace", "waiting", "in flight", "sent", "throttled", "gate"}}
	for _, line := range lines {
		rows = append(rows, []string{word(line.Key), pace(slowest(line)), strconv.Itoa(line.Waiting), strconv.Itoa(line.InFlight),
			strconv.FormatUint(line.Sent, 10), strconv.FormatUint(line.Throttled, 10), gate(line.QueueStats)})
	}
	return console.Print(out, columns, false, rows)
}

// slowest is the pace of a line: that of its slowest limit that counts requests.
func slowest(line throttle.KeyStats) rate.Limit {
	pace := line.Limit
	for _, l := range line.Learned {
		if l.Rate > 0 && (l.Unit == "" || l.Unit == "requests") {
			pace = min(pace, l.Rate)
		}
	}
	return pace
}

// description is a learned limit in words: "limit 20, window 2.0 s, name default, pace 10/s".
func description(l throttle.Learned) string {
	var words []string
	for _, w := range [][2]string{
		{"limit", count(l.Limit)}, {"unit", word(l.Unit)}, {"window", window(l.Window)}, {"name", word(l.Name)}, {"pace", pace(l.Rate)},
	} {
		if w[1] != unknown {
			words = append(words, w[0]+" "+w[1])
		}
	}
	return strings.Join(words, ", ")
}

// gate says whether the gate is open, and otherwise why it is not.
func gate(q throttle.QueueStats) string {
	if q.Reason == "" {
		return "open"
	}
	return fmt.Sprintf("closed for %s: %s", span(q.ClosedFor), q.Reason)
}

// word shows a text from the upstream, which may be anything. If it is not plain, it is quoted, so that it
// cannot control the terminal; if it is long, it is cut.
func word(text string) string {
	const most = 60
	if text == "" {
		return unknown
	}
	if len(text) > most {
		text = text[:most] + "..."
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return strconv.Quote(text)
	}
	return text
}

func count(n int64) string {
	if n < 0 {
		return unknown
	}
	return strconv.FormatInt(n, 10)
}

func pace(r rate.Limit) string {
	switch {
	case r <= 0:
		return unknown
	case r == rate.Inf:
		return "free"
	case r >= 100:
		return fmt.Sprintf("%.0f/s", float64(r))
	}
	return fmt.Sprintf("%.3g/s", float64(r))
}

func window(d time.Duration) string {
	if d <= 0 {
		return unknown
	}
	return span(d)
}

func span(d time.Duration) string {
	switch {
	case d < 0:
		return unknown
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
