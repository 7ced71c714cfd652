//go:build race

package queue_test

const underRace = true
