package lab_test

import (
	"flag"
	"os"
	"testing"

	"github.com/go-throttle/throttle/internal/race"
)

// TestMain leaves most simulations out with the race detector, unless -run says otherwise: it makes them ten times slower, and the
// code that they share memory in is that of the root's tests and of the soak. Those that run have many callers, keys or clients.
func TestMain(m *testing.M) {
	flag.Parse()
	if race.Enabled && flag.Lookup("test.run").Value.String() == "" {
		flag.Set("test.run", "^(TestRandomSituations|TestOutageWithRetryAfter|TestGlobalLimitOverManyKeys|TestTwoClientsShareAdvertisedTokens|TestLearnedIsTold)$")
	}
	os.Exit(m.Run())
}
