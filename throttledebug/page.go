package throttledebug

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
)

// layout is the page. html/template escapes whatever is put into it, by where it is put: a key in a link is percent-
// encoded, in a cell <b> becomes &lt;b&gt;. The template is parsed when the program starts; it is a part of it.
var layout = template.Must(template.ParseFS(web, "web/page.html"))

// A screen is what the page without script shows. The script begins with the same: it changes the texts, and makes rows
// of the same form.
type screen struct {
	Title string
	View  view

	// The line above everything: the sums of all keys, and their moment. The script replaces the moment by
	// "live".
	Totals, At string

	// Problems are what is wrong with the map of Transports. They do not change while the program runs.
	Problems []string

	// Search is what is searched for, and Sort the order as a query has it. Both stand in the form, so that a search
	// keeps the order.
	Search, Sort string

	// The table: its headings, the rows in view, and if there are none, why.
	Columns []heading
	Rows    []line
	Empty   string

	// Range says which rows these are, "1 to 100 of 10,000". Before and After are links to the rows around them; "" if
	// there are none.
	Range, Before, After string

	// Chosen are the details of the chosen key, nil if none is chosen; Heads are the headings of the small tables in
	// them, and Close is the link that chooses none.
	Chosen *details
	Heads  [3][]string
	Close  string

	// Single is one Transport: its name need not be repeated in each row. Controls: there are buttons.
	Single, Controls bool
}

// A heading is a column's. Its link sorts by the column, or turns the order round if it is sorted by it already; Sort is
// then ascending or descending, for the arrow and for those who hear the page instead of seeing it.
type heading struct {
	Title, Help, Link, Class, Sort string
}

// A line is a row's. Its link chooses the key and keeps everything else of the view.
type line struct {
	Cells  []cell
	Link   string
	Chosen bool
}

// A cell has its text and how it looks. The one that is the key holds the link.
type cell struct {
	Text, Class string
	Key         bool
}

// table serves the page. It is made in memory first, so that an error is an answer of its own and not half a page.
func (p *page) table(w http.ResponseWriter, r *http.Request) {
	if to := slashless(r); to != "" {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	var b bytes.Buffer
	if err := layout.Execute(&b, p.screen(p.board.now(), parseView(r.URL.Query()))); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(b.Bytes())
}

// screen fills the page. It does what eventOf does for a stream, with links: those of the headings, the rows, and the
// pages before and after. Each is the view with one thing changed, so without script one click is one GET.
func (p *page) screen(s *sample, v view) *screen {
	rows, found := v.rows(s, maxRows)
	c := &screen{
		Title: "throttle", Totals: s.totals.String(), At: s.at.UTC().Format("15:04:05 UTC"), Problems: s.problems(),
		View: v, Search: v.search, Sort: v.sorted(), Empty: s.empty(v), Range: rangeOf(v.from, len(rows), found),
		Chosen: s.detailsOf(v), Heads: [3][]string{learnedHead, flowsHead, limitsHead}, Close: v.choose("", "").link(),
		Single: len(s.names) == 1, Controls: p.controls,
	}
	for i := range columns {
		c.Columns = append(c.Columns, headingOf(v, &columns[i]))
	}
	for _, r := range rows {
		c.Rows = append(c.Rows, lineOf(r, v, s.at))
	}
	if v.from > 0 {
		c.Before = v.at(min(v.from, found) - maxRows).link()
	}
	if v.from+len(rows) < found {
		c.After = v.at(v.from + len(rows)).link()
	}
	return c
}

// headingOf is the heading of a column, and the link that sorts by it. What is most worth a look comes first, so the
// first click on a number puts the largest on top, and a second click the smallest.
func headingOf(v view, c *column) heading {
	h := heading{Title: c.title, Help: c.help, Link: v.by(c.id).link(), Class: c.class()}
	if v.sort == c.id {
		h.Sort = "descending"
		if (c.text || c.up) != v.reverse {
			h.Sort = "ascending"
		}
	}
	return h
}

// class is how the cells of a column look. The words are those of app.css, and app.js takes them over from the headings.
func (c *column) class() string {
	class := c.id
	if !c.text {
		class += " number"
	}
	if c.wide {
		class += " wide"
	}
	return class
}

// lineOf is a row, and the link that chooses it. What is nothing looks faint, so that in a table of zeros the eye finds
// what is not zero: 100 rows of hosts that are fine, and one line that is closed.
func lineOf(r *row, v view, at time.Time) line {
	cells := r.cells(at)
	l := line{Link: v.choose(cells[0], cells[1]).link(), Chosen: v.name == cells[0] && v.key == cells[1]}
	for i, text := range cells {
		class := columns[i].class()
		switch text {
		case "0", "0 %", none, "open":
			class += " quiet"
		}
		if columns[i].id == "gate" && r.closed() {
			class += " closed"
		}
		l.Cells = append(l.Cells, cell{text, class, columns[i].id == "key"})
	}
	return l
}

// rangeOf says which rows are shown, counted from 1 as people do: the rows from 100 on are "101 to 200 of 2,350".
func rangeOf(from, shown, found int) string {
	if shown == 0 {
		return ""
	}
	return fmt.Sprintf("%s to %s of %s", count(uint64(from+1)), count(uint64(from+shown)), count(uint64(found)))
}

// String is the line above the table, as in "242 keys, 9 waiting, 0 in flight, 1 closed". It is about all keys, whatever
// is searched for.
func (t totals) String() string {
	plural := "s"
	if t.keys == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s key%s, %s waiting, %s in flight, %s closed", count(uint64(t.keys)), plural,
		count(uint64(t.waiting)), count(uint64(max(0, t.inFlight))), count(uint64(t.closed)))
}

// problems are what is wrong with the map that the program has given. They are said on the page, not by a panic: the page
// about what is wrong should not be what goes wrong.
func (s *sample) problems() (lines []string) {
	if len(s.names) == 0 {
		lines = append(lines, "There is no Transport: the program gave Handler an empty map.")
	}
	for _, name := range s.nils {
		lines = append(lines, fmt.Sprintf("The Transport %q is nil.", name))
	}
	return lines
}

// empty says why a table may be empty. app.js has the same words.
func (s *sample) empty(v view) string {
	switch {
	case len(s.rows) == 0:
		return "No key yet. A key is made by its first call."
	case strings.TrimSpace(v.search) != "":
		return "No key matches."
	}
	return "No more keys."
}
