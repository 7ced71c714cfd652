// Package report keeps what a comparison has measured: the results file, and the tables made from it.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-throttle/throttle/bench/scenario"
)

// The ways to run a scenario.
const (
	Real    = "real"    // over the machine's own clock and network
	Virtual = "virtual" // in a testing/synctest bubble, over connections in memory
)

// Oracle is the client that knows everything. It is no rival, but says what is possible.
const Oracle = scenario.OracleName

// A File is what one or several runs have measured, and where.
type File struct {
	Made      time.Time  `json:"made"`
	Machine   Machine    `json:"machine"`
	Command   string     `json:"command,omitempty"` // that has made it
	Short     bool       `json:"short,omitempty"`   // a tenth of the load: says nothing
	Clients   []string   `json:"clients"`           // all that were to run, in the order of the tables
	Scenarios []Scenario `json:"scenarios"`
}

// A Scenario is what is known of one situation: enough to make its tables without running it again.
type Scenario struct {
	Name    string            `json:"name"`
	Title   string            `json:"title"`
	About   string            `json:"about,omitempty"`
	Metrics []scenario.Metric `json:"metrics"`
	Runs    []Run             `json:"runs"`
}

// A Run is one client in one scenario, once.
type Run struct {
	Client  string             `json:"client"`
	Mode    string             `json:"mode"`
	Rep     int                `json:"rep"` // from 1; it is the seed too
	Values  map[string]float64 `json:"values,omitempty"`
	Failed  string             `json:"failed,omitempty"`
	Traffic *Traffic           `json:"traffic,omitempty"` // of the first repetition only
	Course  *scenario.Course   `json:"course,omitempty"`  // also
}

// New makes an empty File for the machine that it runs on.
func New(short bool) *File {
	return &File{Made: time.Now().UTC().Truncate(time.Second), Machine: Here(), Short: short}
}

// Add notes what a run has found. The order of scenarios and clients is that of their first run.
func (f *File) Add(s scenario.Scenario, r Run) {
	i := slices.IndexFunc(f.Scenarios, func(have Scenario) bool { return have.Name == s.Name })
	if i < 0 {
		i = len(f.Scenarios)
		f.Scenarios = append(f.Scenarios, Scenario{Name: s.Name, Title: s.Title, About: s.About, Metrics: s.Metrics})
	}
	f.Scenarios[i].Runs = append(f.Scenarios[i].Runs, r)
}

// Keep drops the scenarios, clients and modes that are not wanted.
func (f *File) Keep(name, client, mode func(string) bool) {
	f.Scenarios = slices.DeleteFunc(f.Scenarios, func(s Scenario) bool { return !name(s.Name) })
	for i := range f.Scenarios {
		s := &f.Scenarios[i]
		s.Runs = slices.DeleteFunc(s.Runs, func(r Run) bool { return !client(r.Client) || !mode(r.Mode) })
	}
	f.Scenarios = slices.DeleteFunc(f.Scenarios, func(s Scenario) bool { return len(s.Runs) == 0 })
}

// Scenario finds a scenario by its name.
func (f *File) Scenario(name string) (*Scenario, bool) {
	i := slices.IndexFunc(f.Scenarios, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return nil, false
	}
	return &f.Scenarios[i], true
}

// Clients are the names of those that ran in the mode, each once.
func (s *Scenario) Clients(mode string) []string {
	var names []string
	for _, r := range s.Runs {
		if r.Mode == mode && !slices.Contains(names, r.Client) {
			names = append(names, r.Client)
		}
	}
	return names
}

// Of are the runs of one client in one mode.
func (s *Scenario) Of(client, mode string) []Run {
	var runs []Run
	for _, r := range s.Runs {
		if r.Client == client && r.Mode == mode {
			runs = append(runs, r)
		}
	}
	return runs
}

// Read reads a results file.
func Read(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := new(File)
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("%s is no results file: %w", path, err)
	}
	for _, s := range f.Scenarios {
		for _, r := range s.Runs {
			if r.Traffic != nil && r.Traffic.Bin <= 0 {
				return nil, fmt.Errorf("%s: scenario %s, client %q: traffic in bins of %v", path, s.Name, r.Client, r.Traffic.Bin)
			}
		}
	}
	return f, nil
}

// Write writes a results file, making its directory if need be.
func (f *File) Write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := f.encode(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// encode gives each run a line of its own, so that a changed result is a changed line.
func (f *File) encode(w io.Writer) error {
	head := *f
	head.Scenarios = nil
	b, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	b = bytes.TrimSuffix(b, []byte("null\n}"))
	var out bytes.Buffer
	out.Write(b)
	out.WriteString("[")
	for i, s := range f.Scenarios {
		if err := s.encode(&out, i > 0); err != nil {
			return err
		}
	}
	out.WriteString("\n  ]\n}\n")
	_, err = out.WriteTo(w)
	return err
}

func (s Scenario) encode(out *bytes.Buffer, more bool) error {
	runs := s.Runs
	s.Runs = nil
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if more {
		out.WriteByte(',')
	}
	out.WriteString("\n    ")
	out.Write(bytes.TrimSuffix(b, []byte("null}")))
	out.WriteByte('[')
	for i, r := range runs {
		b, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("scenario %s, client %q: %w", s.Name, r.Client, err)
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString("\n      ")
		out.Write(b)
	}
	out.WriteString("\n    ]}")
	return nil
}
