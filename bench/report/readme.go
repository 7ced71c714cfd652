package report

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

const (
	begin = "<!-- compare "
	end   = "<!-- /compare -->"
)

// Refresh writes the summaries anew that stand in a Markdown file between marks: a line
//
//	<!-- compare scenario.metric scenario.metric@virtual -->
//
// that tells the columns, and a line <!-- /compare -->.
func (f *File) Refresh(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := f.refresh(string(old))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if bytes.Equal(old, []byte(text)) {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), info.Mode())
}

func (f *File) refresh(text string) (string, error) {
	var out strings.Builder
	for first := true; ; first = false {
		before, rest, found := strings.Cut(text, begin)
		out.WriteString(before)
		if !found && first {
			return "", fmt.Errorf("no line %q", begin+"...")
		}
		if !found {
			return out.String(), nil
		}
		spec, rest, ok := strings.Cut(rest, "-->\n")
		_, rest, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return "", fmt.Errorf("%q without an end, %q", begin, end)
		}
		var columns []Column
		for _, word := range strings.Fields(spec) {
			c, err := ParseColumn(word)
			if err != nil {
				return "", err
			}
			columns = append(columns, c)
		}
		table, err := f.Summary(columns)
		if err != nil {
			return "", err
		}
		out.WriteString(begin + spec + "-->\n" + table + end)
		text = rest
	}
}
