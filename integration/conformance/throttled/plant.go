package throttled

import "net/http"

// The defects that can be planted. Each is what a user of a Transport with that defect
// would see.
const (
	PlantTrailer  = "trailer"  // the response is copied, so that trailers do not reach the copy
	PlantRequest  = "request"  // a request body is closed once more when the call is over
	PlantResponse = "response" // closing a response that was handed out closes its body twice
	PlantDropped  = "dropped"  // closing a response that is resent closes its body twice
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// plantAbove puts plant between the Transport t and its callers.
func plantAbove(plant string, t http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := t.RoundTrip(req)
		switch {
		case plant == PlantRequest && req.Body != nil:
			req.Body.Close()
		case plant == PlantResponse && err == nil:
			closeTwice(resp)
		case plant == PlantTrailer && err == nil:
			copied := *resp
			copied.Trailer = resp.Trailer.Clone()
			resp = &copied
		}
		return resp, err
	})
}

// plantBelow puts plant between the Transport and its base.
func plantBelow(plant string, base http.RoundTripper) http.RoundTripper {
	if plant != PlantDropped {
		return base
	}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusTooManyRequests {
			closeTwice(resp)
		}
		return resp, err
	})
}

func closeTwice(resp *http.Response) {
	onClose(resp, func(next func() error) error {
		next()
		return next()
	})
}
