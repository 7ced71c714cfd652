package main

import (
	"testing"

	"github.com/go-throttle/throttle/examples/internal/sides/sidestest"
)

// Without throttle, go-github refuses itself what exceeds the first window.
func TestRun(t *testing.T) { sidestest.Check(t, story) }
