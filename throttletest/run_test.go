package throttletest_test

import (
	"flag"
	"testing"
)

// run runs a test within an example, which has no testing.T: once, and without what -v prints, as that would be in
// the example's output.
func run(test func(*testing.T)) {
	for name, value := range map[string]string{"test.v": "false", "test.count": "1"} {
		f := flag.Lookup(name).Value
		before := f.String()
		f.Set(value)
		defer f.Set(before)
	}
	if !testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "Example", F: test}}) {
		panic("the example's test has failed")
	}
}
