package main

import (
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/inbound/keys"
)

// limits is what each client address may do.
const limits = "5/s burst 10"

// links are those of the shortener. Both servers have them, as if they were in a database.
type links struct {
	mu  sync.Mutex
	all []string
}

// add returns the number of a new link.
func (l *links) add(target string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, target)
	return len(l.all) - 1
}

// at returns where a link leads; "": there is none.
func (l *links) at(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n >= len(l.all) {
		return ""
	}
	return l.all[n]
}

var database links

// A server is one of two.
type server struct {
	url    string
	limit  *inbound.Limit
	tokens *inbound.Keyed[string] // the same limits, to look at
	http   *http.Server
}

// newServer starts a server on the loopback interface whose clients' limits are in that store.
func newServer(name string, store keys.Store) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{
		url: "http://" + l.Addr().String(),
		limit: &inbound.Limit{
			Name: name, Limits: []string{limits}, Store: store, Servers: 2,
			Key: inbound.ByIP(netip.MustParsePrefix("127.0.0.0/8")), // whom X-Forwarded-For is believed of
		},
		tokens: inbound.NewSharedKeyed[string](inbound.Sharing{Store: store, Name: name, Servers: 2}, 0, limits),
	}
	limited := http.NewServeMux()
	limited.HandleFunc("POST /", shorten)
	limited.HandleFunc("GET /{link}", follow)
	mux := http.NewServeMux()
	mux.Handle("/", s.limit.Handler(limited))
	mux.HandleFunc("GET /tokens", s.page)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.http.Serve(l) }() // it returns when close was called
	return s, nil
}

func (s *server) close() { _ = s.http.Close() }

// shorten makes a link.
func shorten(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 2048))
	target, parseErr := url.Parse(string(body))
	if err != nil || parseErr != nil || target.Scheme != "https" || target.Host == "" {
		http.Error(w, "the body must be a URL with https", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "/%s\n", strconv.FormatInt(int64(database.add(target.String())), 36))
}

// follow redirects to where a link leads.
func follow(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.PathValue("link"), 36, 32)
	target := database.at(int(n))
	if err != nil || target == "" {
		http.NotFound(w, r)
		return
	}
	http.Redirect(w, r, target, http.StatusFound)
}

// look returns how many tokens a client has, over both servers.
func (s *server) look(address string) int { return s.tokens.Tokens(address) }

// pageText is the page of the tokens. It loads itself again.
var pageText = template.Must(template.New("").Parse(`<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="1">
<title>Tokens</title><h1>Tokens of the clients, of {{.Limits}}</h1>
<table>{{range .Clients}}<tr><td>{{.Name}}<td>{{.Address}}<td><meter max="10" value="{{.Tokens}}">{{.Tokens}}</meter> {{.Tokens}}{{end}}</table>
<p>{{.Trips}} round trips to the store from this server.
`))

// page shows the tokens of the clients. They are asked for at once, and go in one round trip.
func (s *server) page(w http.ResponseWriter, _ *http.Request) {
	type row struct {
		Name, Address string
		Tokens        int
	}
	rows := make([]row, len(kinds))
	var wg sync.WaitGroup
	for i, k := range kinds {
		wg.Go(func() { rows[i] = row{k.name, k.address, s.look(k.address)} })
	}
	wg.Wait()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = pageText.Execute(w, map[string]any{"Limits": limits, "Clients": rows, "Trips": s.limit.StoreStats().Trips}) // fails only if the client has left
}
