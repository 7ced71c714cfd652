package main

import (
	"testing"

	"github.com/go-throttle/throttle/examples/internal/sides/sidestest"
)

func TestRun(t *testing.T) { sidestest.Check(t, story) }
