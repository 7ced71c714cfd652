package hint

import (
	"net/http"
	"slices"
	"strings"
)

// This file tells buckets of one name apart. Discord names a bucket by a hash, which is that of a route: all channels
// have the same for their messages, and each has its own quota. Which part of the path tells them apart is in the
// host's row (Dialect.Majors).

// nameBucket adds the major parameter of the request's path to the name of the bucket. With "channels" in majors the
// bucket abcd of /api/v10/channels/7/messages becomes "abcd 7", which has nothing to do with the one of channel 8.
func (r *reader) nameBucket(resp *http.Response, majors []string) {
	if len(majors) == 0 || r.bucket == "" || resp.Request == nil || resp.Request.URL == nil {
		return
	}
	for path := resp.Request.URL.Path; path != ""; {
		segment, rest, _ := strings.Cut(path, "/")
		path = rest
		if !slices.Contains(majors, segment) {
			continue
		}
		id, _, _ := strings.Cut(rest, "/")
		if id == "" {
			return
		}
		plain := r.bucket
		r.bucket = short(plain[:min(len(plain), maxName/2)] + " " + id)
		for i := range r.n {
			if r.quotas[i].Name == plain {
				r.quotas[i].Name = r.bucket
			}
		}
		return
	}
}
