package throttleredis

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
)

// An asker sends requests of one member, and carries what it has heard as a limiter does. A unit takes 1,000 seconds, so
// what is granted does not depend on how fast the machine is. Its limit is "slow".
type asker struct {
	t *testing.T
	s *Store
	r store.Request
}

func newAsker(t *testing.T, c Client, member string) *asker {
	return &asker{t, New(c), store.Request{Member: member, Limit: 0.001, Burst: 100, Validity: validity, Need: 1}}
}

// ask returns how many units it got for one request.
func (a *asker) ask() (units int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	a.r.Seq++
	r, err := a.s.Exchange(ctx, "slow", a.r)
	if err != nil {
		return 0, err
	}
	a.r.Known = r.Known
	for _, run := range r.Runs {
		units += run.Count
	}
	return units, nil
}

// some asks n times, and returns how many units it got. A server that is not there yet is asked again.
func (a *asker) some(n int) (units int) {
	a.t.Helper()
	for range n {
		until(a.t, "the server answers", func() bool {
			got, err := a.ask()
			if err != nil {
				a.t.Log(err)
				time.Sleep(50 * time.Millisecond)
			}
			units += got
			return err == nil
		})
	}
	return units
}

// TestStateLost: a server that has lost its state gets it back from the first member that asks, so nothing is granted
// twice.
func TestStateLost(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *server){
		"flushed": func(t *testing.T, s *server) { s.do(t, "FLUSHALL") },
		"killed": func(t *testing.T, s *server) {
			s.kill()
			s.again(t)
		},
		"deleted": func(t *testing.T, s *server) { s.do(t, "DEL", Key("slow")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			a, b := newAsker(t, s.client(t), "a"), newAsker(t, s.client(t), "b")
			if got := b.some(30) + a.some(60); got != 90 {
				t.Fatalf("%d units of 90", got)
			}
			lose(t, s)
			if got := a.some(20); got < 10 || got > 11 { // one on loan, if the machine is slow
				t.Errorf("%d units after it, want the 10 that are left of 100", got)
			}
			if got := b.some(5); got > 1 { // on loan, as it has had nothing of late
				t.Errorf("%d units for a member that knows less", got)
			}
		})
	}
}

// TestSentinel: a master dies, and its replica, which Sentinel promotes, goes on where it was.
func TestSentinel(t *testing.T) {
	master := start(t)
	replica := start(t, "--replicaof", "127.0.0.1", fmt.Sprint(master.port))
	until(t, "the replica is there", func() bool {
		return strings.Contains(master.do(t, "INFO", "replication").(string), "state=online")
	})
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor master 127.0.0.1 %d 1\nsentinel down-after-milliseconds master 1000\nsentinel failover-timeout master 3000\n", master.port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := start(t, conf, "--sentinel")
	until(t, "Sentinel knows the replica", func() bool {
		return len(sentinel.do(t, "SENTINEL", "REPLICAS", "master").([]any)) == 1
	})
	client := func() Client {
		return closing(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "master", SentinelAddrs: []string{sentinel.addr()}}))
	}
	a := newAsker(t, client(), "a")
	m := newMembers(t, 2, 500, 5, fleet.Alone, client)
	if got := a.some(90); got != 90 {
		t.Fatalf("%d units of 90", got)
	}
	master.do(t, "WAIT", 1, 60000)
	m.work(2)
	m.granted(50)
	master.kill()
	m.granted(50) // by the replica, when it is promoted
	m.check(1.8*500, 0.8*500*validity.Seconds()+5+2+5+0.8*500*validity.Seconds())
	if got := a.some(20); got < 10 || got > 11 { // one on loan, if the machine is slow
		t.Errorf("%d units after it, want the 10 that are left of 100", got)
	}
	if role := replica.do(t, "ROLE").([]any)[0]; role != "master" {
		t.Errorf("the replica is %v", role)
	}
}
