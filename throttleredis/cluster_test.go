package throttleredis

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-throttle/throttle/fleet"
)

// cluster starts three masters that share the slots, and a client of them.
func cluster(t *testing.T) (ss []*server, client func() *redis.ClusterClient) {
	t.Helper()
	var addrs []string
	for i := range 3 {
		s := start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "60000")
		s.do(t, "CLUSTER", "ADDSLOTSRANGE", i*16384/3, (i+1)*16384/3-1)
		s.do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		ss, addrs = append(ss, s), append(addrs, s.addr())
	}
	for _, s := range ss[1:] {
		s.do(t, "CLUSTER", "MEET", "127.0.0.1", ss[0].port)
	}
	until(t, "the cluster is whole", func() bool {
		for _, s := range ss {
			if !strings.Contains(s.do(t, "CLUSTER", "INFO").(string), "cluster_state:ok") || !strings.Contains(s.do(t, "CLUSTER", "INFO").(string), "cluster_known_nodes:3") {
				return false
			}
		}
		return true
	})
	return ss, func() *redis.ClusterClient {
		return closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}))
	}
}

// move moves the slot of a limit to another server, step by step as redis-cli does, and calls between before the key
// is moved and after it.
func move(t *testing.T, ss []*server, name string, between func()) (to *server) {
	t.Helper()
	slot, from := ss[0].do(t, "CLUSTER", "KEYSLOT", Key(name)).(int64), 0
	for slot >= int64(from+1)*16384/3 {
		from++
	}
	has, to := ss[from], ss[(from+1)%3]
	hasID, toID := has.do(t, "CLUSTER", "MYID"), to.do(t, "CLUSTER", "MYID")
	to.do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", hasID)
	has.do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	between()
	has.do(t, "MIGRATE", "127.0.0.1", to.port, Key(name), 0, 10000)
	between() // those who ask the old server are sent on, with each request
	for _, s := range []*server{to, has, ss[0], ss[1], ss[2]} {
		s.do(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
	return to
}

// TestCluster: a limit lives in one slot, and goes on with all it knows when the slot moves under load to another
// server, which has never seen the script.
func TestCluster(t *testing.T) {
	ss, client := cluster(t)
	a := newAsker(t, client(), "a")
	if got := a.some(90); got != 90 {
		t.Fatalf("%d units of 90", got)
	}
	m := newMembers(t, 2, 500, 5, fleet.Alone, func() Client { return client() })
	m.work(2)
	m.granted(50)

	move(t, ss, "x", func() { m.more(20) })
	m.granted(50)
	move(t, ss, "slow", func() {
		if got := a.some(2); got != 2 {
			t.Errorf("%d units of 2 while the slot moves", got)
		}
	})
	m.granted(50)
	m.check(1.8*500, 0.8*500*validity.Seconds()+5+2+5+0.8*500*validity.Seconds())
	if got := a.some(20); got < 6 || got > 7 { // one on loan, if the machine is slow
		t.Errorf("%d units after it, want the 6 that are left of 100", got)
	}
}
