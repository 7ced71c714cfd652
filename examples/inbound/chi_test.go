package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/go-throttle/throttle/inbound"
)

// router is a chi router with one limit for all routes and a tighter one for the login.
func router() http.Handler {
	r := chi.NewRouter()
	all := inbound.Limit{Limits: []string{"100/1h burst 5"}}
	login := inbound.Limit{Limits: []string{"10/1h window"}, Cost: func(*http.Request) int { return 5 }, Name: "login"}
	r.Use(all.Handler)
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	r.With(login.Handler).Post("/login", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") })
	return r
}

// TestChi: Handler is a middleware of chi, and of everything else that takes func(http.Handler) http.Handler.
func TestChi(t *testing.T) {
	r := router()
	for i, c := range []struct {
		method, path string
		status       int
		policies     int
	}{
		{"GET", "/", 200, 1}, {"POST", "/login", 200, 2}, {"POST", "/login", 200, 2}, {"POST", "/login", 429, 2},
		{"GET", "/", 200, 1}, {"GET", "/", 429, 1},
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || len(w.Header().Values("RateLimit-Policy")) != c.policies {
			t.Errorf("%d: %s %s: %d %v, want %d", i, c.method, c.path, w.Code, w.Header(), c.status)
		}
	}
}
