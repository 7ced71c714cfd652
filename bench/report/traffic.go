package report

import (
	"encoding/json"
	"time"

	"github.com/go-throttle/throttle/bench/scenario"
)

// Traffic is a scenario.Traffic in fewer bytes: rows end with their last number above 0, and of the
// limit only the changes are written.
type Traffic scenario.Traffic

// traffic is how it stands in a file.
type traffic struct {
	Bin       string       `json:"bin"`
	Bins      int          `json:"bins"`
	Accepted  []int        `json:"accepted,omitempty"`
	Throttled []int        `json:"throttled,omitempty"`
	Failed    []int        `json:"failed,omitempty"`
	Limit     [][2]float64 `json:"limit,omitempty"` // from which bin on, how much
}

// Bins is the length of the longest row.
func (t *Traffic) Bins() int {
	return max(len(t.Accepted), len(t.Throttled), len(t.Failed), len(t.Limit))
}

// Total is all that came, whatever became of it, in each bin.
func (t *Traffic) Total() []int {
	total := make([]int, t.Bins())
	for _, row := range [][]int{t.Accepted, t.Throttled, t.Failed} {
		for i, n := range row {
			total[i] += n
		}
	}
	return total
}

// Coarse is the same traffic with so many bins joined to one.
func (t *Traffic) Coarse(n int) *Traffic {
	return &Traffic{
		Bin: t.Bin * time.Duration(n), Limit: join(t.Limit, n),
		Accepted: join(t.Accepted, n), Throttled: join(t.Throttled, n), Failed: join(t.Failed, n),
	}
}

func join[T int | float64](row []T, n int) []T {
	out := make([]T, (len(row)+n-1)/n)
	for i, v := range row {
		out[i/n] += v
	}
	return out
}

// MarshalJSON is part of encoding/json.
func (t *Traffic) MarshalJSON() ([]byte, error) {
	out := traffic{
		Bin: t.Bin.String(), Bins: t.Bins(),
		Accepted: trim(t.Accepted), Throttled: trim(t.Throttled), Failed: trim(t.Failed),
	}
	for i, l := range t.Limit {
		if i == 0 || l != t.Limit[i-1] {
			out.Limit = append(out.Limit, [2]float64{float64(i), l})
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON is part of encoding/json.
func (t *Traffic) UnmarshalJSON(data []byte) error {
	var in traffic
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	bin, err := time.ParseDuration(in.Bin)
	if err != nil {
		return err
	}
	*t = Traffic{Bin: bin, Accepted: fill(in.Accepted, in.Bins), Throttled: fill(in.Throttled, in.Bins), Failed: fill(in.Failed, in.Bins)}
	if len(in.Limit) == 0 {
		return nil
	}
	t.Limit = make([]float64, in.Bins)
	for _, change := range in.Limit {
		for i := max(int(change[0]), 0); i < in.Bins; i++ {
			t.Limit[i] = change[1]
		}
	}
	return nil
}

func trim(row []int) []int {
	for len(row) > 0 && row[len(row)-1] == 0 {
		row = row[:len(row)-1]
	}
	return row
}

func fill(row []int, n int) []int {
	for len(row) < n {
		row = append(row, 0)
	}
	return row
}
