package throttledebug_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttledebug"
)

// The page is mounted where the program likes. Its state.json is for programs: here for the key that has sent most.
func ExampleHandler() {
	mail := &throttle.Transport{Base: answers{}, LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(0.01, 5) }}
	mux := http.NewServeMux()
	page := throttledebug.Handler(map[string]*throttle.Transport{"mail": mail})
	mux.Handle("/debug/throttle/", http.StripPrefix("/debug/throttle", page))

	client := &http.Client{Transport: mail}
	for _, url := range []string{"http://a.test/", "http://b.test/", "http://b.test/"} {
		if resp, err := client.Get(url); err == nil {
			resp.Body.Close()
		}
	}

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/debug/throttle/state.json?sort=sent&limit=1", nil))
	var state struct {
		Transports []struct {
			Name string
			Keys []struct {
				Key  string
				Sent int
			}
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%+v\n", state.Transports)
	// Output: [{Name:mail Keys:[{Key:b.test Sent:2}]}]
}

// answers is an upstream that says yes.
type answers struct{}

func (answers) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
}
