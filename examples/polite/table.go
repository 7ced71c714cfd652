package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

const unknown = "-" // in place of an unknown value

// print writes the table as it stands now.
func (s *session) print(out io.Writer) error {
	lines := slices.SortedFunc(s.transport.Stats(), func(a, b throttle.KeyStats) int { return cmp.Compare(a.Key, b.Key) })
	fmt.Fprintf(out, "%s: %s\n\n", word(s.cfg.url), s.progress().text(s.cfg.calls, time.Since(s.began)))
	if err := printLearned(out, lines); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return printLines(out, lines)
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
func printLearned(out io.Writer, lines []throttle.KeyStats) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "source\tname\tunit\tlimit\tremaining\tresets in\twindow\tpace")
	none := true
	for _, line := range lines {
		for _, l := range line.Learned {
			none = false
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", word(l.Source), word(l.Name), word(l.Unit),
				count(l.Limit), count(l.Remaining), span(l.Reset), window(l.Window), pace(l.Rate))
		}
	}
	if none {
		fmt.Fprintln(w, "nothing is known of a limit")
	}
	return w.Flush()
}

// printLines writes what the client does.
func printLines(out io.Writer, lines []throttle.KeyStats) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "line\tpace\twaiting\tin flight\tsent\tthrottled\tgate")
	for _, line := range lines {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", word(line.Key), pace(slowest(line)),
			line.Waiting, line.InFlight, line.Sent, line.Throttled, gate(line.QueueStats))
	}
	return w.Flush()
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
	if q.Cause == "" {
		return "open"
	}
	return fmt.Sprintf("closed for %s: %s", span(q.ClosedFor), q.Cause)
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
