package hint

import (
	"net/http"
	"slices"
	"strings"
)

// This file tells buckets of one name apart. Discord names a bucket by a hash, which is that of a route: all channels
// have the same for their messages, and each has its own quota.

// majors are the segments of a path whose next one is a major parameter: buckets of one name are counted apart
// for each of its values (discord.com/developers/docs/topics/rate-limits, Header Format).
var majors = [...]string{"channels", "guilds", "webhooks"}

// nameBucket adds the major parameter of the request's path to the name of the bucket: the bucket abcd of
// /api/v10/channels/7/messages becomes "abcd 7", which has nothing to do with the one of channel 8.
func (r *reader) nameBucket(resp *http.Response) {
	if resp.Request == nil || resp.Request.URL == nil {
		return
	}
	for path := resp.Request.URL.Path; path != ""; {
		segment, rest, _ := strings.Cut(path, "/")
		path = rest
		if !slices.Contains(majors[:], segment) {
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
