package usage

import (
	"slices"
	"strings"
)

// This file turns rows into a tree of member names, which the scanner walks while it reads a document, and into
// the words that a line must contain to be worth reading.
//
// An example with one row, {Input: "usage.in", Output: "usage.out", Last: "end"}:
//
//	0 (document) -+- 1 usage -+- 2 in   input, needs a mark
//	              |           +- 3 out  output, needs a mark
//	              +- 4 end              mark, closes
//
// and the words are "usage" with its quotes, for both places. A document that says something has the names of a
// whole path, so it also has the longest of them.

// How much of a row is used.
const (
	maxName  = 64 // bytes of a member's name, and of an error's code
	maxDepth = 8  // names of a place

	slots = 1 << 10 // of a tree, so that most names that are no place's are in an empty one
)

// A role is what a value at a place means.
type role uint8

const (
	nothing role = iota
	// Those of Usage have the order of its fields.
	input
	output
	cacheRead
	cacheWrite
	reasoning
	points
	wanted
	available
	rate
	code
	message
	delay
	mark       // only whether it is null matters
	capacity   // of a request: the bound of its output
	attachment // of a request: a file in a string
)

// textual reports whether values of that role are strings.
func (r role) textual() bool { return r >= code && r <= delay }

// A node is a place.
type node struct {
	name   string
	parent int16
	next   int16 // the next node in the same slot; 0: none
	inner  bool  // it has children
	role   role
	sum    bool // values are added up
	closes bool // a value that is not null closes a stream
	open   bool // null says that the stream goes on
	needs  bool // numbers here are closing ones only with a value that closes
	codes  *codes
}

// codes are the codes of errors at a place that mean a refusal.
type codes struct{ throttled, overloaded []string }

// A tree is all places of some rows. Node 0 is the document itself. It does not change once it has been made.
type tree struct {
	nodes []node
	slots [slots]int16 // the first node of each, see slot; 0: none
	words finder
}

// grow makes the tree of all rows. A place that an earlier row has given a role keeps it.
func grow(tables ...[]Dialect) *tree {
	t := &tree{nodes: make([]node, 1)}
	var words []string
	for _, rows := range tables {
		for i := range rows {
			words = t.row(&rows[i], words)
		}
	}
	t.words = find(append(words, field+lastWord, field+" "+lastWord))
	return t
}

// row adds the places of d, and to words those that a document with its numbers or codes contains.
func (t *tree) row(d *Dialect, words []string) []string {
	for i, path := range [...]string{d.Input, d.Output, d.CacheRead, d.CacheWrite, d.Reasoning, d.Points} {
		if n := t.place(path, input+role(i)); n != nil {
			n.sum = n.sum || d.Sum && n.role == points
			n.needs = n.needs || d.Last != ""
			words = append(words, longest(path))
		}
	}
	for i, path := range [...]string{d.Wanted, d.Available, d.Rate} {
		t.place(path, wanted+role(i))
	}
	if n := t.place(d.Last, mark); n != nil {
		n.closes = true
	}
	if n := t.place(d.More, mark); n != nil {
		n.open = true
	}
	t.place(d.Message, message)
	t.place(d.Delay, delay)
	if n := t.place(d.Code, code); n != nil {
		if n.codes == nil {
			n.codes = new(codes)
		}
		n.codes.throttled = append(n.codes.throttled, d.Throttled...)
		n.codes.overloaded = append(n.codes.overloaded, d.Overloaded...)
		for _, c := range slices.Concat(d.Throttled, d.Overloaded) {
			if c != "" {
				words = append(words, `"`+c+`"`)
			}
		}
	}
	return words
}

// place returns the node of path, and gives it a role if it has none. It returns nil if there is no such node,
// or an earlier row has given it another role: a place has one meaning. A path or a name that is too long, and
// what would be beyond 32,767 nodes, is left out.
func (t *tree) place(path string, r role) *node {
	names := strings.Split(path, ".")
	long := func(name string) bool { return len(name) > maxName }
	if path == "" || len(names) > maxDepth || slices.ContainsFunc(names, long) || len(t.nodes)+maxDepth > 1<<15-1 {
		return nil
	}
	at := int16(0)
	for _, name := range names {
		at = t.child(at, name)
	}
	n := &t.nodes[at]
	if n.role == nothing {
		n.role = r
	}
	if n.role != r {
		return nil
	}
	return n
}

// child returns the child of that name, and adds it if there is none.
func (t *tree) child(parent int16, name string) int16 {
	if at := t.find(parent, []byte(name)); at > 0 {
		return at
	}
	at := int16(len(t.nodes))
	first := &t.slots[slot(parent, []byte(name))]
	t.nodes = append(t.nodes, node{name: name, parent: parent, next: *first})
	t.nodes[parent].inner, *first = true, at
	return at
}

// slot is where a child of that name is looked for: by the length, and the first and last letter of the name.
func slot(parent int16, name []byte) uint {
	n := uint(len(name))
	if n == 0 {
		return uint(parent) % slots
	}
	return (uint(parent)*37 + n*5 + uint(name[0])*3 + uint(name[n-1])*64) % slots
}

// find returns the child of that name; 0 if there is none.
func (t *tree) find(parent int16, name []byte) int16 {
	at := t.slots[slot(parent, name)]
	for at > 0 && (t.nodes[at].parent != parent || t.nodes[at].name != string(name)) {
		at = t.nodes[at].next
	}
	return at
}

// longest returns the longest member name of a path with its quotes. A document with that path contains it. For
// example, it is "rateLimit" of data.rateLimit.cost.
func longest(path string) string {
	names := strings.Split(path, ".")
	return `"` + slices.MaxFunc(names, func(a, b string) int { return len(a) - len(b) }) + `"`
}
