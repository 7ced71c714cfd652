// Conformance runs the tests of other projects with the Transport under their code. It fails if a
// test fails that passes without the Transport. The suites:
//
//   - net/http/httputil of the Go tree: ReverseProxy over the Transport;
//   - golang.org/x/oauth2: its Transport, and everything else that sends, over the Transport;
//   - github.com/go-resty/resty/v2: each of its clients over the Transport.
//
// go.mod and go.sum pin the last two; the module proxy has their sources. If a suite cannot be
// downloaded, a line says that it is skipped. So is ReverseProxy if go itself has downloaded the version of Go in use,
// because nothing may be laid over the module cache.
//
// Each suite runs as it is, over several Transports (see configs), and over Transports with a planted
// defect that the suite must catch: so a suite that misses the defect, or never sends through the
// Transport, fails the run. A test that fails is run alone twice more, and counts unless it passes both
// times, because many tests sleep and wait. One that passes is printed as unsteady. A few tests that
// fail without the Transport, too, if the machine is busy, are left out; a line names them.
//
// The suites do not notice that a response body is closed twice. So one configuration watches the
// bodies below the Transport (package throttled), and a package fails if a body was closed twice. The
// Transports retry with Retry.MaxAttempts = 4, because the suites run in real time, and a test of a 5xx would take the
// default's 15 s; none needs 1. No failure is expected, so there is no list of expected failures.
//
//	integration/conformance/run        # from the root of the repository; about a minute and a half
//	integration/conformance/run -race  # with the race detector; about three
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/go-throttle/throttle/integration/conformance/throttled"
)

// A config is one way to run a suite.
type config struct {
	name  string
	env   []string
	watch bool              // look for response bodies that are closed twice
	plant map[string]string // by suite, the end of the name of what must fail; nil: nothing may
}

var configs = []config{
	{name: "as it is"},
	{name: "zero value"},
	{name: "MaxInFlight 64", env: []string{throttled.EnvInFlight + "=64"}},
	{name: "MaxInFlight 1, bodies watched", env: []string{throttled.EnvInFlight + "=1"}, watch: true},
	{
		name: "planted: trailer lost", env: []string{throttled.EnvPlant + "=" + throttled.PlantTrailer},
		plant: map[string]string{reverseProxy: ".TestUnannouncedTrailer"},
	},
	{
		name: "planted: request body closed twice", env: []string{throttled.EnvPlant + "=" + throttled.PlantRequest},
		plant: map[string]string{oauth2: ".TestTransportCloseRequestBodySuccess"},
	},
	{
		name: "planted: response body closed twice", env: []string{throttled.EnvPlant + "=" + throttled.PlantResponse}, watch: true,
		plant: map[string]string{reverseProxy: bodies, oauth2: bodies},
	},
	{
		name: "planted: dropped body closed twice", env: []string{throttled.EnvPlant + "=" + throttled.PlantDropped}, watch: true,
		plant: map[string]string{resty: bodies},
	},
}

// bodies ends the name of the test that a watched package fails if a body is closed twice.
const bodies = ": bodies"

// offline matches what the go command says of a network that is not there.
var offline = regexp.MustCompile(`dial tcp|no such host|connection refused|network is unreachable|i/o timeout|TLS handshake timeout|proxyconnect|module lookup disabled`)

// errSkip is in the error of a suite that is skipped.
var errSkip = errors.New("cannot run here")

func main() {
	log.SetFlags(0)
	race := flag.Bool("race", false, "build the suites with the race detector")
	flag.Parse()
	start := time.Now()
	work, err := os.MkdirTemp("", "conformance")
	if err != nil {
		log.Fatal(err)
	}
	ok := run(work, *race)
	if err := os.RemoveAll(work); err != nil {
		log.Print(err)
	}
	fmt.Printf("%.0f s\n", time.Since(start).Seconds())
	if !ok {
		log.Fatal("FAILED: see above")
	}
}

// run runs all suites in the directory work, and reports whether all is well. It prints what went
// wrong, and a table of what ran.
func run(work string, race bool) bool {
	reports := make([]*report, len(suites))
	for i := range suites {
		reports[i] = &report{suite: &suites[i]}
	}
	// All is built before anything runs: some tests measure time.
	each(reports, func(r *report) { r.prepare(work, race) })
	each(reports, (*report).run)

	ok := true
	table := new(strings.Builder)
	w := tabwriter.NewWriter(table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "suite\tconfiguration\ttests\tfailures as it is\tnew failures\t")
	for _, r := range reports {
		fmt.Print(r.notes.String())
		switch {
		case errors.Is(r.err, errSkip):
			fmt.Printf("skipped: %s: %v\n", r.suite.name, r.err)
			continue
		case r.err != nil:
			fmt.Printf("FAILED: %s: %v\n", r.suite.name, r.err)
			ok = false
		}
		if r.suite.skip != "" {
			fmt.Printf("left out: %s: %s\n", r.suite.name, r.suite.skip)
		}
		for _, row := range r.rows {
			fmt.Fprintln(w, row)
		}
		ok = ok && r.ok
	}
	w.Flush()
	fmt.Print(table)
	return ok
}

// each calls f for all reports at once.
func each(reports []*report, f func(*report)) {
	var wg sync.WaitGroup
	for _, r := range reports {
		wg.Go(func() { f(r) })
	}
	wg.Wait()
}
