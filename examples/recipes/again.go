package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/go-throttle/throttle"
)

// Again makes a call, and makes it again when this side has refused it and says when that is worth while: the line is
// full or too long, or the upstream is down. Everything else is the call's result, such as an answer that the upstream has
// given, or a refusal without a time, which means that waiting does not help. The end of ctx ends it.
func Again(ctx context.Context, call func(context.Context) error) error {
	for {
		err := call(ctx)
		var refused *throttle.Error
		if !errors.As(err, &refused) || refused.Wait <= 0 {
			return err
		}
		timer := time.NewTimer(refused.Wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}
