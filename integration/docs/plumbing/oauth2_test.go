package plumbing

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/go-throttle/throttle"
)

// The Transport stands below the one of oauth2, which sends through the client in the ctx that it is made with: each
// attempt carries the token, ByCredential sees it, and requests for tokens wait for the limit of their own host.
func Example_oauth2() {
	upstream := &fake{refuse: 1}
	throttled := &throttle.Transport{Base: upstream, Key: throttle.ByCredential}

	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, &http.Client{Transport: throttled})
	config := &clientcredentials.Config{ClientID: "id", ClientSecret: "s3cret", TokenURL: "https://auth.example.com/token"}
	client := config.Client(ctx)

	get(client, "https://api.example.com/items")
	keys := 0
	for range throttled.Stats() {
		keys++
	}
	fmt.Println(keys, "keys: the host of the tokens, and the credential")
	// Output:
	// upstream: POST auth.example.com/token: 200
	// upstream: GET api.example.com/items: 429
	// upstream: GET api.example.com/items: 200
	// caller: 200
	// 2 keys: the host of the tokens, and the credential
}
