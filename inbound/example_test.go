package inbound_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/inbound"
)

// A server behind a load balancer limits each client address, and each address space more loosely.
func ExampleLimit() {
	balancer := netip.MustParsePrefix("10.0.0.0/8")
	api := inbound.Limit{
		Limits: []string{"60/1h burst 3"},
		Key:    inbound.ByIP(balancer),
		And: []*inbound.Limit{{
			Limits: []string{"600/1h burst 100"},
			Key:    inbound.ByPrefix(24, 48, balancer),
			Name:   "net",
		}},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })
	server := api.Handler(mux)

	for range 4 {
		r := httptest.NewRequest(http.MethodGet, "/hello", nil)
		r.RemoteAddr = "10.0.0.7:4711"
		r.Header.Set("X-Forwarded-For", "1.1.1.1, 203.0.113.9") // the client wrote the first one
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Println(w.Code, left(w))
	}
	// Output:
	// 200 [h 2 left of 3 net-h 99 left of 100]
	// 200 [h 1 left of 3 net-h 98 left of 100]
	// 200 [h 0 left of 3 net-h 97 left of 100]
	// 429 [h 0 left of 3 net-h 97 left of 100]
}

// left is what an answer says of limits, as package hint reads it.
func left(w *httptest.ResponseRecorder) (all []string) {
	for _, q := range hint.Parse(w.Result(), time.Now()).Quotas {
		all = append(all, fmt.Sprintf("%s %d left of %d", q.Name, q.Remaining, q.Limit))
	}
	return all
}

// Paying customers have other limits. The plan comes from whatever has checked the API key before.
func ExampleLimit_tiers() {
	plans := map[string]string{"k-123": "pro"}
	api := inbound.Limit{
		Limits: []string{"2/1h window"},
		Key:    inbound.ByHeader("X-Api-Key"),
		Tier:   func(r *http.Request) string { return plans[r.Header.Get("X-Api-Key")] },
		Tiers:  map[string][]string{"pro": {"1000/1h window"}},
	}
	server := api.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})

	for _, key := range []string{"k-123", "k-456", "k-456", "k-456"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Api-Key", key)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Println(key, w.Code, left(w))
	}
	// Output:
	// k-123 200 [h 999 left of 1000]
	// k-456 200 [h 1 left of 2]
	// k-456 200 [h 0 left of 2]
	// k-456 429 [h 0 left of 2]
}

// Attempts to log in are limited for each user and for each address; a success forgives the user's.
func ExampleKeyed() {
	byUser := inbound.NewKeyed[string](0, "3/1h window")
	byAddress := inbound.NewKeyed[netip.Addr](0, "100/1h window")
	login := func(from netip.Addr, user, password string) string {
		switch {
		case !byAddress.Allow(from, 1) || !byUser.Allow(user, 1):
			return "try again later"
		case password != "secret":
			return "wrong password"
		}
		byUser.Forget(user)
		return "welcome"
	}

	from := netip.MustParseAddr("203.0.113.9")
	for _, password := range []string{"1234", "secret", "a", "b", "c", "secret"} {
		fmt.Println(login(from, "alice", password))
	}
	// Output:
	// wrong password
	// welcome
	// wrong password
	// wrong password
	// wrong password
	// try again later
}

// While the process has more to do than its cores can, requests of lower priorities are turned away first, and health checks never.
func ExampleOverload() {
	plans := map[string]int{"gold": 2, "silver": 1}
	busy := inbound.Overload{
		Priority: func(r *http.Request) int { return plans[r.Header.Get("X-Plan")] },
		Key:      inbound.ByHeader("X-Api-Key"),
		Allow:    func(r *http.Request) bool { return r.URL.Path == "/health" },
	}
	h := busy.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

	for _, path := range []string{"/", "/health"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(w.Code, w.Body)
	}
	s := busy.Stats()
	fmt.Printf("%d let in, %d beside them, %d turned away; limit %d\n", s.Admitted, s.Allowed, s.Refused, s.Limit)
	// Output:
	// 200 hello
	// 200 hello
	// 1 let in, 1 beside them, 0 turned away; limit 0
}

// Only log-ins that fail count, and an operator makes the limit tighter while they come.
func ExampleLimit_settle() {
	logins := inbound.Limit{
		Limits: []string{"3/1h window"},
		Settle: func(_ *http.Request, status int, _ http.Header) int {
			if status == http.StatusUnauthorized {
				return 1
			}
			return 0
		},
	}
	server := logins.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	try := func(password string) {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?password="+password, nil))
		fmt.Println(password, w.Code)
	}
	for _, password := range []string{"secret", "secret", "secret", "secret", "a", "b", "secret"} {
		try(password)
	}
	if err := logins.SetLimits("2/1h window"); err != nil {
		fmt.Println(err)
	}
	try("secret")
	// Output:
	// secret 200
	// secret 200
	// secret 200
	// secret 200
	// a 401
	// b 401
	// secret 200
	// secret 429
}

// Two servers of one API have one limit for each client. In a program, the store is Keys of module throttleredis.
func ExampleLimit_store() {
	store := new(inbound.Memory)
	server := func() http.Handler {
		api := inbound.Limit{Name: "api", Limits: []string{"3/24h window"}, Store: store}
		return api.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	}
	servers := []http.Handler{server(), server()}
	for i := range 4 {
		w := httptest.NewRecorder()
		servers[i%2].ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 200
	// 429
}
