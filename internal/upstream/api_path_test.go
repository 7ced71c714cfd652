package upstream

import "testing"

// What all routes of an API begin with does not tell them apart.
func TestUnversioned(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v10/channels/7/messages": "channels/7/messages",
		"/v1/messages":                 "messages",
		"//api//v2//x":                 "x",
		"/api/users":                   "users",
		"/api":                         "api",
		"/v1":                          "v1",
		"/api/v1":                      "v1",
		"/api/v1/":                     "v1/",
		"/version/1":                   "version/1",
		"/v/1":                         "v/1",
		"/v1beta/models":               "v1beta/models",
		"/repos/api/v1":                "repos/api/v1",
		"":                             "",
		"/":                            "",
	} {
		if got := unversioned(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
