// Skipped reads what go test -json writes, prints it as go test without -json does, and ends with what was skipped for want of
// which program. Tests say that as "skipped: no redis-server". It fails if a test or a build has failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

var missing = regexp.MustCompile(`skipped: no ([^\s:]+(?: registry)?)`)

func main() {
	output, skipped, failed, passed := map[string]string{}, map[string]int{}, 0, 0
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		var e struct{ Action, Package, Test, Output string }
		if json.Unmarshal([]byte(line), &e) != nil {
			fmt.Print(line)
			continue
		}
		id := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Print(e.Output)
		case "output":
			if e.Test != "" {
				output[id] += e.Output
			} else if e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]") && !strings.HasPrefix(e.Output, "testing: warning: no tests") {
				fmt.Print(e.Output)
			}
		case "fail", "build-fail":
			failed++
			fmt.Print(output[id])
		case "skip":
			if of := missing.FindStringSubmatch(output[id]); of != nil {
				skipped[of[1]]++
			}
		case "pass":
			passed++
		}
		if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" {
			delete(output, id)
		}
	}
	if len(skipped) == 0 {
		fmt.Println("no test was skipped for want of a program")
	}
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Printf("skipped for want of %s: %d tests\n", name, skipped[name])
	}
	if failed > 0 || passed == 0 {
		fmt.Println("FAIL")
		os.Exit(1)
	}
}
