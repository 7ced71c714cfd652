package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/bench/client"
)

// InBubble runs a scenario in a testing/synctest bubble, in virtual time.
func InBubble(t *testing.T, s Scenario, c client.Client, o Options) (result Result, err error) {
	if !s.Virtual || !c.Bubble {
		return result, fmt.Errorf("%s with %s cannot run in a bubble", s.Name, c.Name)
	}
	o.Virtual = true
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Unix(1e9, 0))) // bubbles begin in 2000, when an epoch still looked like a span
		result, err = s.Run(t.Context(), c, o)
		time.Sleep(time.Hour) // for goroutines that a client has left behind in a sleep
	})
	return result, err
}

// A bubble needs a *testing.T, which only package testing makes. So a command that wants one starts
// itself again with an order in its environment, and the new process hands its body to testing.Main,
// which is kept for programs that play "go test". A process for each run has its worth: whatever
// panics or never ends in a bubble ends that run, not the command.
const (
	orderVariable = "THROTTLE_BENCH_VIRTUAL"
	resultMark    = "virtual result: "
)

type order struct {
	Scenario, Client string
	Options          Options
}

type answer struct {
	Result Result
	Err    string
}

// Virtual runs a scenario in virtual time, in a process of its own. The command must call
// ServeVirtual first of all in main.
func Virtual(ctx context.Context, s Scenario, c client.Client, o Options) (Result, error) {
	self, err := os.Executable()
	if err != nil {
		return Result{}, err
	}
	what, err := json.Marshal(order{s.Name, c.Name, o})
	if err != nil {
		return Result{}, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), orderVariable+"="+string(what))
	out, err := cmd.CombinedOutput()
	text := string(out)
	if _, after, ok := strings.Cut(text, resultMark); ok {
		var a answer
		if err := json.NewDecoder(strings.NewReader(after)).Decode(&a); err != nil {
			return Result{}, err
		}
		if a.Err != "" {
			return a.Result, errors.New(a.Err)
		}
		return a.Result, nil
	}
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	return Result{}, fmt.Errorf("%s with %s in virtual time: %v\n%.2000s", s.Name, c.Name, err, text)
}

// ServeVirtual does what Virtual asks of this process and ends it; it returns if nothing is asked.
func ServeVirtual() {
	what, ok := os.LookupEnv(orderVariable)
	if !ok {
		return
	}
	os.Args = os.Args[:1] // testing.Main reads flags
	run := func(t *testing.T) {
		var a answer
		result, err := obey(t, what)
		if a.Result = result; err != nil {
			a.Err = err.Error()
		}
		line, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s%s\n", resultMark, line)
		os.Exit(0)
	}
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "Virtual", F: run}}, nil, nil)
}

func obey(t *testing.T, what string) (Result, error) {
	var w order
	if err := json.Unmarshal([]byte(what), &w); err != nil {
		return Result{}, err
	}
	s, ok := Find(w.Scenario)
	if !ok {
		return Result{}, fmt.Errorf("no scenario %q", w.Scenario)
	}
	all := slices.Concat(client.All(), []client.Client{Oracle()}, client.Metered(), client.Adaptive())
	i := slices.IndexFunc(all, func(c client.Client) bool { return c.Name == w.Client })
	if i < 0 {
		return Result{}, fmt.Errorf("no client %q", w.Client)
	}
	return InBubble(t, s, all[i], w.Options)
}
