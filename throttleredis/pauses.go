package throttleredis

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-throttle/throttle/fleet/store"
)

// channel is where the script tells of pauses: "<end> <left> <name>", in microseconds. In a Cluster such a message goes
// to all servers, so it does not matter which of them a client listens to.
const channel = "throttle:pauses"

// A subscriber is a Client that can hear messages. A *redis.Ring is not one, though it has the method: it listens to one
// of its servers, and the script tells another.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Listen implements the optional part of store.Store, and is of use to package fleet alone: heard is called with each
// pause that any process tells of, until stop. It does nothing if the client cannot subscribe.
//
// It has a goroutine and a connection of its own until stop. The client connects again by itself; what was said
// meanwhile is lost, and comes with the next request.
func (s *Store) Listen(heard func(store.Pause)) (stop func()) {
	c, ok := s.client.(subscriber)
	if _, ring := s.client.(*redis.Ring); !ok || ring {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		sub := c.Subscribe(ctx, channel) // it may take as long as a connection takes
		defer sub.Close()
		for messages := sub.Channel(); ; {
			select {
			case <-ctx.Done():
				return
			case m, ok := <-messages:
				if !ok {
					return
				}
				if p, ok := parsePause(m.Payload); ok {
					heard(p)
				}
			}
		}
	}()
	return cancel
}

// parsePause reads a message. What is no message of ours is left alone.
func parsePause(text string) (p store.Pause, ok bool) {
	until, rest, _ := strings.Cut(text, " ")
	left, name, ok := strings.Cut(rest, " ")
	end, err1 := strconv.ParseInt(until, 10, 64)
	us, err2 := strconv.ParseInt(left, 10, 64)
	if !ok || err1 != nil || err2 != nil || end <= 0 || us <= 0 || us > int64(24*time.Hour/time.Microsecond) {
		return p, false
	}
	return store.Pause{Name: name, Left: micro(us), Until: end}, true
}
