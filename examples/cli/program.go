package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/fleet"
)

// A job is what one run of the program has to do. It is all that the run knows.
type job struct {
	Upstream string // URL
	File     string // that holds the limit; empty: the run has a limiter of its own
	Limit    float64
}

// work is the program: it makes its calls, one after the other, and ends.
func (j *job) work(ctx context.Context) (answered int, err error) {
	var limiter throttle.Limiter = throttle.NewBucket(rate.Limit(j.Limit), burst)
	if j.File != "" {
		file, err := fleet.OpenFile(j.File)
		if err != nil {
			return 0, err
		}
		defer file.Close()
		shared := fleet.New(file, "api", rate.Limit(j.Limit), burst, fleet.Options{})
		defer shared.Close() // gives back what is not used
		limiter = shared
	}
	client := &http.Client{Transport: &throttle.Transport{Limiter: limiter}}
	for range callsEach {
		status, err := calls.Get(ctx, client, j.Upstream)
		if err != nil {
			return answered, err
		}
		if status == http.StatusOK {
			answered++
		}
	}
	return answered, nil
}

const jobVariable = "THROTTLE_EXAMPLE_CLI" // holds the job of a run

// serve does the job that this process was started for, and reports whether there was one.
func serve() bool {
	text, ok := os.LookupEnv(jobVariable)
	if !ok {
		return false
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	answered := 0
	if err == nil {
		answered, err = j.work(context.Background())
	}
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(answered)
	return true
}

// start is one run of the program, from its start to its end: how many calls were answered.
func (j *job) start(ctx context.Context) (answered int, err error) {
	text, err := json.Marshal(j)
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("a run has failed: %w: %s", err, &errs)
	}
	_, err = fmt.Sscan(string(out), &answered)
	return answered, err
}
