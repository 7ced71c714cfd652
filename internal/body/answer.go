package body

import "net/http"

// Answer returns resp with the request that it answers. net/http names it in each response; a fake, such as the Result of an
// httptest.ResponseRecorder, often does not. It may return one response to many calls, so that one is copied.
func Answer(resp *http.Response, req *http.Request) *http.Response {
	if resp.Request != nil {
		return resp
	}
	named := *resp
	named.Request = req
	return &named
}
