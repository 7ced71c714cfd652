//go:build race

package upstream_test

const underRace = true
