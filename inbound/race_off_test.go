//go:build !race

package inbound_test

// raceEnabled says whether the race detector is on: long floods take too long with it.
const raceEnabled = false
