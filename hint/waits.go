package hint

import (
	"strings"
	"time"
	"unicode"
)

// This file reads waits in words: the names of JSON members, and sentences.

// maxAmount is how many words an amount has at most, with those before it, as in "about another 1 minute and 30 seconds".
const maxAmount = 12

// sort is what a word does in the name of a wait.
type sort uint8

const (
	filler  sort = iota // nothing by itself
	order               // asks for a wait: retry, wait
	retry               // the same, but not alone
	end                 // names the end of a window: reset
	left                // the same, beside a word for time: seconds_left
	stretch             // a length, which is a wait only of a wait: retry_interval, and not reset_interval
	limits              // what a limit is called; a name that ends with it has the size of a limit: retry_limit
	times               // a word for time
)

// words are those that names of waits consist of. A name with any other word is no wait: retry_count, max_wait.
var words = []struct {
	word string
	sort sort
	unit time.Duration
}{
	{"wait", order, 0}, {"waiting", order, 0}, {"backoff", order, 0}, {"cooldown", order, 0}, {"delay", order, 0}, {"tryagain", order, 0},
	{"retry", retry, 0},
	{"reset", end, 0}, {"resets", end, 0}, {"until", end, 0}, {"resume", end, 0}, {"resumes", end, 0}, {"refill", end, 0}, {"renews", end, 0},
	{"unblock", end, 0}, {"unlock", end, 0}, {"unlocks", end, 0}, {"replenished", end, 0},
	{"left", left, 0}, {"remaining", left, 0}, {"next", end, 0}, {"available", left, 0}, {"estimated", retry, 0},
	{"interval", stretch, 0}, {"period", stretch, 0}, {"duration", stretch, 0},
	{"limit", limits, 0}, {"rate", limits, 0}, {"quota", limits, 0},
	{"in", times, 0}, {"at", times, 0}, {"after", times, 0}, {"time", times, 0}, {"date", times, 0}, {"timestamp", times, 0},
	{"for", filler, 0}, {"to", filler, 0}, {"before", filler, 0}, {"the", filler, 0}, {"x", filler, 0}, {"error", filler, 0}, {"request", filler, 0},
	{"recommended", filler, 0}, {"suggested", filler, 0}, {"expected", filler, 0}, {"minimum", filler, 0}, {"window", filler, 0},
	{"daily", filler, 0}, {"blocked", filler, 0}, {"banned", filler, 0}, {"locked", filler, 0}, {"throttle", retry, 0}, {"throttled", retry, 0},
	{"unix", filler, 0}, {"epoch", filler, 0}, {"utc", filler, 0}, {"allowed", filler, 0}, {"attempt", filler, 0}, {"can", filler, 0},
	{"ms", times, time.Millisecond}, {"msec", times, time.Millisecond}, {"msecs", times, time.Millisecond}, {"millis", times, time.Millisecond},
	{"millisecond", times, time.Millisecond}, {"milliseconds", times, time.Millisecond},
	{"s", times, time.Second}, {"sec", times, time.Second}, {"secs", times, time.Second}, {"second", times, time.Second}, {"seconds", times, time.Second},
	{"m", times, time.Minute}, {"min", times, time.Minute}, {"mins", times, time.Minute}, {"minute", times, time.Minute}, {"minutes", times, time.Minute},
	{"h", times, time.Hour}, {"hr", times, time.Hour}, {"hrs", times, time.Hour}, {"hour", times, time.Hour}, {"hours", times, time.Hour},
	{"d", times, day}, {"day", times, day}, {"days", times, day},
}

// waitName reports whether a member of that name has a wait, and in which unit, if the name says so. It cuts off word after
// word, the longest first, whether or not anything stands between them:
//
//	retry_after, retryAfterMs, retry-delay     ordered
//	x-ratelimit-reset, blockedUntil, time_left windowed
//	retry_count, next, time, retry_limit       none
func waitName(name string) (r rank, unit time.Duration) {
	if len(name) > maxName {
		return noWait, 0
	}
	var has [times + 1]bool
	last, n := filler, 0
	for s := letters(name); s != ""; n++ {
		best := -1
		for i := range words {
			if len(words[i].word) == 1 && words[i].unit > 0 && len(s) > 1 { // a plural: requests_remaining
				continue
			}
			if strings.HasPrefix(s, words[i].word) && (best < 0 || len(words[i].word) > len(words[best].word)) {
				best = i
			}
		}
		if best < 0 {
			return noWait, 0
		}
		w := &words[best]
		if last = w.sort; w.unit > 0 {
			unit = w.unit
		}
		has[last], s = true, s[len(w.word):]
	}
	switch {
	case last == limits:
		return noWait, 0
	case has[order], has[retry] && (has[times] || has[stretch] || has[end]):
		return ordered, unit
	case has[stretch]:
		return noWait, 0
	case has[end] && (n > 1 || !strings.EqualFold(name, "next")), has[left] && has[times]:
		return windowed, unit
	}
	return noWait, 0
}

