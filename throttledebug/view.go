package throttledebug

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxRows   = 100       // in view
	maxSearch = 256       // bytes of a search
	fewRows   = 1000      // up to which the first rows are picked rather than all sorted
	newest    = "waiting" // the column that sorts if nobody has said
)

// A view is what somebody wants to see: the words of a query. It is a value. Links are made by changing a copy: the
// heading of a column is v.by("sent").link(), which keeps the search and the chosen key.
//
// The address of the page holds all of it, so a reload, a bookmark and a link to a colleague show the same.
type view struct {
	// search is as it was typed, at most maxSearch bytes. "": everything.
	search string

	// sort is the id of a column; reverse turns its order round.
	sort    string
	reverse bool

	// from is how many rows come before those in view.
	from int

	// name and key are of the chosen key, as quoted makes them; both "": none is chosen.
	name, key string
}

// parseView reads a query. What it does not understand counts as not said: a link from an older version, or one that
// somebody has typed, shows a page in any case.
func parseView(q url.Values) view {
	v := view{search: q.Get("q"), name: q.Get("name"), key: q.Get("key"), sort: newest}
	v.search = strings.ToValidUTF8(v.search[:min(len(v.search), maxSearch)], "")
	id, reverse := strings.CutPrefix(q.Get("sort"), "-")
	if columnOf(id) != nil {
		v.sort, v.reverse = id, reverse
	}
	if n, err := strconv.Atoi(q.Get("from")); err == nil && n > 0 {
		v.from = n
	}
	return v
}

// link returns the query of the view as a relative reference, "?q=mail&sort=-sent". What is as usual is left out. "?"
// alone is the page as it is first seen.
func (v view) link() string {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("q", v.search)
	set("name", v.name)
	set("key", v.key)
	if sort := v.sorted(); sort != newest {
		set("sort", sort)
	}
	if v.from > 0 {
		set("from", strconv.Itoa(v.from))
	}
	return "?" + q.Encode()
}

// sorted is the column as a query has it, with - if it is turned round.
func (v view) sorted() string {
	if v.reverse {
		return "-" + v.sort
	}
	return v.sort
}

// chosen reports whether a key is.
func (v view) chosen() bool { return v.name != "" || v.key != "" }

// by returns the view sorted by a column. A click on the column that sorts already turns it round. The first row comes
// first again, because the hundredth of another order is nothing to anybody.
func (v view) by(id string) view {
	v.reverse = v.sort == id && !v.reverse
	v.sort, v.from = id, 0
	return v
}

// choose returns the view with a key chosen.
func (v view) choose(name, key string) view {
	v.name, v.key = name, key
	return v
}

// at returns the view of other rows.
func (v view) at(from int) view {
	v.from = max(0, from)
	return v
}

// matches reports whether a row is searched for. Upper and lower case are the same. It is the key itself that is
// searched, so a line break in it is found by a line break, not by \n.
func (v view) matches(r *row, search string) bool {
	return search == "" || strings.Contains(strings.ToLower(r.Key), search) || strings.Contains(strings.ToLower(r.name), search)
}

// rows returns the rows from v.from on, at most so many, and how many match.
//
// Sorting 10,000 rows costs some milliseconds a second for each stream, and nobody looks at more than the first ones.
// So the best are kept in a short sorted list while all others pass. An example: of 10,000 rows in random order the
// first 100 fill the list, and of the rest about 460 enter it; all others cost one comparison.
func (v view) rows(s *sample, most int) (rows []*row, found int) {
	order := v.order(s.at)
	search := strings.ToLower(v.search)
	keep := min(v.from, len(s.rows)) + most
	all := keep > fewRows
	for i := range s.rows {
		r := &s.rows[i]
		if !v.matches(r, search) {
			continue
		}
		found++
		switch {
		case all:
			rows = append(rows, r)
			continue
		case keep == 0:
			continue
		case len(rows) == keep && order(r, rows[keep-1]) > 0:
			continue
		case len(rows) == keep:
			rows = rows[:keep-1]
		}
		place, _ := slices.BinarySearchFunc(rows, r, order)
		rows = slices.Insert(rows, place, r)
	}
	if all {
		slices.SortFunc(rows, order)
	}
	rows = rows[min(v.from, len(rows)):]
	return rows[:min(most, len(rows))], found
}

// order returns the comparison of the view. at is the sample's moment, for columns that are times until or since. Rows that are the same in the column are in the order of their names and
// keys, so that they stay where they are from one tick to the next.
func (v view) order(at time.Time) func(a, b *row) int {
	c := columnOf(v.sort)
	return func(a, b *row) int {
		first := c.compare(a, b, at)
		if v.reverse {
			first = -first
		}
		return cmp.Or(first, strings.Compare(a.name, b.name), strings.Compare(a.Key, b.Key))
	}
}

// find returns the chosen row, or nil. Looking at 10,000 rows takes 50 µs, and a map of them would have to be made anew
// each second.
func (v view) find(s *sample) *row {
	name, key := unquoted(v.name), unquoted(v.key)
	for i := range s.rows {
		if r := &s.rows[i]; r.Key == key && r.name == name {
			return r
		}
	}
	return nil
}
