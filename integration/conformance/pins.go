//go:build pins

package main

// The suites, so that go.mod pins them and what they need.
import (
	_ "github.com/go-resty/resty/v2"
	_ "golang.org/x/oauth2/google"
)