// waitIn returns the wait that a sentence asks for; 0: none.
//
//	Please try again in 1m2.5s.                              OpenAI
//	Request was throttled. Expected available in 53 seconds. Django REST framework
//	Too Many Requests: retry after 35                        Telegram
//	Quota will be replenished in 00:06:12.                   Azure API Management
//	IP banned until 1589213141000.                           Binance
//
// A number of other things, as in "100 requests in 60 seconds", is not a wait: "in" and "for" count behind some words only. Of
// several waits the longest counts.
func (c clock) waitIn(text string) (wait time.Duration) {
	if strings.IndexFunc(text, unicode.IsDigit) < 0 && !strings.Contains(text, " a") && !strings.Contains(text, " few ") {
		return 0
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(",;!?()[]\"'`=~<>|", r) })
	prev := ""
	for i, w := range words {
		w = strings.ToLower(strings.TrimRight(w, ".:"))
		words[i] = w
		before := prev
		prev = w
		asks := before == "retry" || before == "again"
		switch w {
		case "after", "wait":
		case "retry-after", "retry_after", "retryafter":
			asks = true
		case "in", "for":
			if !asks && !beforeSpan[before] {
				continue
			}
		case "at", "until":
			wait = max(wait, c.momentIn(words[i+1:]))
			continue
		default:
			if strings.HasSuffix(w, "throttled") { // Kraken
				wait = max(wait, c.momentIn(words[i+1:]))
			}
			continue
		}
		var rest []string
		for _, next := range words[i+1 : min(i+1+maxAmount, len(words))] {
			bare := strings.TrimRight(next, ".:")
			if rest = append(rest, strings.ToLower(bare)); bare != next {
				rest = append(rest, "") // the sentence ends
			}
		}
		wait = max(wait, c.amount(rest, asks))
	}
	return wait
}

// beforeSpan are words before "in" and "for" and a wait.
var beforeSpan = map[string]bool{
	"available": true, "replenished": true, "reset": true, "resets": true, "resume": true, "resumes": true, "back": true, "wait": true,
	"break": true, "blocked": true, "banned": true, "locked": true, "limited": true, "suspended": true, "throttled": true, "retrying": true,
	"retried": true, "allowed": true, "refreshes": true, "renews": true, "refills": true, "unlocked": true, "lifted": true, "paused": true,
	"ready": true, "refreshed": true,
}

// momentIn returns the time until the moment at the begin of words, of which it may take three; 0: there is none, or it has
// passed.
func (c clock) momentIn(words []string) time.Duration {
	c.order = true
	for n := 1; n <= min(3, len(words)); n++ {
		text := strings.TrimRight(strings.Join(words[:n], " "), ".:")
		if d, ok := c.reset(text, 0); ok && len(text) > 8 { // a shorter number counts something else
			return d
		}
	}
	return 0
}

// amount reads a span at the begin of words in small letters: 9.5s, 9 seconds, about 1 minute and 30 seconds, 00:00:09, a few
// minutes (which is one at least). bare: a number alone is a number of seconds, unless something else is counted.
func (c clock) amount(words []string, bare bool) (d time.Duration) {
	for i, skipped := 0, 0; i < len(words); i++ {
		w := words[i]
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch w {
		case "about", "around", "approximately", "roughly", "at", "least", "another", "for", "after", "up", "to", "the", "next", "and", "few", "time":
			if skipped++; skipped > 4 {
				return d
			}
			continue
		case "a", "an", "one", "some", "several":
			if next == "few" && i+2 < len(words) {
				next = words[i+2]
			}
			unit := spanUnit(next)
			if unit == 0 {
				return d
			}
			return d + min(unit, maxWait-d)
		}
		one, took := span(w, next)
		if took == 0 {
			if bare && d == 0 && isDecimal(w) && (next == "" || unicode.IsDigit(rune(next[0]))) {
				one, _ = parseDecimal(w, time.Second)
			}
			return d + min(one, maxWait-d)
		}
		d += min(one, maxWait-d)
		i += took - 1
	}
	return d
}

// span reads a span in one word or two; took is how many it took, 0: it is none.
func span(w, next string) (d time.Duration, took int) {
	if isDecimal(w) {
		if unit := spanUnit(next); unit > 0 {
			d, _ = parseDecimal(w, unit)
			return d, 2
		}
		return 0, 0
	}
	if strings.HasPrefix(w, "pt") {
		w = strings.ToUpper(w)
	}
	if w != "" {
		if d, ok := parseSpan(w); ok {
			return d, 1
		}
	}
	return 0, 0
}
