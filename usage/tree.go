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
//
// The tree of requests has a node for everything else too, so that a scanner loses nothing there, and children of that
// node are known wherever they stand: source.data is a file in a message, in a tool's result and in a part of that.

// How much of a row is used.
const (
	maxName  = 64 // bytes of a member's name, and of an error's code
	maxDepth = 8  // names of a place

	slots = 1 << 12 // of a tree, so that most names that are no place's are in an empty one
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
	total
	wanted
	available
	rate
	bound   // of a request: of its output
	answers // of a request: how many it asks for
	code    // this and those below are in strings
	message
	delay
	wrapped    // a document in base64
	mark       // only whether it is null matters
	attachment // of a request: a file, or where one is
	prose      // of a request: text
	prompts    // of a request: text with answers of its own
)

// textual reports whether values of that role are strings.
func (r role) textual() bool { return r >= code }

// A node is a place.
type node struct {
	name   string
	parent int16
	next   int16 // the next node in the same slot; 0: none
	same   int16 // whose children it has: its own, or those of a node that it is like
	inner  bool  // it has children
	role   role
	sum    bool // values are added up
	weak   bool // values count only if there are no others
	closes bool // a value that is not null closes a stream
	open   bool // null says that the stream goes on
	needs  bool // numbers here are closing ones only with a value that closes
	codes  *codes
}

// codes are the codes of errors at a place that mean a refusal.
type codes struct{ throttled, overloaded, worded []string }

// A tree is all places of some rows. Node 0 is the document itself. It does not change once it has been made.
type tree struct {
	nodes []node
	slots [slots]int16 // the first node of each, see slot; 0: none
	any   int16        // the node of all places without one; 0: they have none
	words finder
}

// grow makes the tree of rows and the built-in ones. A place that an earlier row has given a role keeps it.
func grow(rows []Dialect) *tree {
	t := &tree{nodes: make([]node, 1)}
	words := []string{field + lastWord, field + " " + lastWord}
	for _, d := range slices.Concat(rows, providers) {
		words = append(t.numbers(0, &d, words), t.refusals(&d)...)
	}
	words = t.objects(homes, false, words)
	words = t.objects(counted, true, words)
	t.place(0, "bytes", wrapped)
	slices.Sort(words)
	t.words = find(slices.Compact(words))
	return t
}

// objects adds usage objects at these places, of which all are like the first but those that other rows know.
func (t *tree) objects(homes []string, weak bool, words []string) []string {
	first := t.descend(0, homes[0])
	for i, home := range homes {
		at := t.descend(0, home)
		if i > 0 && !t.nodes[at].inner {
			t.nodes[at].same, t.nodes[at].inner = first, true
			continue
		}
		for _, d := range objects {
			d.weak = weak
			words = t.numbers(at, &d, words)
		}
	}
	return words
}

// growRequests makes the tree of requests, of rows and the built-in ones.
func growRequests(rows []Dialect) *tree {
	t := &tree{nodes: make([]node, 1)}
	t.any = t.child(0, "")
	for _, path := range files {
		t.place(t.any, path, attachment)
	}
	for _, name := range texts {
		t.place(t.any, name, prose)
	}
	for _, d := range slices.Concat(rows, asking) {
		t.place(0, d.Bound, bound)
		t.place(0, d.Answers, answers)
	}
	t.place(0, "prompt", prompts)
	return t
}

// numbers adds the places of d's numbers below at, and to words those that a document with one contains.
func (t *tree) numbers(at int16, d *Dialect, words []string) []string {
	for i, path := range [...]string{d.Input, d.Output, d.CacheRead, d.CacheWrite, d.Reasoning, d.Points, d.Total} {
		if n := t.place(at, path, input+role(i)); n != nil {
			n.sum = n.sum || d.Sum && n.role == points
			n.weak = n.weak || d.weak
			n.needs = n.needs || d.Last != ""
			words = append(words, longest(path))
		}
	}
	for i, path := range [...]string{d.Wanted, d.Available, d.Rate} {
		t.place(0, path, wanted+role(i))
	}
	if n := t.place(0, d.Last, mark); n != nil {
		n.closes = true
	}
	if n := t.place(0, d.More, mark); n != nil {
		n.open = true
	}
	return words
}

// refusals adds the places of what d says of refusals, and returns words that a document with one of its codes contains.
func (t *tree) refusals(d *Dialect) (words []string) {
	t.place(0, d.Message, message)
	t.place(0, d.Delay, delay)
	n := t.place(0, d.Code, code)
	if n == nil {
		return nil
	}
	if n.codes == nil {
		n.codes = new(codes)
	}
	if d.worded {
		n.codes.worded = append(n.codes.worded, d.Throttled...)
		return []string{longest(d.Message)}
	}
	n.codes.throttled = append(n.codes.throttled, d.Throttled...)
	n.codes.overloaded = append(n.codes.overloaded, d.Overloaded...)
	for _, c := range slices.Concat(d.Throttled, d.Overloaded) {
		if strings.HasSuffix(c, "*") || number([]byte(c)) >= 0 {
			return []string{longest(d.Code)} // because such a document need not have the code as it stands here
		}
		if c != "" {
			words = append(words, `"`+c+`"`)
		}
	}
	return words
}

// place returns the node of path below at, and gives it a role if it has none. It returns nil if there is no such node,
// or an earlier row has given it another role: a place has one meaning. A path or a name that is too long, and
// what would be beyond 32,767 nodes, is left out.
func (t *tree) place(at int16, path string, r role) *node {
	names := strings.Split(path, ".")
	long := func(name string) bool { return len(name) > maxName }
	if path == "" || len(names) > maxDepth || slices.ContainsFunc(names, long) || len(t.nodes)+maxDepth > 1<<15-1 {
		return nil
	}
	n := &t.nodes[t.descend(at, path)]
	if n.role == nothing {
		n.role = r
	}
	if n.role != r {
		return nil
	}
	return n
}

// descend returns the node of path below at, and adds what there is not.
func (t *tree) descend(at int16, path string) int16 {
	for name := range strings.SplitSeq(path, ".") {
		at = t.child(at, name)
	}
	return at
}

// child returns the child of that name, and adds it if there is none.
func (t *tree) child(parent int16, name string) int16 {
	if at := t.find(parent, []byte(name)); at > 0 {
		return at
	}
	at := int16(len(t.nodes))
	first := &t.slots[slot(parent, []byte(name))]
	t.nodes = append(t.nodes, node{name: name, parent: parent, next: *first, same: at})
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

// longest returns the longest member name of a path with its quotes, but for those that most documents have. A document
// with that path contains it. For example, it is "rateLimit" of data.rateLimit.cost, and "error" of response.error.code.
func longest(path string) string {
	names := strings.Split(path, ".")
	return `"` + slices.MaxFunc(names, func(a, b string) int { return size(a) - size(b) }) + `"`
}

// size is the length of a name; 0: most documents have it.
func size(name string) int {
	if name == "choices" || name == "response" || name == "extensions" {
		return 0
	}
	return len(name)
}
