package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-throttle/throttle/examples/internal/sides"
)

// query asks a shop. Without throttle somebody would have to look for THROTTLED here, wait, and ask again.
func query(ctx context.Context, client *http.Client, text string) error {
	const shop = "https://hats.myshopify.com/admin/api/2026-07/graphql.json"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, shop, strings.NewReader(fmt.Sprintf(`{"query": %q}`, text)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct{ Errors []struct{ Message string } }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Errors) == 0 {
		return err
	}
	return fmt.Errorf("%s: %s", resp.Status, answer.Errors[0].Message)
}

func products(client *http.Client, _ string) sides.Call {
	return func(ctx context.Context, i int) error { return query(ctx, client, ask(i)) }
}
