package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-throttle/throttle/examples/internal/sides"
)

// write sends a message to a channel.
func write(ctx context.Context, client *http.Client, channel int, text string) error {
	url := fmt.Sprintf("https://discord.com/api/v10/channels/%d/messages", channel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"content": %q}`, text)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s, scope %s", resp.Status, resp.Header.Get("X-RateLimit-Scope"))
	}
	return nil
}

func messages(client *http.Client, _ string) sides.Call {
	return func(ctx context.Context, i int) error { return write(ctx, client, 1000+i%channels, "hello") }
}
